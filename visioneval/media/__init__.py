"""Images, videos and files on the web: reading, checking and describing them.

Imports only ``bounds``, ``errors`` and ``types``; all higher layers may import it.
"""

import unicodedata


def is_ignorable(char: str) -> bool:
    """Whether a character is invisible in an image: controls, joiners, variation selectors."""
    return unicodedata.category(char) in ("Cc", "Cf") or 0xFE00 <= ord(char) <= 0xFE0F
