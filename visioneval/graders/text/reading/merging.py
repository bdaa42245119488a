"""Merges the readings of several looks at one image."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from visioneval.graders.text.copy_match import Corners, Reading

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
        kept += max(by_look.values(), key=_certainty)
    return sorted(kept, key=_top_left)


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


def _certainty(readings: Iterable[Reading]) -> float:
    return sum(len(reading.text) * reading.confidence for reading in readings)


def _top_left(reading: Reading) -> tuple[float, float]:
    left, top, _, _ = bounds(reading)
    return top, left
