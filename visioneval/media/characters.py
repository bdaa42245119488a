"""Character classes for generating and reading text."""

from __future__ import annotations

import unicodedata


def is_ignorable(char: str) -> bool:
    """Whether a character is invisible in an image: controls, joiners, variation selectors."""
    return unicodedata.category(char) in ("Cc", "Cf") or 0xFE00 <= ord(char) <= 0xFE0F
