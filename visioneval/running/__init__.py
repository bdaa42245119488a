"""Executes runs: generates and grades cells, resumes runs, and compares outputs in pairs.

The name is not ``run``, which is a function of the Python API. May import graders, providers and lower layers. Code
that only reads runs must not import it.
"""
