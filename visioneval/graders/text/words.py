"""Words of a text as benchmarks of text rendering compare them: without case, punctuation and white space. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

_APOSTROPHES = "'\u2019\u02bc"
_SINGLE = ("CJK UNIFIED", "CJK COMPATIBILITY", "HIRAGANA", "KATAKANA")
"""Names of characters that are words of their own, as their scripts have no spaces."""


def words(texts: Iterable[str]) -> list[str]:
    """The words of texts, in order, of letters, digits and marks, case-folded and in the form NFKC.

    An apostrophe is left out, other punctuation separates words, and each ideograph and kana is a word.
    """
    complete: list[str] = []
    for text in texts:
        current = ""
        for char in unicodedata.normalize("NFKC", text).casefold():
            is_single = unicodedata.name(char, "").startswith(_SINGLE)
            if char in _APOSTROPHES:
                continue
            if unicodedata.category(char)[0] in "LNM" and not is_single:
                current += char
                continue
            complete += [current] if current else []
            complete += [char] if is_single and char.isalnum() else []
            current = ""
        complete += [current] if current else []
    return complete
