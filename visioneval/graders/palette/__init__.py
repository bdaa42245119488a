"""The grader of colors: its options and checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from visioneval.suite.case import TestCase
from visioneval.suite.entries.graders import (
    AMOUNT_DOWN,
    SHARE_DOWN,
    SHARE_UP,
    BaseGrader,
    Share,
    is_video,
    video_problems,
)
from visioneval.types import Metric

if TYPE_CHECKING:
    from visioneval.suite.checks.rules import Problems
    from visioneval.suite.model import Suite

_ALIKE = 12
"""Two colors of which no channel differs by more levels of 255 are hard to distinguish, and so are their shares."""


class PaletteGrader(BaseGrader):
    """How much of an image has the colors of ``expect.palette``."""

    needs: ClassVar[Mapping[str, str]] = dict.fromkeys(("", ".off", ".unused"), "expect.palette")
    meanings: ClassVar[Mapping[str, str]] = {
        "": "the share of the image in a color of the palette, or on a smooth edge between two of them",
        ".off": "the share of the image that the largest connected region in other colors takes",
        ".unused": "the number of colors of the palette that less than `min_used` of the image has",
    }

    type: Literal["palette"]
    tolerance: Annotated[float, Field(gt=0, le=50)] = Field(
        default=12.0,
        description="How far a color may be from one of the palette (CIEDE2000): about 2 is visible side by side.",
    )
    min_used: Share = Field(
        default=0.001, description="The share of the image that a color of the palette must have to count as used."
    )

    @property
    def measures_locally(self) -> bool:
        return True

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        if case.expect.palette is None or is_video(case):
            return {}
        return {self.key: SHARE_UP, f"{self.key}.off": SHARE_DOWN, f"{self.key}.unused": AMOUNT_DOWN}

    @property
    def version(self) -> str:
        return "1"


def problems(suite: Suite, graders: Sequence[tuple[int, PaletteGrader]]) -> Problems:
    """Yields videos with a palette, which is measured in images only."""
    return video_problems(suite.cases, graders, lambda case: case.expect.palette, "a palette is measured")


def warnings(suite: Suite, graders: Sequence[tuple[int, PaletteGrader]]) -> Problems:
    """Yields colors of a palette that are nearly the same: of each pixel, only the nearest one counts as used."""
    for index, case in enumerate(suite.cases):
        if any(grader.is_for(case) for _, grader in graders):
            for (_, first), (at, second) in combinations(enumerate(case.expect.palette or ()), 2):
                if max(abs(a - b) for a, b in zip(levels(first), levels(second), strict=True)) <= _ALIKE:
                    same = "the same" if first == second else "nearly the same"
                    yield (
                        ("cases", index, "expect", "palette", at),
                        f"{second} and {first} are {same} color: remove one",
                    )


def levels(color: str) -> tuple[int, int, int]:
    """Red, green and blue, 0 to 255, of ``#RRGGBB``."""
    red, green, blue = bytes.fromhex(color[1:])
    return red, green, blue
