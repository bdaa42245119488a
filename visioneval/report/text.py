"""Text that a model, a suite or a dataset wrote, made safe to print."""

from __future__ import annotations

import unicodedata

from rich.text import Text

_KEPT = {"\n", "\t"}


def clean(text: str) -> str:
    """Without control characters: no escape sequence, no direction override, nothing that moves the cursor."""
    return "".join(c if c in _KEPT or unicodedata.category(c) not in ("Cc", "Cf", "Cs") else "\ufffd" for c in text)


def one_line(text: str, limit: int = 300) -> str:
    """Clean, on one line, and cut at ``limit`` characters."""
    flat = " ".join(clean(text).split())
    return flat if len(flat) <= limit else f"{flat[: limit - 3]}..."


def plain(text: str, style: str = "") -> Text:
    """Clean text for a table or a panel, in which brackets are no markup."""
    return Text(clean(text), style=style)
