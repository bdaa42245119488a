"""Measures the gaps between the glyphs of a line, and says where a space stands. Never sees what is expected.

A gap is compared with the line's own gaps between letters and with the height of its glyphs, so that letter spacing
and tight setting do not matter. What lies between a letter gap and a word space is unclear, and so is a line whose
glyphs cannot be told from the ground.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from statistics import median
from typing import Any, Literal

import cv2
import numpy as np
from PIL import Image

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
_SMALL = 0.2
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
    ink = _ink(image)
    height = _glyph_height(ink)
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


def _ink(image: Image.Image) -> Mask:
    """The pixels that differ from the border as the glyphs do."""
    pixels = np.asarray(image.convert("RGB"), dtype=np.float32)
    paper = np.median(np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]]), axis=0)
    distance = np.abs(pixels - paper).max(axis=2)
    scaled = (np.clip(distance / max(float(np.percentile(distance, 99)), 1.0), 0, 1) * 255).astype(np.uint8)
    threshold, _ = cv2.threshold(scaled, 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)
    mask: Mask = scaled > threshold
    return mask


def _glyph_height(ink: Mask) -> float:
    heights = cv2.connectedComponentsWithStats(ink.astype(np.uint8), connectivity=8)[2][1:, cv2.CC_STAT_HEIGHT]
    return float(median(tall)) if (tall := [int(size) for size in heights if size > _SMALL * ink.shape[0]]) else 0.0


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
