"""Text that a model, a suite or a dataset wrote, made safe to print."""

from __future__ import annotations

import unicodedata

from rich.text import Text

_KEPT = {"\n", "\t", "\u200c", "\u200d"}  # the two joiners shape letters and emoji, and move nothing
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
_REPLACEMENT = "\ufffd"


def clean(text: str) -> str:
    """Without control characters: no escape sequence, no direction override, nothing that moves the cursor."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in _KEPT or unicodedata.category(c) not in _HIDDEN else _REPLACEMENT for c in text)


def one_line(text: str, limit: int = 300) -> str:
    """Clean, on one line, and cut at ``limit`` characters."""
    flat = " ".join(clean(" ".join(text.split())).split())
    return flat if len(flat) <= limit else f"{flat[: limit - 3]}..."


def plain(text: str, style: str = "") -> Text:
    """Clean text for a table or a panel, in which brackets are no markup."""
    return Text(clean(text), style=style)
