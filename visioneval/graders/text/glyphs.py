"""What the glyphs of a line show: O or 0, and where a space stands. Measures pixels, never sees what is expected.

Readers mix up O and 0: in "0ffice", and in "2O19". Fonts that mark the zero with a dot or a slash leave ink at its
center, and the letter O is empty there. A glyph without a mark shows a letter only in a font that marks its zeros,
which the numbers of the same reading prove, or, without such numbers, in a monospaced font, where the letter is as
narrow as a zero. In other fonts, O and 0 differ in width alone, which says nothing about a single glyph: they stay
open.

A gap is compared with the line's own gaps between letters and with the height of its glyphs, so that letter spacing
and tight setting do not matter. What lies between a letter gap and a word space is unclear, and so is a line whose
glyphs cannot be told from the ground.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import fmean, median
from typing import Any, Literal

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
    numbers = [run for run in _RUN.finditer(text) if run[0].isdecimal()]
    zeros = [
        _is_marked(glyphs.get(run.start() + index))
        for run in numbers
        for index, char in enumerate(run[0])
        if char == _ZERO
    ]
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


Gap = Literal["space", "none", "unclear"]
"""What the gap between two glyphs shows."""
Mask = np.ndarray[Any, np.dtype[np.bool_]]
Part = tuple[int, int]
"""A run of columns with ink: the first column, and that after the last."""

_HEIGHT = 64
"""Crops that are lower are enlarged to this height in pixels: a gap of small print is a pixel or two."""
_NONE, _SPACE = 0.4, 0.6
"""How much wider than a letter gap, as a share of what a word space adds, a gap without a space is at most, and one
with a space at least."""
_LOOSE, _LOOSE_SPACE = frozenset(".,:;!'’\"·•-1"), 0.9  # noqa: RUF001
"""Beside these, letters stand loosely, and a space adds at least this share."""
_WORD, _LEAST = 0.45, 0.15
"""What a word space adds to a letter gap, in heights of a glyph: in a line without others, and at least."""
_MIN_CLOSED, _LETTER = 3, 0.2
"""So many gaps without a space give the letter gap; else those do that are at most so much wider than narrow ones."""
_WIDE = 0.45
"""From this letter gap on, in heights of a glyph, a line of equal gaps may be letter-spaced or all single letters."""
_SLANTS = (0.0, 0.12, 0.25, -0.12)
_SLANT_GAIN = 0.02
"""The share of the columns that must become empty for a line to be taken as slanted."""
_NO_GLYPH = 0.2
"""Parts below this share of the height of the crop are no glyphs: dots, accents, commas."""
_SKIPPED, _SKIP, _SAME, _REACH = 0.3, 0.6, 0.05, 4
"""The alignment: the costs of ink without a character (a glyph in parts), of two characters in one part, and the most
parts skipped."""
_MISPLACED = 0.25
"""The most that characters lie beside the ink that they are aligned with, on average, in heights of a glyph."""


def gaps(image: Image.Image, text: str, columns: Sequence[float]) -> tuple[Gap, ...]:
    """For each two neighboring characters of ``text``, white space left out, whether a space stands between them.

    ``image`` is the line, upright, and ``columns`` has the position (0 to 1 of its width) of each character that is
    not white space. All is unclear where they do not fit.
    """
    count = sum(not char.isspace() for char in text)
    unknown: Gap = "unclear"
    unclear = (unknown,) * max(count - 1, 0)
    if count != len(columns) or count < 2 or min(image.size) < 2:
        return unclear
    if image.height < _HEIGHT:
        size = (max(1, round(image.width * _HEIGHT / image.height)), _HEIGHT)
        image = image.resize(size, Image.Resampling.BICUBIC)
    ink = _ink_mask(image)
    heights = cv2.connectedComponentsWithStats(ink.astype(np.uint8), connectivity=8)[2][1:, cv2.CC_STAT_HEIGHT]
    height = float(median([int(size) for size in heights if size > _NO_GLYPH * ink.shape[0]] or [0]))
    parts = _parts(_upright(ink))
    if not parts or not height:
        return unclear
    aligned, misplaced = _align(parts, [column * ink.shape[1] for column in columns], height)
    if misplaced > _MISPLACED:
        return unclear
    widths = [
        max((parts[at + 1][0] - parts[at][1] for at in range(first, second)), default=0) / height
        for first, second in pairwise(aligned)
    ]
    return _judged(widths, text)


def _judged(widths: Sequence[float], text: str) -> tuple[Gap, ...]:
    """What each gap is. ``widths`` are heights of a glyph."""
    words = text.split()
    chars = "".join(words)
    starts = set(accumulate(map(len, words)))
    read = [place in starts for place in range(1, len(chars))]
    closed = [width for width, is_space in zip(widths, read, strict=True) if not is_space]
    if len(closed) < _MIN_CLOSED:  # spaces between all letters, or hardly any letters beside each other
        least = float(np.percentile(widths, 30))
        closed = [width for width in widths if width <= least + _LETTER]
    letter = median(closed)
    has_wider = any(width >= letter + _WORD * _SPACE for width in widths)
    judged: list[Gap] = []
    for index, width in enumerate(widths):
        others = [widths[other] - letter for other, is_space in enumerate(read) if is_space and other != index]
        word = max(median(others), _LEAST) if others else _WORD
        share = (width - letter) / word
        if share >= (_SPACE if _LOOSE.isdisjoint(chars[index : index + 2]) else _LOOSE_SPACE):
            judged.append("space")
        elif share > _NONE or (letter > _WIDE and not has_wider):
            judged.append("unclear")
        else:
            judged.append("none")
    return tuple(judged)


def _ink_mask(image: Image.Image) -> Mask:
    """The pixels that differ from the border as the glyphs do."""
    pixels = np.asarray(image.convert("RGB"), dtype=np.float32)
    paper = np.median(np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]]), axis=0)
    distance = np.abs(pixels - paper).max(axis=2)
    scaled = (np.clip(distance / max(float(np.percentile(distance, 99)), 1.0), 0, 1) * 255).astype(np.uint8)
    threshold, _ = cv2.threshold(scaled, 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)
    mask: Mask = scaled > threshold
    return mask


def _upright(ink: Mask) -> Mask:
    """The ink sheared so that most columns are empty: slanted letters overlap each other."""
    needed = _SLANT_GAIN * ink.shape[1]
    slanted = [_sheared(ink, slant) for slant in _SLANTS]
    return max(slanted, key=lambda mask: np.count_nonzero(~mask.any(axis=0)) - (0 if mask is ink else needed))


def _sheared(ink: Mask, slant: float) -> Mask:
    if not slant:
        return ink
    height, width = ink.shape
    matrix = np.array([[1, slant, -slant * height / 2], [0, 1, 0]], dtype=np.float32)
    mask: Mask = cv2.warpAffine(ink.astype(np.uint8), matrix, (width, height), flags=cv2.INTER_NEAREST).astype(np.bool_)
    return mask


def _parts(ink: Mask) -> list[Part]:
    steps = np.flatnonzero(np.diff(ink.any(axis=0).astype(np.int8), prepend=0, append=0))
    return [(int(start), int(end)) for start, end in zip(steps[::2], steps[1::2], strict=True)]


def _align(parts: Sequence[Part], xs: Sequence[float], height: float) -> tuple[list[int], float]:
    """The part of the ink that each character belongs to, in order, and the mean distance between them in heights.

    Each part has one character at least, if possible: the reader's columns are less exact than the gaps.
    """
    skips = np.cumsum([0.0, *(_SKIPPED + _SKIP * min((end - start) / height, 1) for start, end in parts)])
    starts, ends = np.array(parts, dtype=np.float64).T
    distances = np.array([np.maximum(0, np.maximum(starts - x, x - ends)) / height for x in xs])
    count = len(parts)
    costs = distances[0] + skips[:-1]
    before = np.zeros((len(xs), count), dtype=np.int64)
    for row in range(1, len(xs)):
        options = np.full((_REACH + 1, count), np.inf)
        options[0] = costs + _SAME
        for step in range(1, min(_REACH, count - 1) + 1):
            options[step, step:] = costs[:-step] + skips[step:-1] - skips[1 : count - step + 1]
        chosen = options.argmin(axis=0)
        before[row] = np.arange(count) - chosen
        costs = options.min(axis=0) + distances[row]
    part = int((costs + skips[-1] - skips[1:]).argmin())
    aligned = [part]
    for row in range(len(xs) - 1, 0, -1):
        part = int(before[row, part])
        aligned.append(part)
    aligned.reverse()
    return aligned, float(np.mean([distances[row, part] for row, part in enumerate(aligned)]))
