"""Names shared by the templates and replies of several graders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from visioneval.suite.cases.case import TestCase
from visioneval.types import TaskType

REASON = "reason"
SHOWN: Sequence[Mapping[str, str]] = ({"id": "output", "description": "the image to judge"},)
"""Placeholder for the attached images when a template is checked."""


@dataclass(frozen=True, slots=True)
class JudgeTemplate:
    """A template of a grader, and what it must show so that the judge knows what was asked."""

    name: str
    option: str
    """The grader's option that names it."""
    must_show: tuple[str, ...]
    """Variables: a template that shows none of them is an error, and one that leaves some out gets a warning."""
    instead: tuple[str, ...] = ()
    """Variables of which one is enough, with a warning."""
    hidden: tuple[str, ...] = ()
    """Variables that this grader withholds."""
    show: tuple[str, ...] = ()
    """What the grader's option ``show`` lists, if it has one."""


def media_of(case: TestCase) -> str:
    """``"video"`` or ``"image"``, by the case's task."""
    return "video" if case.task_type is TaskType.VIDEO_GENERATION else "image"
