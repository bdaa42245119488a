"""Text outside all expected lines, and which of it may be a shape: an icon, a bullet, a part of a drawing.

OCR always answers with characters: a circle is read as "O", a magnifier as "Q", a menu icon as "三". A sign is
doubtful if it stands alone, and is of a script that no expected line has, or has a low confidence, or is one that
plain shapes are read as, at any confidence. So are brackets around a whole expected line: the round ends of a button.
"""

# ruff: noqa: RUF001 - characters that are easily confused are the subject here
from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from visioneval.graders.text.alphabet import BULLET, HYPHEN
from visioneval.graders.text.copy_match import Copy, Page, Reading

_TEXT_SYMBOLS = frozenset("!?%&@#$€£¥")
_ORNAMENTS = frozenset(f"{HYPHEN}{BULLET}|_~*=<>")

_LATIN, _GREEK, _EAST_ASIAN, _COMMON, _OTHER = "LATIN", "GREEK", "EAST ASIAN", "COMMON", "OTHER"

_SHAPES = frozenset("CDIJLOQTUVXYZclovxz01ΛΔΓΠΣΩ〇一二三十工口日目田土厂人不囗ロエニハ")
"""The signs that rings, arcs, bars, crosses, corners, arrows, triangles and menu icons are read as."""
_BARS = frozenset("IlⅡ")
_STROKES = _BARS | frozenset("1|")
"""What rows of bars are read as, at a low confidence: the steps of a logo as 111."""
_BRACKETS = frozenset({"()", "[]", "{}"})
"""What the ends of a button are read as."""
_SURE = 0.9
"""Lone real characters have at least 0.9 in nearly all fonts; signs and pairs of signs below are doubtful."""
_MAX_SIGNS = 2


@dataclass(frozen=True, slots=True)
class Extra:
    """Text that no expected line explains. ``reading`` is its index, ``context`` the whole reading if it has more."""

    text: str
    reading: int
    confidence: float
    context: str | None
    is_doubtful: bool

    @property
    def label(self) -> str:
        """The text, with the reading around it."""
        return self.text if self.context is None else f"{self.text} (in {self.context})"


def extras(
    page: Page,
    readings: Sequence[Reading],
    explained: AbstractSet[tuple[int, int]],
    expected: Iterable[Copy],
    *,
    doubt: bool,
) -> tuple[Extra, ...]:
    """The text of ``page`` that is not ``explained``; ornaments and isolated marks are not text.

    Nothing is doubtful without ``doubt``: for a reader that can tell a shape from a letter.
    """
    scripts = {_script(char) for line in expected for char in line.chars} - {_COMMON} or {_LATIN}
    items: list[Extra] = []
    for index, copy in enumerate(page.copies):
        confidence = readings[index].confidence
        covered = [(index, position) in explained for position in range(len(copy.chars))]
        is_button = _is_in_brackets(copy.chars, covered)
        for start, end in _open_runs(covered):
            run = copy.chars[start:end]
            is_alone = all(position in copy.gaps or position in (0, len(copy.chars)) for position in (start, end))
            if _is_text(run, alone=is_alone):
                is_doubtful = doubt and (is_button or _may_be_shape(run, confidence, scripts, alone=is_alone))
                context = None if end - start == len(copy.chars) else copy.text.strip()
                items.append(Extra(copy.cut(start, end), index, confidence, context, is_doubtful))
    return tuple(items)


def _open_runs(covered: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """The segments of a reading that are not covered."""
    start = None
    for position, is_covered in enumerate((*covered, True)):
        if is_covered and start is not None:
            yield start, position
            start = None
        elif not is_covered and start is None:
            start = position


def _is_in_brackets(chars: str, covered: Sequence[bool]) -> bool:
    """Whether a reading is an expected line and a bracket on both sides."""
    return chars[:1] + chars[-1:] in _BRACKETS and list(covered) == [False, *[True] * (len(chars) - 2), False]


def _is_text(run: str, *, alone: bool) -> bool:
    if any(char.isalnum() or char in _TEXT_SYMBOLS for char in run):
        return True
    return not alone and not _ORNAMENTS.issuperset(run)


def _may_be_shape(run: str, confidence: float, scripts: AbstractSet[str], *, alone: bool) -> bool:
    if len(run) == 1 and _script(run) not in scripts | {_COMMON}:
        return True  # also next to a word: an icon in front of a label
    if not alone or len(run) > _MAX_SIGNS:
        return alone and confidence < _SURE and _STROKES.issuperset(run)
    return confidence < _SURE or (len(run) == 1 and run in _SHAPES) or _BARS.issuperset(run)


def _script(char: str) -> str:
    """The script of a character; digits and western punctuation have none of their own."""
    if unicodedata.east_asian_width(char) in "WF":
        return _EAST_ASIAN
    if (char.isascii() and not char.isalpha()) or unicodedata.category(char)[0] in "PN" or char in _TEXT_SYMBOLS:
        return _COMMON
    name = unicodedata.name(char, "")
    return next((script for script in (_LATIN, _GREEK) if name.startswith(script)), _OTHER)
