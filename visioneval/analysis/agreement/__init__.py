"""Graders against human labels, raters among themselves, and each rater over time."""
