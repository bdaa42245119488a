"""The grader of near-duplicates between cases: its options and checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from visioneval.suite.case import TestCase
from visioneval.suite.entries.graders import CASES, BaseGrader, GraderKind, Share, is_video
from visioneval.types import Metric

if TYPE_CHECKING:
    from visioneval.suite.checks.rules import Problems
    from visioneval.suite.model import Suite


class DuplicatesGrader(BaseGrader):
    """Which outputs of different cases on one model run are nearly the same image, found after all cells are done."""

    kind: ClassVar[GraderKind] = CASES

    type: Literal["duplicates"]
    max_distance: Annotated[float, Field(ge=0, le=2)] = Field(
        default=0.15, description="The largest distance, 1 - SSIM, of two near-duplicates: 0 is identical."
    )
    max_delta_e: Annotated[float, Field(ge=0, le=200)] = Field(
        default=5.0, description="Their largest mean color difference (CIEDE2000): about 2 is visible side by side."
    )
    max_worst_window: Share = Field(
        default=0.06,
        description="The largest share of any window of 24 x 24 pixels that may visibly differ in them: other copy in "
        "the same layout is no duplicate.",
    )

    @property
    def version(self) -> str:
        return "1"

    @property
    def measures_locally(self) -> bool:
        return True

    def is_for(self, case: TestCase) -> bool:
        return super().is_for(case) and not is_video(case)

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        return {}


def problems(suite: Suite, graders: Sequence[tuple[int, DuplicatesGrader]]) -> Problems:
    """Yields graders that are for fewer than two cases whose outputs can be compared."""
    for index, grader in graders:
        origins = [case.origins for case in suite.cases if grader.is_for(case)]
        if not _any_apart(origins):
            message = (
                "no two cases of this grader can be compared: both must generate an image, and share no input image"
            )
            yield ("graders", index), message


def _any_apart(origins: Sequence[frozenset[str]]) -> bool:
    """Whether any two have nothing in common."""
    return any(first.isdisjoint(second) for at, first in enumerate(origins) for second in origins[at + 1 :])
