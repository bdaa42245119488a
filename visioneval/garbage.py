"""When Python searches for unreachable cycles of objects: not while the command loads, and then only in what is new."""

from __future__ import annotations

import gc

_LOADING = 500_000
"""Imports and suites create hundreds of thousands of objects that stay. With Python's default of 700 new objects per
search, searching them took a tenth of the processor time of a run and freed next to nothing."""
_WORKING = 10_000
"""Cells leave no cycles, but a connection that fails does, in the libraries below the SDKs, with the request's body."""


def collect_seldom() -> None:
    """For a process of our own, before it loads anything."""
    gc.set_threshold(_LOADING, *gc.get_threshold()[1:])


def collect_new_objects() -> None:
    """Once everything is loaded. Changes nothing in the process of a user, in which ``collect_seldom`` never ran."""
    if gc.get_threshold()[0] == _LOADING:
        gc.freeze()
        gc.set_threshold(_WORKING, *gc.get_threshold()[1:])
