"""Decides whether the stored grades of a cell are still those of the plan, so that only the rules must be applied."""

from __future__ import annotations

from visioneval.expansion import Call
from visioneval.records.model import Record
from visioneval.types import Status

VERDICT_PARTS = frozenset({"rules", "optional"})
"""The parts of a grading key that no grader depends on."""


def changed_parts(old: str, new: str) -> frozenset[str]:
    """The names of the parts in which two keys differ."""
    before, after = (dict(word.rpartition(":")[::2] for word in key.split()) for key in (old, new))
    return frozenset(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def describe_parts(parts: frozenset[str]) -> str:
    """The names of changed parts, for a message; empty if there are none."""
    return " and ".join(sorted(parts))


def has_valid_grades(call: Call, generated: Record, graded: Record | None, key: str) -> bool:
    """Whether the scores of ``graded`` are those that the plan's graders would give the output of ``generated``.

    ``key`` is the cell's grading key in the plan. A cell with a failed grader that is or was needed is graded again.
    """
    if graded is None or graded.status is not Status.COMPLETED or changed_parts(graded.grade_key, key) - VERDICT_PARTS:
        return False
    if (graded.generation_key, graded.artifact_sha256) != (generated.generation_key, generated.artifact_sha256):
        return False
    needed_failures = (
        grader.is_unmeasured and not (grader.is_optional and grader.key in call.optional_graders)
        for grader in graded.graders
    )
    return {grader.key for grader in graded.graders} == {grader.key for grader in call.graders} and not any(
        needed_failures
    )
