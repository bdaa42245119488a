"""What characters are, wherever text is drawn or read."""

from __future__ import annotations

import unicodedata


def ignorable(char: str) -> bool:
    """Whether a character leaves no mark on a picture: controls, joiners, variation selectors."""
    return unicodedata.category(char) in ("Cc", "Cf") or 0xFE00 <= ord(char) <= 0xFE0F
