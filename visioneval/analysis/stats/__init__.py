"""Statistics with sources: intervals, tests, resampling, power and rank correlation."""
