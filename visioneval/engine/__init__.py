"""Executes runs: generates and grades cells, resumes runs, and compares outputs in pairs.

May import graders, providers and lower layers. Code that only reads runs must not import it.
"""
