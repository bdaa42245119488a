"""Decides by the glyph where a reader mixes up O and 0: in "0ffice", and in "2O19".

Fonts that mark the zero with a dot or a slash leave ink at its center, and the letter O is empty there. A glyph
without a mark shows a letter only in a font that marks its zeros, which the numbers of the same reading prove, or,
without such numbers, in a monospaced font, where the letter is as narrow as a zero. In other fonts, O and 0 differ in
width alone, which says nothing about a single glyph: they stay open. Measures pixels only; never sees what is
expected.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import cv2
import numpy as np
from PIL import Image

_RUN = re.compile(r"[^\W_]+")
_ZERO, _LETTERS = "0", "Oo"

_MIN_HEIGHT = 8
"""Glyphs with fewer pixels are not judged."""
_EMPTY, _MARKED = 0.15, 0.25
"""Ink at the center of a glyph, as a share of the darkest ink. In 11 fonts from 18 to 48 px: at most 0.07 in letters
and plain zeros (599 of 600; one letter touches the next), and at least 0.28 in 60 zeros with a dot or a slash."""
_SMALL = 0.85
"""A lowercase letter has less than this share of the height of the tallest glyph."""

_MONOSPACED = 0.035
"""The most that glyph centers deviate from equal steps (root mean square, in steps) in a monospaced font."""
_MIN_GLYPHS = 5
_UNEQUAL = frozenset("fijlrtI1mwMW%@")
"""Characters that are narrow or wide in proportional fonts: without one, equal steps prove nothing."""

Ink = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class _Glyph:
    """The tallest stroke at a character's position: its center and size in pixels, and the ink at its center."""

    x: float
    height: int
    center_ink: float


def needs_glyphs(text: str) -> bool:
    """Whether a reading has a zero among letters, or the letter O among digits."""
    return bool(_mixed(text))


def shown_characters(image: Image.Image, text: str, columns: Sequence[float]) -> tuple[tuple[int, str], ...]:
    """The positions in ``text`` whose glyph shows another character than was read, with that character.

    ``image`` is the line of text, and ``columns`` has the position (0 to 1 of its width) of each character that is
    not white space.
    """
    positions = [position for position, char in enumerate(text) if not char.isspace()]
    if len(positions) != len(columns):
        return ()
    ink = _ink(image)
    labels = cv2.connectedComponentsWithStats((ink > 0.5).astype(np.uint8), connectivity=8)[2][1:]
    glyphs = {
        position: glyph
        for position, column in zip(positions, columns, strict=True)
        if (glyph := _glyph(ink, labels, column * ink.shape[1])) is not None
    }
    tallest = max((glyph.height for position, glyph in glyphs.items() if text[position].isalnum()), default=0)
    zeros = [_is_marked(glyphs.get(position)) for position in _zeros_of_numbers(text)]
    empty_is_letter = all(zeros) if zeros else _is_monospaced(text, glyphs)
    shown: list[tuple[int, str]] = []
    for position in _mixed(text):
        glyph = glyphs.get(position)
        if glyph is None or glyph.height < _MIN_HEIGHT:
            continue
        if text[position] == _ZERO and empty_is_letter and glyph.center_ink <= _EMPTY:
            shown.append((position, "o" if glyph.height < _SMALL * tallest else "O"))
        if text[position] in _LETTERS and _is_marked(glyph):
            shown.append((position, _ZERO))
    return tuple(shown)


def _mixed(text: str) -> list[int]:
    """The positions of zeros in words of letters, and of the letter O in numbers."""
    positions: list[int] = []
    for run in _RUN.finditer(text):
        rest = run[0].translate({ord(char): None for char in (_ZERO, *_LETTERS)})
        sought = _ZERO if rest.isalpha() else _LETTERS if rest.isdecimal() else ""
        positions.extend(run.start() + index for index, char in enumerate(run[0]) if char in sought)
    return positions


def _zeros_of_numbers(text: str) -> list[int]:
    return [
        run.start() + index
        for run in _RUN.finditer(text)
        if run[0].isdecimal()
        for index, char in enumerate(run[0])
        if char == _ZERO
    ]


def _is_marked(glyph: _Glyph | None) -> bool:
    return glyph is not None and glyph.height >= _MIN_HEIGHT and glyph.center_ink >= _MARKED


def _ink(image: Image.Image) -> Ink:
    """How much each pixel differs from the border, from 0 to 1."""
    gray = np.asarray(image.convert("L"), dtype=np.float64)
    paper = np.median(np.concatenate([gray[0], gray[-1], gray[:, 0], gray[:, -1]]))
    ink: Ink = np.abs(gray - paper)
    ink /= max(float(ink.max()), 1.0)
    return ink


def _glyph(ink: Ink, components: Any, x: float) -> _Glyph | None:
    covering = [component for component in components.tolist() if component[0] - 1 <= x <= component[0] + component[2]]
    if not covering:
        return None
    left, top, width, height, _ = max(covering, key=lambda component: component[3])
    middle = ink[
        top + int(height * 0.4) : top + int(np.ceil(height * 0.6)),
        left + int(width * 0.4) : left + int(np.ceil(width * 0.6)),
    ]
    return _Glyph(left + width / 2, height, float(middle.mean()))


def _is_monospaced(text: str, glyphs: dict[int, _Glyph]) -> bool:
    """Whether the glyphs of each word stand in equal steps, by a least squares fit with one step for all words."""
    words = [list(range(*word.span())) for word in re.finditer(r"\S+", text)]
    measured = sum(len(word) for word in words)
    if measured != len(glyphs) or measured < _MIN_GLYPHS or _UNEQUAL.isdisjoint(text):
        return False
    offsets: list[tuple[float, float]] = []
    for word in words:
        middle, center = fmean(word), fmean(glyphs[position].x for position in word)
        offsets.extend((position - middle, glyphs[position].x - center) for position in word)
    spread = sum(index * index for index, _ in offsets)
    step = sum(index * x for index, x in offsets) / spread if spread else 0.0
    if step <= 0:
        return False
    return fmean((x - step * index) ** 2 for index, x in offsets) <= (_MONOSPACED * step) ** 2
