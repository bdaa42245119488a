"""Perturbed outputs, graded by the engine: how many of them the graders of a suite catch.

Imports the engine, providers and graders; ``analysis/probe`` turns what this package measures into rates and gates.
"""
