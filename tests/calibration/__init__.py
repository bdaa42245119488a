"""Simulations of what the intervals promise: they call the real code and print how often it keeps the promise."""
