"""Reads and writes the on-disk format of a run: records, labels, questions, preferences and baselines.

May import ``suite`` and lower layers. Used both by the engine and by code that only reads runs.
"""
