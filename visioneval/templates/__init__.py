"""Jinja templates: a sandbox with bounded work, and rendering by name.

Imports ``errors``, ``types`` and ``bounds`` only.
"""
