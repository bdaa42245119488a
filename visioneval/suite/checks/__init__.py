"""Checks of a suite beyond its schema: rules, judges, templates, labels and files.

Each check yields problems with a location. Checks of a single grader live in the ``checks.py`` of its package.
"""
