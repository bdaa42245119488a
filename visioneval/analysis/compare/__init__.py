"""Comparison of two runs: pairing, differences and gates."""
