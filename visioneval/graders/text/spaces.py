"""Compares the spaces of a found line, which the search ignores, with those that were read and measured.

Where another space was read than expected, the line is looked at once more: what it says then, and the gaps between its
glyphs. A gap is compared with the line's own gaps between letters and with the height of its glyphs, so that letter
spacing and tight setting do not matter. What lies between a letter gap and a word space is unclear, and so is a line
whose glyphs cannot be told from the ground.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import median
from typing import Any, Literal

import cv2
import numpy as np
from PIL import Image, ImageOps

from visioneval.graders.text import networks, ocr
from visioneval.graders.text.layout import Reading, in_one_row
from visioneval.graders.text.match import Copy, Match, copy_of, is_ideographic, skeleton
from visioneval.media.images import load_image, room_for
from visioneval.media.opencv import portable_opencv

Kind = Literal["missing", "added", "unclear"]

_THIN = frozenset("\u2006\u2007\u2008\u2009\u200a\u202f\u205f")
"""Expected spaces that may be set as any other, or left out."""
_MIN_SPACED = 2
"""So many spaces within words, and no two letters of a word without one, are letter spacing."""


@dataclass(frozen=True, slots=True)
class SpaceFinding:
    """A place of a found line whose space is missing, added or unclear.

    ``words`` are the two words of the line around an expected space, or the one in which none is expected.
    """

    line: str
    kind: Kind
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """A place between two characters of a line, and before which character of which reading it is."""

    position: int
    reading: int
    offset: int
    is_expected: bool
    is_read: bool


def findings(
    line: Copy, match: Match, readings: Sequence[Reading], *, fold: bool, looks: Mapping[int, LineLook | None] | None
) -> Iterator[SpaceFinding]:
    """The places of a line whose spaces are not as expected, or cannot be told.

    With ``looks``, second looks at readings by their index, a space is as expected where it was read so, where all
    looks read it so, and where one does and the gap does not contradict; wrong where none does and the gap agrees.
    Without, what was read decides. Letter spacing and a word that continues in another row are layout.
    """
    places = [place for place in _places(line, match, readings, fold=fold) if not _is_free(line, place.position)]
    within = [place.is_read for place in places if not place.is_expected]
    if len(within) >= _MIN_SPACED and all(within):
        return
    for place in places:
        if place.is_read != place.is_expected:
            kind = _wrong(place) if looks is None else _kind(place, looks.get(place.reading))
            if kind is not None:
                at = line.source[place.position]
                first, second = line.text[:at].split()[-1], line.text[at:].split()[0]
                words = (first, second) if place.position in line.gaps else (first + second,)
                yield SpaceFinding(line.text, kind, words)


def _kind(place: _Place, look: LineLook | None) -> Kind | None:
    """What second looks say of a place with another space than expected."""
    if look is None or not place.offset:
        return "unclear"
    copies = [copy_of(text, fold=True) for text in look.texts]
    before = sum(not char.isspace() for char in copies[0].text[: copies[0].source[place.offset]])
    gap = look.gaps[before - 1] if 0 < before <= len(look.gaps) else "unclear"
    is_contradicted = gap == ("none" if place.is_expected else "space")
    as_expected = [(place.offset in copy.gaps) == place.is_expected for copy in copies]
    if any(as_expected):
        return "unclear" if is_contradicted and not all(as_expected) else None
    return _wrong(place) if is_contradicted else "unclear"


def _wrong(place: _Place) -> Kind:
    return "missing" if place.is_expected else "added"


def _places(line: Copy, match: Match, readings: Sequence[Reading], *, fold: bool) -> Iterator[_Place]:
    """The places of a line. Where it continues in another reading, there is a space; none counts where a word does in
    another row."""
    position = 0
    for number, (index, start, end) in enumerate(match):
        gaps = _gaps_as_read(readings[index], fold=fold)
        for offset in range(start, end):
            is_expected = position in line.gaps
            is_read = offset in gaps
            if number and offset == start:
                is_read = is_expected or in_one_row(readings[match[number - 1][0]], readings[index])
            if position:
                yield _Place(position, index, offset, is_expected, is_read)
            position += 1


def _gaps_as_read(reading: Reading, *, fold: bool) -> Set[int]:
    """The compared characters before which white space was read; of a text that was weighed, that of what was read."""
    copy = copy_of(reading.text, fold=fold)
    if reading.read_as is None:
        return copy.gaps
    read = copy_of(reading.read_as, fold=fold)
    blocks = SequenceMatcher(None, read.chars, copy.chars, autojunk=False).get_matching_blocks()
    before = {gap: [block for block in blocks if block.a <= gap][-1:] for gap in read.gaps}
    return {gap + sum(block.b - block.a for block in last) for gap, last in before.items()}


def _is_free(line: Copy, position: int) -> bool:
    """Whether a space may be there or not: beside a sign of a script without spaces, and for a thin space."""
    if any(map(is_ideographic, line.chars[position - 1 : position + 1])):
        return True
    return not _THIN.isdisjoint(line.text[line.source[position - 1] : line.source[position]])


_READ_HEIGHT = 48
"""The height in pixels at which lines are read."""
_MARGIN = 0.12
"""The margin around a line, as a share of its height."""


@dataclass(frozen=True, slots=True)
class LineLook:
    """What second looks at a reading say, the same but for white space.

    ``gaps`` are those after each character of the first text but the last, white space left out.
    """

    texts: tuple[str, ...]
    gaps: tuple[Gap, ...]


@dataclass(frozen=True, slots=True)
class LineLooks:
    """A second look at each of some readings; ``None`` where it says something else."""

    looks: tuple[LineLook | None, ...]


def look_at_lines(path: Path, readings: Sequence[Reading]) -> LineLooks:
    """Looks again at readings of an image. Raises ``GraderError``."""
    with room_for(path):
        loaded = load_image(path)
        images = ocr.on_backgrounds(loaded)
        return LineLooks(
            tuple(next((look for image in images if (look := _look(image, reading))), None) for reading in readings)
        )


@portable_opencv()
def _look(image: Image.Image, reading: Reading) -> LineLook | None:
    if reading.corners is None:
        return None
    line = networks.crop(image, reading.corners)
    for turned in (line, line.rotate(180)):
        read = networks.read_line(turned)
        if _compared(read.text) == _compared(reading.text):
            enlarged = turned  # the spaces in small print that the recognizer reads by mistake are then elsewhere
            if turned.height < _READ_HEIGHT:
                size = (max(1, round(turned.width * _READ_HEIGHT / turned.height)), _READ_HEIGHT)
                enlarged = turned.resize(size, Image.Resampling.LANCZOS)
            margin = round(enlarged.height * _MARGIN)
            other = networks.read_line(ImageOps.expand(enlarged, margin, ocr.border_color(enlarged))).text
            texts = (read.text, other) if _compared(other) == _compared(read.text) else (read.text,)
            return LineLook(texts, gaps(turned, read.text, read.columns))
    return None


def _compared(text: str) -> str:
    return skeleton(copy_of(text, fold=True).chars)


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
_SLANTS = (0.12, 0.25, -0.12)
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
    steps = np.flatnonzero(np.diff(_upright(ink).any(axis=0).astype(np.int8), prepend=0, append=0))
    parts = [(int(start), int(end)) for start, end in zip(steps[::2], steps[1::2], strict=True)]
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
    height, width = ink.shape
    slanted = [ink]
    for slant in _SLANTS:
        matrix = np.array([[1, slant, -slant * height / 2], [0, 1, 0]], dtype=np.float32)
        sheared = cv2.warpAffine(ink.astype(np.uint8), matrix, (width, height), flags=cv2.INTER_NEAREST)
        slanted.append(sheared.astype(np.bool_))
    return max(slanted, key=lambda mask: np.count_nonzero(~mask.any(axis=0)) - (0 if mask is ink else needed))


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
