"""What a suite must satisfy beyond the form of its keys: rules, judges, templates, labels and files.

Each check yields problems with a location. What belongs to one grader is in the ``checks.py`` of its package.
"""
