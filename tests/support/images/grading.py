"""Grades files with a local grader, without a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from visioneval import CaseFiles, Grade, GradingContext, Output, TestCase
from visioneval.plugins import GRADERS, load_object


def grade(
    config: Any,
    path: Path,
    *,
    requested: str | None = None,
    files: CaseFiles | None = None,
    save: Callable[[str, bytes], str] = lambda name, _: name,
    measure: Any = None,
    **case: Any,
) -> Grade:
    """The grade of an output file by the grader of a config. ``case`` has keys of a case, such as ``expect``."""
    entries = TestCase.model_validate({"id": "c", "prompt": "p", **case})
    mime = "video/mp4" if entries.task_type.value == "video_generation" else "image/png"
    output = Output(path, "0" * 64, mime, 1, 1)
    measured = {} if measure is None else {"measure": measure}
    context = GradingContext(entries, entries.task_type, "p", requested, output, files or CaseFiles(), save, **measured)
    return asyncio.run(load_object(GRADERS[config.type].work)(config).grade(context))
