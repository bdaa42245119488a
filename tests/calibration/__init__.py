"""Simulations of decisions: how often they fail equal runs, and how often they see a real loss. No tests."""
