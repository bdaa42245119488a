"""Graders: each folder holds one grader with its options (``config``), its checks and its work.

``config`` and ``checks`` import the suite and below only; the work may import ``judging`` and the protocols of
providers, and never an engine or a concrete provider.
"""
