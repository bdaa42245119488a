"""What characters are, wherever text is generated or read."""

from __future__ import annotations

import unicodedata


def is_ignorable(char: str) -> bool:
    """Whether a character leaves no mark on an image: controls, joiners, variation selectors."""
    return unicodedata.category(char) in ("Cc", "Cf") or 0xFE00 <= ord(char) <= 0xFE0F
