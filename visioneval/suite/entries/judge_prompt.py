"""Names shared by the templates and replies of several graders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from visioneval.suite.case import TestCase
from visioneval.types import TaskType

REASON = "reason"
SHOWN: Sequence[Mapping[str, str]] = ({"id": "output", "description": "the image to judge"},)
"""Placeholder for the attached images when a template is checked."""


def media_of(case: TestCase) -> str:
    """``"video"`` or ``"image"``, by the case's task."""
    return "video" if case.task_type is TaskType.VIDEO_GENERATION else "image"
