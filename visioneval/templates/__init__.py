"""Jinja templates: a sandbox with a limit on work, and rendering by name.

Imports only ``errors``, ``types`` and ``bounds``.
"""
