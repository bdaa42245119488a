"""Contrast: whether the letters of each required line stand out from what is behind them, by WCAG 2.

Metrics: ``<key>``, whether each line has the ratio that its size needs, and ``<key>.lowest``, the lowest ratio. A line
that was not read has none, and both are ``None``, unless another line fails. So is a line that is undecided: a little
below its limit, or more where its strokes are so thin that antialiasing mixes all of their color with the background.

What is measured:

- letters: the median color of the cores of strokes, in the place where OCR read the line
- background: the median color of a narrow ring around the letters. So an outline counts, and of a photo what is
  behind the line
- a line: by its worst part, about two heights wide, and by its worst place if it is there several times
- font size: by the height of the ink, about 10 % exact
- text on transparency: on white or on black, where it stands out more. Text on opaque parts counts there
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from visioneval.graders.base import Grade, GradingContext, all_hold
from visioneval.graders.layout import ContrastGrader
from visioneval.graders.layout.ink import Ink, measured_ink
from visioneval.graders.layout.places import Place, find_lines
from visioneval.graders.text import ocr
from visioneval.graders.text.reasons import quoted

_ERROR, _THIN_ERROR = 0.07, 0.3
"""By which share a ratio may be measured too low, and the same where strokes are thin."""
_THIN_PX = 3.0
"""Strokes that are thinner have no core of their own color."""
_SIZE_ERROR = 0.1
"""By which share the font size may be off."""


@dataclass(frozen=True, slots=True)
class LineContrast:
    """The contrast of a line, and whether that is enough. Of several places, that with the lowest ratio counts."""

    line: str
    ink: Ink | None
    place: Place | None
    size: float | None
    required: float
    holds: bool | None

    @property
    def text(self) -> str:
        """What was measured, and what is needed."""
        if self.ink is None:
            return f"{quoted(self.line)} {'was not read' if self.place is None else 'is too small to be measured'}"
        large = f" at {self.size:.0f} px" if self.size is not None else ""
        colors = f"{self.ink.color} on {self.ink.background}"
        return f"{quoted(self.line)} has {self.ink.ratio:.2f}:1 ({colors}{large}), needs {self.required:g}:1"


class Contrast:
    """The grader."""

    def __init__(self, config: ContrastGrader) -> None:
        self._config = config

    async def grade(self, context: GradingContext) -> Grade:
        """Reads the lines, and measures each. Raises ``GraderError``."""
        expected = context.case.expect.text
        if expected is None or not expected.required:
            return Grade(scores={})
        located = await find_lines(context, self._config, expected)
        inks = await measured_ink(context, located.places)
        lines = [_line(self._config, line, places, inks[line]) for line, places in located.places.items()]
        return _grade(self._config, lines, {**ocr.tool_versions(), **located.tool_versions})


def _line(
    config: ContrastGrader, line: str, places: Sequence[Place], inks: Sequence[Sequence[Ink | None]]
) -> LineContrast:
    of_places = [_contrast(config, line, place, parts) for place, parts in zip(places, inks, strict=True)]
    if not of_places:
        return LineContrast(line, None, None, None, config.min_ratio, None)
    return min(of_places, key=lambda contrast: (contrast.ink is not None, contrast.ink.ratio if contrast.ink else 0.0))


def _contrast(config: ContrastGrader, line: str, place: Place, parts: Sequence[Ink | None]) -> LineContrast:
    measured = [ink for ink in parts if ink is not None]
    if len(measured) < len(parts):
        return LineContrast(line, None, place, place.size, config.min_ratio, None)
    worst = min(measured, key=lambda ink: ink.ratio)
    size = median(ink.size or place.size or 0.0 for ink in measured)
    required = config.min_ratio_large if size >= config.large_px else config.min_ratio
    return LineContrast(line, worst, place, size, required, holds(config, worst, size))


def holds(config: ContrastGrader, ink: Ink, size: float) -> bool | None:
    """Whether a ratio is enough for a size, also if the size is a little larger or smaller."""
    error = _THIN_ERROR if ink.stroke < _THIN_PX else _ERROR
    limits = [
        config.min_ratio_large if size * (1 + off) >= config.large_px else config.min_ratio
        for off in (-_SIZE_ERROR, _SIZE_ERROR)
    ]
    if ink.ratio >= max(limits):
        return True
    return False if ink.ratio * (1 + error) < min(limits) else None


def _grade(config: ContrastGrader, lines: Sequence[LineContrast], tool_versions: dict[str, str]) -> Grade:
    key = config.key
    answers = [line.holds for line in lines]
    passed = all_hold(answers)
    ratios = [line.ink.ratio for line in lines if line.ink is not None]
    is_complete = len(ratios) == len(lines)
    failed = [line.text for line in lines if line.holds is False]
    doubts = [f"cannot be decided: {line.text}" for line in lines if line.holds is None]
    lowest = f"the lowest contrast is {min(ratios):.2f}:1" if ratios else "no line was measured"
    return Grade(
        scores={key: passed, f"{key}.lowest": min(ratios) if is_complete else None},
        reasons={key: "; ".join([*failed, *doubts]) or lowest},
        details={"lines": [*_places(lines)], "contrast": [_details(line) for line in lines]},
        error="; ".join(doubts) if doubts else None,
        tool_versions=tool_versions,
    )


def _places(lines: Sequence[LineContrast]) -> Iterator[dict[str, Any]]:
    """The lines with the boxes of OCR, for reports."""
    for line in lines:
        for corners in line.place.corners if line.place is not None else ():
            yield {"text": line.line, "box": [list(corner) for corner in corners]}


def _details(line: LineContrast) -> dict[str, Any]:
    """A line for the record; with its place, unless its contrast is enough."""
    recorded: dict[str, Any] = {"line": line.line, "holds": line.holds}
    if line.ink is not None:
        recorded |= {"ratio": line.ink.ratio, "color": line.ink.color, "background": line.ink.background}
        recorded |= {"font_px": line.size, "needs": line.required}
    if line.place is not None and line.holds is not True:
        worst = line.place.corners
        recorded["parts"] = [{"line": line.line, "box": [list(corner) for corner in corners]} for corners in worst]
    return recorded
