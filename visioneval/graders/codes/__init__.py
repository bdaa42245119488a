"""The grader of QR codes and bar codes: its options and checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from visioneval.suite.case import TestCase
from visioneval.suite.entries.graders import YES, BaseGrader, is_video, video_problems
from visioneval.types import Metric

if TYPE_CHECKING:
    from visioneval.suite.checks.rules import Problems
    from visioneval.suite.model import Suite

_COUNT = Metric(type="number", range=(0, None), better="none")


class CodesGrader(BaseGrader):
    """The QR codes and bar codes in an image: none, or exactly those of ``expect.codes``."""

    needs: ClassVar[Mapping[str, str]] = dict.fromkeys(("", ".count"), "expect.codes")
    meanings: ClassVar[Mapping[str, str]] = {
        "": "the image has the codes of `expect.codes` and no other; with `none`, it has no code",
        ".count": "the number of codes in the image, with those that cannot be read",
    }

    type: Literal["codes"]

    def extra_for(self, case: TestCase) -> str | None:
        return "codes" if self.metrics(case) else None

    @property
    def measures_locally(self) -> bool:
        return True

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        if case.expect.codes is None or is_video(case):
            return {}
        return {self.key: YES, f"{self.key}.count": _COUNT}

    @property
    def version(self) -> str:
        return "1"


def problems(suite: Suite, graders: Sequence[tuple[int, CodesGrader]]) -> Problems:
    """Yields videos with codes, which are read in images only."""
    return video_problems(suite.cases, graders, lambda case: case.expect.codes is not None, "codes are read")
