"""What may not be intended in a suite, although it can be run."""

from __future__ import annotations

from collections.abc import Iterator

from visioneval.registry import GRADERS, check_of
from visioneval.suite.checks.panels import panel_warnings
from visioneval.suite.checks.prompts import prompt_warnings
from visioneval.suite.entries.graders import BaseGrader
from visioneval.suite.loading.messages import SuiteWarning
from visioneval.suite.model import Suite


def suite_warnings(suite: Suite) -> Iterator[SuiteWarning]:
    """Yields warnings about prompts and panels, and those that belong to one type of grader."""
    yield from (SuiteWarning(loc, message) for loc, message in prompt_warnings(suite))
    yield from (SuiteWarning(loc, message) for loc, message in panel_warnings(suite))
    for name, graders in graders_by_type(suite).items():
        if check := check_of(GRADERS, name, "warnings"):
            yield from (SuiteWarning(loc, message) for loc, message in check(graders))


def graders_by_type(suite: Suite) -> dict[str, list[tuple[int, BaseGrader]]]:
    """The graders of each type, with their indices in the suite."""
    by_type: dict[str, list[tuple[int, BaseGrader]]] = {}
    for index, grader in enumerate(suite.graders):
        by_type.setdefault(grader.type_name, []).append((index, grader))
    return by_type
