"""Exports records as tables for other programs, and sends runs to experiment trackers."""
