"""The grader of a file's own properties, and the metrics that it writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from visioneval.suite.case import TestCase
from visioneval.suite.graders import YES, BaseGrader, is_video
from visioneval.types import Metric


class PropertiesGrader(BaseGrader):
    """The file itself: it decodes, is not blank, and is what ``expect`` says."""

    needs: ClassVar[Mapping[str, str]] = {
        ".size": "expect.size or expect.aspect_ratio",
        ".format": "expect.format",
        ".alpha": "expect.alpha",
    }

    type: Literal["properties"]

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        expect = case.expect
        if is_video(case):
            return {}
        found = {self.key: YES}
        if expect.size is not None or expect.aspect_ratio is not None:
            found[f"{self.key}.size"] = YES
        if expect.format is not None:
            found[f"{self.key}.format"] = YES
        if expect.alpha is not None:
            found[f"{self.key}.alpha"] = YES
        found[f"{self.key}.blank"] = Metric(type="bool", better="lower")
        return found
