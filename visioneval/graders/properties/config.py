"""The configuration of the properties grader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from visioneval.suite.case import TestCase
from visioneval.suite.entries.graders import YES, BaseGrader, is_video
from visioneval.types import Metric, TaskType

_BLANK = Metric(type="bool", better="lower")


class PropertiesGrader(BaseGrader):
    """Properties of the file: it decodes, is not blank, and matches ``expect``."""

    needs: ClassVar[Mapping[str, str]] = {
        ".size": "expect.size or expect.aspect_ratio",
        ".format": "expect.format",
        ".alpha": "expect.alpha or an image to edit",
    }

    type: Literal["properties"]

    @property
    def measures_locally(self) -> bool:
        return True

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        expect = case.expect
        if is_video(case):
            return {}
        metrics = {self.key: YES}
        if expect.size is not None or expect.aspect_ratio is not None:
            metrics[f"{self.key}.size"] = YES
        if expect.format is not None:
            metrics[f"{self.key}.format"] = YES
        if isinstance(expect.alpha, bool) or keeps_alpha(case):
            metrics[f"{self.key}.alpha"] = YES
        metrics[f"{self.key}.blank"] = _BLANK
        return metrics

    def omissible(self, case: TestCase) -> frozenset[str]:
        return frozenset({f"{self.key}.alpha"} if keeps_alpha(case) else ())

    @property
    def version(self) -> str:
        return "3"


def keeps_alpha(case: TestCase) -> bool:
    """Whether the output must have transparent pixels if the image to edit has some."""
    is_edit = case.task_type is TaskType.IMAGE_EDITING and case.edits_image
    return is_edit and case.expect.alpha is None and case.expect.format != "jpeg"
