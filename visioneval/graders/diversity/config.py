"""The configuration of a diversity grader."""

from __future__ import annotations

from typing import ClassVar, Literal

from visioneval.suite.case import TestCase
from visioneval.suite.entries.graders import SAMPLES, BaseGrader, GraderKind, is_video
from visioneval.types import Metric


class DiversityGrader(BaseGrader):
    """How much the samples of one case on one model run differ, measured after all cells are done."""

    kind: ClassVar[GraderKind] = SAMPLES

    type: Literal["diversity"]

    @property
    def version(self) -> str:
        return "2"

    @property
    def measures_locally(self) -> bool:
        return True

    def is_for(self, case: TestCase) -> bool:
        return super().is_for(case) and not is_video(case)

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        return {}
