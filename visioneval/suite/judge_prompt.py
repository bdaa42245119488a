"""Words that the templates and the replies of several graders share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from visioneval.suite.case import TestCase
from visioneval.types import TaskType

REASON = "reason"
SHOWN: Sequence[Mapping[str, str]] = ({"id": "output", "description": "the image to judge"},)
"""Stands for what a judge is shown, where a template is tried out."""


def media_of(case: TestCase) -> str:
    """What a case is about, in a word."""
    return "video" if case.task_type is TaskType.VIDEO_GENERATION else "image"
