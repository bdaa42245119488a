"""Expressions of the metrics that a suite computes: a small language, parsed to a tree. Nothing is ever executed.

May import ``rules`` and below.
"""
