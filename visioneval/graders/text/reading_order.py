"""Which box of text a line may go on in: to the right in its row, or in the row below. Pure geometry.

An image has no one reading order: two columns, a price far to the right of its dish, a slogan wrapped in a
narrow box. So a box has several boxes that may follow it, instead of one place in a list.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from visioneval.graders.text.copy_match import Corners, Reading

_SAME_ROW = 0.5
"""Boxes of a row share this part of the lower one's height."""
_WORD_GAP = 1.5
"""Boxes this many heights apart or less belong to one run of words; a gutter is wider."""
_LINE_GAP = 1.5
"""Rows this many heights apart or less belong to one paragraph."""
_MAX_TILT = math.radians(40)


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
        near = gap <= _LINE_GAP * max(self.height, other.height)
        return near and other.top + other.bottom > self.top + self.bottom and not self.beside(other)

    def stacked(self, other: _Box) -> bool:
        return min(self.right, other.right) > max(self.left, other.left)

    def around(self, other: _Box) -> _Box:
        return _Box(
            min(self.left, other.left),
            min(self.top, other.top),
            max(self.right, other.right),
            max(self.bottom, other.bottom),
        )


def follows(readings: Sequence[Reading]) -> tuple[tuple[int, ...], ...]:
    """For each reading, the readings that a line may go on in after it, the likeliest first.

    Readings without corners are taken in the order in which they are given.
    """
    corners = [reading.corners for reading in readings if reading.corners is not None]
    if len(corners) < len(readings):
        return tuple((index + 1,) if index + 1 < len(readings) else () for index in range(len(readings)))
    boxes = _upright(corners)
    right = [_next_in_row(boxes, index) for index in range(len(boxes))]
    runs = _runs(boxes, right)
    return tuple(_after(boxes, right, runs, index) for index in range(len(boxes)))


def _upright(corners: Sequence[Corners]) -> list[_Box]:
    """The boxes after the tilt that most of the text has is turned back."""
    tilts = [math.atan2(b[1] - a[1], b[0] - a[0]) for a, b, _, _ in corners]
    level = [tilt for tilt in tilts if abs(tilt) < _MAX_TILT]
    tilt = median(level) if level else 0.0
    cos, sin = math.cos(tilt), math.sin(tilt)
    boxes = []
    for quad in corners:
        xs = [x * cos + y * sin for x, y in quad]
        ys = [y * cos - x * sin for x, y in quad]
        boxes.append(_Box(min(xs), min(ys), max(xs), max(ys)))
    return boxes


def _next_in_row(boxes: Sequence[_Box], index: int) -> int | None:
    here = boxes[index]
    later = [
        other
        for other, box in enumerate(boxes)
        if other != index and box.left + box.right > here.left + here.right and here.beside(box)
    ]
    return min(later, key=lambda other: (boxes[other].left + boxes[other].right, other), default=None)


def _runs(boxes: Sequence[_Box], right: Sequence[int | None]) -> list[list[int]]:
    """Boxes of a row that a word space parts, from left to right."""
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


def _after(
    boxes: Sequence[_Box], right: Sequence[int | None], runs: Sequence[Sequence[int]], index: int
) -> tuple[int, ...]:
    found: list[int] = [] if right[index] is None else [right[index] or 0]
    found.extend(_below(boxes, boxes[index], [[other] for other in range(len(boxes)) if other != index]))
    for run in runs:
        if run[-1] == index:
            whole = boxes[index]
            for other in run:
                whole = whole.around(boxes[other])
            found.extend(_below(boxes, whole, [other for other in runs if other is not run]))
    return tuple(dict.fromkeys(found))


def _below(boxes: Sequence[_Box], here: _Box, runs: Sequence[Sequence[int]]) -> list[int]:
    """The first boxes of the runs in the nearest row below that lies under ``here``."""
    under: list[tuple[_Box, int]] = []
    for run in runs:
        whole = boxes[run[0]]
        for other in run:
            whole = whole.around(boxes[other])
        if here.above(whole) and here.stacked(whole):
            under.append((whole, run[0]))
    if not under:
        return []
    top = min(under, key=lambda item: item[0].top)[0]
    return [first for box, first in under if box is top or box.beside(top)]
