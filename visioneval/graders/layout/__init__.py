"""The graders of where lines stand and how they stand out, by the boxes of OCR: their options and checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from visioneval.suite.case import TestCase
from visioneval.suite.entries.graders import SHARE_UP, YES, BaseGrader, Share, is_video, video_problems
from visioneval.types import Metric

if TYPE_CHECKING:
    from visioneval.suite.checks.rules import Problems
    from visioneval.suite.model import Suite

_RATIO = Metric(type="number", range=(1, 21), better="higher")
Ratio = Annotated[float, Field(ge=1, le=21)]
"""A contrast ratio of WCAG 2."""


class LinesGrader(BaseGrader):
    """Options of graders that look at the required lines where OCR read them."""

    min_confidence: Share = Field(
        default=0.5,
        description="Readings of OCR with a lower confidence do not count. With the value of a grader `text`, OCR "
        "reads once for both.",
    )

    @property
    def measures_locally(self) -> bool:
        return True

    def extra_for(self, case: TestCase) -> str | None:
        return "ocr" if self.metrics(case) else None

    @property
    def version(self) -> str:
        return "1"


class LayoutGrader(LinesGrader):
    """Relations between required lines and regions: what stands above, beside, inside or larger than what."""

    needs: ClassVar[Mapping[str, str]] = {"": "expect.layout", ".share": "expect.layout"}
    meanings: ClassVar[Mapping[str, str]] = {
        "": "all relations of `expect.layout` hold",
        ".share": "the share of the relations that hold",
    }

    type: Literal["layout"]
    tolerance: Share = Field(
        default=0.01,
        description="How far the edges of `aligned` lines may be apart, as a share of the image's shorter side.",
    )

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        if is_video(case) or case.expect.layout is None:
            return {}
        return {self.key: YES, f"{self.key}.share": SHARE_UP}


class ContrastGrader(LinesGrader):
    """The contrast between the letters of each required line and what is behind them, by WCAG 2."""

    needs: ClassVar[Mapping[str, str]] = {"": "expect.text.required", ".lowest": "expect.text.required"}
    meanings: ClassVar[Mapping[str, str]] = {
        "": "each required line has the contrast that its size needs",
        ".lowest": "the contrast ratio of the line with the lowest, 1 (invisible) to 21 (black on white)",
    }

    type: Literal["contrast"]
    min_ratio: Ratio = Field(default=4.5, description="The lowest contrast ratio of a line.")
    min_ratio_large: Ratio = Field(default=3.0, description="The same of a line with large letters.")
    large_px: Annotated[float, Field(gt=0, le=10_000)] = Field(
        default=24.0,
        description="The font size in pixels from which letters are large. WCAG says 24 px: write 48 for screens at "
        "twice their size.",
    )

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        if is_video(case) or case.expect.text is None or not case.expect.text.required:
            return {}
        return {self.key: YES, f"{self.key}.lowest": _RATIO}


def problems(suite: Suite, graders: Sequence[tuple[int, LinesGrader]]) -> Problems:
    """Yields graders for cases with videos, which they do not look at."""
    layouts = [(index, grader) for index, grader in graders if isinstance(grader, LayoutGrader)]
    contrasts = [(index, grader) for index, grader in graders if isinstance(grader, ContrastGrader)]
    yield from video_problems(suite.cases, layouts, lambda case: case.expect.layout, "layout is checked")
    yield from video_problems(suite.cases, contrasts, lambda case: case.expect.text, "contrast is measured")
