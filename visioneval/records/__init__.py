"""The format of a run on disk: records, labels, questions, preferences and baselines, read and written.

Imports ``suite`` and below. Both sides use it: what makes a run and what reads one.
"""
