"""Makes text from models, suites and datasets safe to print."""

from __future__ import annotations

import unicodedata

from rich.text import Text

from visioneval.analysis.rerouting import Rerouting

_ALLOWED = {"\n", "\t", "\u200c", "\u200d"}  # the two joiners shape letters and emoji and do not move the cursor
_UNSAFE = ("Cc", "Cf", "Cs", "Zl", "Zp")
_REPLACEMENT = "\ufffd"


def clean(text: str) -> str:
    """Replaces control characters: escape sequences, direction overrides and cursor movement."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in _ALLOWED or unicodedata.category(c) not in _UNSAFE else _REPLACEMENT for c in text)


def one_line(text: str, limit: int = 300) -> str:
    """Clean text on one line, truncated to ``limit`` characters."""
    flat = " ".join(clean(" ".join(text.split())).split())
    return flat if len(flat) <= limit else f"{flat[: limit - 3]}..."


def plain(text: str, style: str = "") -> Text:
    """Clean text for Rich, without markup."""
    return Text(clean(text), style=style)


def rerouting_text(rerouting: Rerouting) -> str:
    """Which model answered instead of which."""
    cells = f"{rerouting.cells:,} cell{'s' * (rerouting.cells != 1)}"
    return clean(
        f"{rerouting.grader}: asked the model {rerouting.asked!r}, but {rerouting.answered!r} answered in {cells}"
    )
