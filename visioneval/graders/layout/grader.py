"""Layout: whether required lines stand where the case says, above, beside, inside or larger than others.

Metrics: ``<key>``, whether all relations hold, and ``<key>.share``, the share that holds. A relation is undecided where
a line was not read, and close to a boundary; then both are ``None``, unless another relation fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from visioneval.graders.base import Grade, GradingContext, all_hold
from visioneval.graders.layout import LayoutGrader
from visioneval.graders.layout.ink import Ink, measured_ink
from visioneval.graders.layout.places import INK_SIZE_ERROR, FoundLines, Place, find_lines
from visioneval.graders.layout.relations import Finding, Places, find
from visioneval.graders.pixels.difference import SCORE_DIGITS
from visioneval.graders.text import ocr
from visioneval.media.images import size_of
from visioneval.suite.case import ExpectText
from visioneval.suite.relations import Region


class Layout:
    """The grader."""

    def __init__(self, config: LayoutGrader) -> None:
        self._config = config

    async def grade(self, context: GradingContext) -> Grade:
        """Reads the lines, and looks at each relation. Raises ``GraderError``."""
        key, expect = self._config.key, context.case.expect
        if expect.layout is None:
            return Grade(scores={})
        lines = await find_lines(context, self._config, expect.text or ExpectText(extra="forbid"))
        named = {name for relation in expect.layout for name in relation.names} - expect.regions.keys()
        inks = await measured_ink(context, {name: lines.places[name] for name in lines.places if name in named})
        size = await asyncio.to_thread(size_of, context.generated.path)
        places = _all_places(lines, inks, expect.regions, size)
        tolerance = self._config.tolerance * min(size)
        findings = [find(relation, places, lines.others, tolerance) for relation in expect.layout]
        return _grade(key, findings, places, lines)


def _all_places(
    lines: FoundLines,
    inks: Mapping[str, tuple[tuple[Ink | None, ...], ...]],
    regions: Mapping[str, Region],
    size: tuple[int, int],
) -> Places:
    """The places of lines, as exact as their ink shows them, and of regions in pixels."""
    places = {
        name: tuple(map(_by_ink, lines.places[name], inks[name])) if name in inks else lines.places[name]
        for name in lines.places
    }
    width, height = size
    for name, (left, top, right, bottom) in regions.items():
        places[name] = (Place(left * width, top * height, right * width, bottom * height),)
    return places


_LEAST_OF_BOX = 0.35
"""The ink of a line fills at least this share of the height of OCR's box, and twice of its width."""


def _by_ink(place: Place, inks: Sequence[Ink | None]) -> Place:
    """The place by the extent of its ink, where that is clear."""
    boxes = [ink.box for ink in inks if ink is not None and ink.box is not None]
    sizes = [ink.size for ink in inks if ink is not None and ink.size is not None]
    if len(boxes) < len(place.corners) or len(sizes) < len(boxes):
        return place
    left, top = min(box[0] for box in boxes), min(box[1] for box in boxes)
    right, bottom = max(box[2] for box in boxes), max(box[3] for box in boxes)
    if bottom - top < _LEAST_OF_BOX * place.height or right - left < 2 * _LEAST_OF_BOX * place.width:
        return place
    exact = replace(
        place, top=top, bottom=bottom, size=sorted(sizes)[len(sizes) // 2], size_error=INK_SIZE_ERROR, edge_error=1.0
    )
    return exact if place.slack else replace(exact, left=left, right=right)


def _grade(key: str, findings: Sequence[Finding], places: Places, lines: FoundLines) -> Grade:
    answers = [finding.holds for finding in findings]
    passed = all_hold(answers)
    share = None if None in answers else round(answers.count(True) / len(answers), SCORE_DIGITS)
    why = [f"{finding.relation.text}: {finding.why}" for finding in findings if finding.holds is False]
    open_ = [
        f"{finding.relation.text}: cannot be decided: {finding.why}" for finding in findings if finding.holds is None
    ]
    count = len(findings)
    without_fault = "the relation holds" if count == 1 else f"all {count} relations hold"
    return Grade(
        scores={key: passed, f"{key}.share": share},
        reasons={key: "; ".join([*why, *open_]) or without_fault},
        details={"lines": list(_lines(places)), "relations": [_relation(finding, places) for finding in findings]},
        error="; ".join(open_) if open_ else None,
        tool_versions={**ocr.tool_versions(), **lines.tool_versions},
    )


def _lines(places: Places) -> Iterator[dict[str, Any]]:
    """The lines with the boxes of OCR, for reports."""
    for name, of_name in places.items():
        for place in of_name:
            for corners in place.corners:
                yield {"text": name, "box": [list(corner) for corner in corners]}


def _relation(finding: Finding, places: Places) -> dict[str, Any]:
    """A relation for the record; with the places of what it is about, unless it holds."""
    recorded: dict[str, Any] = {"relation": finding.relation.text, "holds": finding.holds}
    if finding.why:
        recorded["why"] = finding.why
    parts = [
        {"line": name, "box": [[round(x, 1), round(y, 1)] for x, y in _corners(place)]}
        for name in finding.between
        for place in places[name]
    ]
    return {**recorded, "parts": parts} if parts else recorded


def _corners(place: Place) -> Iterator[tuple[float, float]]:
    """The corners of a place, clockwise from the top left."""
    if len(place.corners) == 1:
        yield from place.corners[0]
    else:
        yield from ((place.left, place.top), (place.right, place.top))
        yield from ((place.right, place.bottom), (place.left, place.bottom))
