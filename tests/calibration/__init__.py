"""Simulations of every interval and test: ``make calibration`` prints the figures of docs/reference/coverage.md."""
