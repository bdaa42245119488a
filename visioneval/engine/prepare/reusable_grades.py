"""Decides whether the stored grades of a cell are still those of the plan, so that only the rules must be applied."""

from __future__ import annotations

from pathlib import Path

from visioneval.engine.cells.stored_grades import saved_files
from visioneval.expansion.plan import Call
from visioneval.records.files.links import file_inside
from visioneval.records.keys import VERDICT_PARTS, changed_parts
from visioneval.records.model import Record
from visioneval.types import Status


def has_valid_grades(call: Call, generated: Record, graded: Record | None, key: str, folder: Path) -> bool:
    """Whether the scores of ``graded`` are those that the plan's graders would give the output of ``generated``.

    ``key`` is the cell's grading key in the plan, and ``folder`` the run of both records. A cell with a failed grader
    that is or was needed is graded again, and so is a cell that lacks a file of a grader.
    """
    if graded is None or graded.status is not Status.COMPLETED or changed_parts(graded.grade_key, key) - VERDICT_PARTS:
        return False
    if (graded.generation_key, graded.artifact_sha256) != (generated.generation_key, generated.artifact_sha256):
        return False
    needed_failures = (
        grader.is_unmeasured and not (grader.is_optional and grader.key in call.optional_graders)
        for grader in graded.graders
    )
    has_all_graders = {grader.key for grader in graded.graders} == {grader.key for grader in call.graders}
    if not has_all_graders or any(needed_failures):
        return False
    return all(file_inside(folder, name) is not None for name in saved_files(graded))
