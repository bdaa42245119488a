"""Pairwise judgements, within a run and between two."""
