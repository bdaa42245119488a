"""Graders and pairwise judges against human labels, raters among themselves, and each rater over time."""
