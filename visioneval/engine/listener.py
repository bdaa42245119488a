"""Callbacks of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from visioneval.records.model import Record

Interrupt = Callable[[], None]
"""Stops a run as Ctrl-C does: the first call lets running calls finish, the second cancels them."""


@dataclass(frozen=True, slots=True)
class Listener:
    """Callbacks of a run: finished records, running and waiting calls, messages, notes and unexpected exceptions."""

    record: Callable[[Record], None] = lambda _: None
    status: Callable[[list[str]], None] = lambda _: None
    say: Callable[[str], None] = print
    debug: Callable[[BaseException], None] = lambda _: None
    note: Callable[[str], None] = lambda _: None
    started: Callable[[Interrupt], None] = lambda _: None
    """Receives a function that interrupts the run from any thread, as Ctrl-C does."""
