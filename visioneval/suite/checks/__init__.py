"""Checks of a suite beyond its schema: rules, judges, templates, labels and files.

Each check yields problems with a location. Checks of a single grader are beside its options, in its package.
"""
