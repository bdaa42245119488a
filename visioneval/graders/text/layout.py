"""Where readings are: which are of the same text, and which may continue a line. Pure geometry.

An image has no single reading order: two columns, a price far to the right of its dish, a slogan wrapped in a
narrow box. So each box may have several successors: to the right in its row, and in the row below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from statistics import median

Corners = tuple[tuple[float, float], tuple[float, float], tuple[float, float], tuple[float, float]]

_SAME_ROW = 0.5
"""Boxes in a row overlap vertically by at least this share of the smaller height."""
_WORD_GAP = 1.5
"""Boxes at most this many heights apart belong to one run of words; a gutter is wider."""
_LINE_GAP = 1.5
"""Rows at most this many heights apart belong to one paragraph."""
_NEAR = 1.5
"""Boxes at most this many heights of the higher one apart are read together, if both are whole readings."""
_MAX_TILT = math.radians(40)


@dataclass(frozen=True, slots=True)
class Reading:
    """A segment of text that a reader saw.

    ``confidence`` is 0 to 1. ``corners`` are pixels (x, y), clockwise from the top left of the text; ``None``
    if the reader gives no position. ``shown`` are positions in ``text`` whose glyph shows another character than
    was read, with that character. ``read_as`` is what was read, if the text is the one that the place shows after it
    was weighed; ``possible`` is a text that it may show.
    """

    text: str
    confidence: float = 1.0
    corners: Corners | None = None
    shown: tuple[tuple[int, str], ...] = ()
    read_as: str | None = None
    possible: str | None = None

    @property
    def shown_text(self) -> str:
        """The text with the characters that the glyphs show."""
        chars = list(self.text)
        for position, char in self.shown:
            chars[position] = char
        return "".join(chars)


@dataclass(frozen=True, slots=True)
class _Box:
    left: float
    top: float
    right: float
    bottom: float

    @property
    def height(self) -> float:
        return max(self.bottom - self.top, 1.0)

    def beside(self, other: _Box) -> bool:
        shared = min(self.bottom, other.bottom) - max(self.top, other.top)
        return shared >= _SAME_ROW * min(self.height, other.height)

    def above(self, other: _Box) -> bool:
        gap = other.top - self.bottom
        is_near = gap <= _LINE_GAP * max(self.height, other.height)
        return is_near and other.top + other.bottom > self.top + self.bottom and not self.beside(other)

    def near(self, after: _Box) -> bool:
        height = max(self.height, after.height)
        aside, below = (
            max(after.left - self.right, self.left - after.right),
            max(after.top - self.bottom, self.top - after.bottom),
        )
        is_before = after.bottom <= self.top or (self.beside(after) and after.right <= self.left)
        return max(aside, below) <= _NEAR * height and not is_before

    def around(self, other: _Box) -> _Box:
        return _Box(
            min(self.left, other.left),
            min(self.top, other.top),
            max(self.right, other.right),
            max(self.bottom, other.bottom),
        )


def follows(readings: Sequence[Reading]) -> tuple[tuple[int, ...], ...]:
    """For each reading, the readings that may continue its line, most likely first.

    Readings without corners follow each other in the given order.
    """
    corners = tuple(reading.corners for reading in readings if reading.corners is not None)
    if len(corners) < len(readings):
        return tuple((index + 1,) if index + 1 < len(readings) else () for index in range(len(readings)))
    return _follows(corners)


@lru_cache(maxsize=8)
def _follows(corners: tuple[Corners, ...]) -> tuple[tuple[int, ...], ...]:
    """Remembered, as the same readings are compared several times in a second look."""
    boxes = _leveled_boxes(corners)
    right = []
    for index, box in enumerate(boxes):
        later = [
            other
            for other, other_box in enumerate(boxes)
            if other != index and other_box.left + other_box.right > box.left + box.right and box.beside(other_box)
        ]
        right.append(min(later, key=lambda other: (boxes[other].left + boxes[other].right, other), default=None))
    runs = _runs(boxes, right)
    return tuple(_following(boxes, right, runs, index) for index in range(len(boxes)))


def near(readings: Sequence[Reading]) -> tuple[frozenset[int], ...]:
    """For each reading, those that a person may read after it as they are beside or below it, of any size.

    None without corners.
    """
    corners = [reading.corners for reading in readings if reading.corners is not None]
    if len(corners) < len(readings):
        return tuple(frozenset() for _ in readings)
    boxes = _leveled_boxes(corners)
    return tuple(
        frozenset(other for other, after in enumerate(boxes) if after is not box and box.near(after)) for box in boxes
    )


def in_one_row(first: Reading, second: Reading) -> bool:
    """Whether both are in the same row of the image; not without corners."""
    if first.corners is None or second.corners is None:
        return False
    return _turned_box(first.corners, 1.0, 0.0).beside(_turned_box(second.corners, 1.0, 0.0))


def _leveled_boxes(corners: Sequence[Corners]) -> list[_Box]:
    """The boxes after correcting the median tilt of the text."""
    tilts = [math.atan2(b[1] - a[1], b[0] - a[0]) for a, b, _, _ in corners]
    level = [tilt for tilt in tilts if abs(tilt) < _MAX_TILT]
    tilt = median(level) if level else 0.0
    cos, sin = math.cos(tilt), math.sin(tilt)
    return [_turned_box(quad, cos, sin) for quad in corners]


def _turned_box(corners: Corners, cos: float, sin: float) -> _Box:
    """The upright box around corners that were turned back by an angle."""
    xs = [x * cos + y * sin for x, y in corners]
    ys = [y * cos - x * sin for x, y in corners]
    return _Box(min(xs), min(ys), max(xs), max(ys))


def _runs(boxes: Sequence[_Box], right: Sequence[int | None]) -> list[list[int]]:
    """Boxes of a row that are a word space apart, from left to right."""
    joined = {
        index: other
        for index, other in enumerate(right)
        if other is not None and boxes[other].left - boxes[index].right <= _WORD_GAP * boxes[index].height
    }
    runs: dict[int, list[int]] = {}
    for index in sorted(range(len(boxes)), key=lambda index: (boxes[index].left + boxes[index].right, index)):
        run = runs.setdefault(index, [index])
        following = joined.get(index)
        if following is not None and following not in runs:
            runs[following] = run
            run.append(following)
    return [run for index, run in runs.items() if run[0] == index]


def _following(
    boxes: Sequence[_Box], right: Sequence[int | None], runs: Sequence[Sequence[int]], index: int
) -> tuple[int, ...]:
    following: list[int] = [] if right[index] is None else [right[index] or 0]
    following.extend(_below(boxes, boxes[index], [[other] for other in range(len(boxes)) if other != index]))
    for run in runs:
        if run[-1] == index:
            run_box = reduce(_Box.around, (boxes[other] for other in run))
            following.extend(_below(boxes, run_box, [other for other in runs if other is not run]))
    return tuple(dict.fromkeys(following))


def _below(boxes: Sequence[_Box], box: _Box, runs: Sequence[Sequence[int]]) -> list[int]:
    """The first boxes of the runs in the nearest row below that lies under ``box``."""
    under: list[tuple[_Box, int]] = []
    for run in runs:
        run_box = reduce(_Box.around, (boxes[other] for other in run))
        if box.above(run_box) and min(box.right, run_box.right) > max(box.left, run_box.left):
            under.append((run_box, run[0]))
    if not under:
        return []
    top = min(under, key=lambda item: item[0].top)[0]
    return [first for first_box, first in under if first_box is top or first_box.beside(top)]


_OVERLAP = 0.5
"""The share of the smaller box from which two readings are of the same text."""


def merged(looks: Sequence[Sequence[Reading]]) -> list[Reading]:
    """The readings of all looks, from top to bottom. Where those of several looks overlap, the look with the most and
    surest characters counts."""
    readings = [reading for look in looks for reading in look]
    look_of = [number for number, look in enumerate(looks) for _ in look]
    kept: list[Reading] = []
    for group in _overlapping(readings):
        by_look: dict[int, list[Reading]] = {}
        for index in group:
            by_look.setdefault(look_of[index], []).append(readings[index])
        kept += max(by_look.values(), key=lambda look: sum(len(reading.text) * reading.confidence for reading in look))
    return sorted(kept, key=lambda reading: (bounds(reading)[1], bounds(reading)[0]))


def apart(readings: Sequence[Reading], others: Sequence[Reading]) -> list[Reading]:
    """The readings that are not of the same text as one of the others."""
    return [reading for reading in readings if not any(overlap(reading, other) for other in others)]


def overlap(reading: Reading, other: Reading) -> bool:
    """Whether two readings are of the same text."""
    return _overlap(bounds(reading), bounds(other))


def around(readings: Sequence[Reading]) -> Corners:
    """The upright box around readings."""
    lefts, tops, rights, bottoms = zip(*map(bounds, readings), strict=True)
    left, top, right, bottom = min(lefts), min(tops), max(rights), max(bottoms)
    return (left, top), (right, top), (right, bottom), (left, bottom)


def bounds(reading: Reading) -> tuple[float, float, float, float]:
    """Left, top, right and bottom in pixels."""
    corners: Corners | tuple[()] = reading.corners or ()
    xs, ys = [x for x, _ in corners] or [0.0], [y for _, y in corners] or [0.0]
    return min(xs), min(ys), max(xs), max(ys)


def _overlapping(readings: Sequence[Reading]) -> list[list[int]]:
    """Groups of readings that overlap, directly or through others."""
    boxes = [bounds(reading) for reading in readings]
    groups = list(range(len(readings)))
    for index in range(len(readings)):
        for other in range(index):
            if groups[index] != groups[other] and _overlap(boxes[index], boxes[other]):
                joined, target = groups[index], groups[other]
                groups = [target if group == joined else group for group in groups]
    return [[index for index, number in enumerate(groups) if number == group] for group in dict.fromkeys(groups)]


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    smaller = min((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b))
    return width > 0 and height > 0 and width * height >= _OVERLAP * smaller
