"""Expands a suite into its cells: what to generate, and which graders and rules apply. No network, no clock, no SDK."""
