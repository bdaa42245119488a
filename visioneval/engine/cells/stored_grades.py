"""Reuses the stored grades of a cell, so that changed rules need neither a judge nor a measurement."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from visioneval.engine.cells.context import RunContext
from visioneval.engine.cells.grading import CellGrades
from visioneval.expansion.plan import Call
from visioneval.records.files.links import file_inside
from visioneval.records.model import GraderRecord, Record
from visioneval.records.writer import model_slug


def stored_grades(call: Call, graded: Record, folder: Path, context: RunContext) -> CellGrades | None:
    """The grades of a record in the run ``folder``, with the files that its graders saved.

    ``None`` if such a file is missing: the cell must then be graded again.
    """
    is_of_another_run = folder != context.writer.folder
    if is_of_another_run and not _copy_files(graded, folder, context):
        return None
    records = (
        record.model_copy(
            update={
                "is_optional": record.key in call.optional_graders,
                **(_free(call, record) if is_of_another_run else {}),
            }
        )
        for record in graded.graders
    )
    kinds = tuple(_error_kind(graded, grader.key) for grader in graded.graders)
    written = {name for grader in call.graders for name in grader.metrics(call.case)}
    scores = {name: score for name, score in graded.scores.items() if name in written}
    computed = graded.scores.keys() - written
    reasons = {name: reason for name, reason in graded.reasons.items() if name not in computed}
    return CellGrades(scores, reasons, graded.failure_tags, tuple(records), kinds)


def _error_kind(graded: Record, key: str) -> str:
    """The kind of error of a failed grader, which only the error of the cell names."""
    error = graded.error
    return error.kind if error is not None and error.message.startswith(f"{key}: ") else "unmeasured"


def _free(call: Call, record: GraderRecord) -> dict[str, Any]:
    """The cost and time of a grader that another run paid for."""
    asked_judge = any(grader.key == record.key and grader.judge_names for grader in call.graders)
    free = None if record.cost_usd is None else 0.0
    judges = tuple(
        answer.model_copy(update={"usage": None, "cost_usd": None if answer.cost_usd is None else 0.0, "cached": True})
        for answer in record.judges
    )
    is_cached = record.cached or asked_judge
    times = {"seconds": 0.0, "waited_seconds": 0.0}
    return {"usage": None, "cost_usd": free, **times, "cached": is_cached, "judges": judges}


def saved_files(graded: Record) -> list[str]:
    """The paths in the run of the files that the graders of a cell saved, as their details name them."""
    folder = f"artifacts/{graded.test_id}/{model_slug(graded.model_label)}/"
    pattern = re.compile(f"{re.escape(folder)}{graded.sample_index}\\.[A-Za-z0-9_][A-Za-z0-9_.-]*")
    texts = {text for grader in graded.graders for details in grader.all_details for text in _texts(details)} - {
        graded.artifact_path
    }
    return sorted(text for text in texts if pattern.fullmatch(text))


def _copy_files(graded: Record, folder: Path, context: RunContext) -> bool:
    """Copies the files that the graders saved. Returns whether all of them exist."""
    for relative in saved_files(graded):
        path = file_inside(folder, relative)
        if path is None:
            return False
        name = relative.rpartition("/")[2]
        if not path.is_symlink():
            context.writer.save(graded.test_id, graded.model_label, name, None, source=path)
            continue
        try:
            data = path.read_bytes()
        except OSError:
            return False
        context.writer.save(graded.test_id, graded.model_label, name, data)
    return True


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
