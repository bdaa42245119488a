"""Graders: each folder has its options and checks in ``__init__``, and its work in other files.

Options and checks import only the suite and below. The work may import ``judging``
and the protocols of providers, and never an engine or a concrete provider.
"""
