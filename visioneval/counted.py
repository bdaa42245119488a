"""Counts in messages."""

from __future__ import annotations


def count_of(number: int, name: str) -> str:
    """``1 cell``, ``1,200 cells``."""
    return f"{number:,} {name}{'s' * (number != 1)}"
