"""Graders: each folder has one grader: its options with their checks in ``config``, and its work in other files.

Options and checks import only the suite and below; those of ``text`` are two files. The work may import ``judging``
and the protocols of providers, and never an engine or a concrete provider.
"""
