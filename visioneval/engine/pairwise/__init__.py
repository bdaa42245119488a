"""Pairwise judgements of images within one run or between two runs."""
