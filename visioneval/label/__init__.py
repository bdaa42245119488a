"""The labelling page and its server: people answer about cells or pairs, blind, and every answer is on disk."""
