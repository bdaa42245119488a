"""Statistics: intervals, tests, resampling, power and rank correlation, each with its source."""
