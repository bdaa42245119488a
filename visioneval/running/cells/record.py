"""The record of a cell: what its generation gives, and the stored grades that are still valid."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from visioneval.records.model import CellError, GraderRecord, Record
from visioneval.records.untrusted import file_inside
from visioneval.records.writer import model_slug
from visioneval.running.calls.calls import GenerationResult
from visioneval.running.cells.grading import CellGrades
from visioneval.running.cells.services import Services
from visioneval.running.keys import generation_key, grade_key
from visioneval.running.plan import Call
from visioneval.running.sanitize import usd
from visioneval.types import Status, Verdict


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """The result and duration of a call; ``error`` if nothing was generated."""

    generated: GenerationResult
    error: CellError | None = None
    seconds: float = 0.0
    waited_seconds: float = 0.0
    share: int = 1
    """The number of cells that share its cost and time."""
    reply_path: str | None = None
    """The raw answer in the run's folder, if something of it was not used."""


def error_record(make_record: partial[Record], kind: str, message: str) -> Record:
    """The record of a cell whose generation failed."""
    error = CellError(stage="generate", kind=kind, message=message)
    return make_record(status=Status.ERROR, verdict=Verdict.ERROR, error=error)


def record_maker(call: Call, sample: int, outcome: CallOutcome, services: Services) -> partial[Record]:
    """A factory for the cell's record, with all fields of its generation."""
    share = outcome.share
    cost = usd(outcome.generated.cost_usd)
    sanitizer = services.sanitizer
    return partial(
        Record,
        **case_fields(call, services),
        sent_prompt=None if call.sent_prompt == call.prompt else sanitizer.text(call.sent_prompt),
        run_id=services.writer.info.run_id,
        sample_index=sample,
        provider=call.run.provider,
        run_params=sanitizer.mapping(outcome.generated.run_params or call.params),
        usage=sanitizer.counts(outcome.generated.usage),
        cost_usd=None if cost is None else cost / share,
        seconds=round(outcome.seconds / share, 6),
        waited_seconds=round(outcome.waited_seconds / share, 6),
        attempts=outcome.generated.attempts,
        cached=outcome.generated.stored_at is not None,
        reply_path=outcome.reply_path if has_reply(call, sample, outcome.generated) else None,
        reply_note=None if outcome.generated.problem is None else sanitizer.text(outcome.generated.problem),
        generation_key=generation_key(call, sample, services.hash_of),
        grade_key=grade_key(call, services.hash_of),
    )


def has_reply(call: Call, sample: int, generated: GenerationResult) -> bool:
    """Whether a cell has the raw answer: those without an output, or all if only more was sent than asked for."""
    index, count = call.samples.index(sample), len(generated.outputs)
    if index < count and generated.outputs[index].fault is not None:
        return generated.outputs[index].content is None  # else that is stored
    return generated.problem is not None and (index >= count or count >= len(call.samples))


def case_fields(call: Call, services: Services) -> dict[str, Any]:
    """The fields of a record that name its cell and describe its case."""
    return {
        "test_id": call.case.id,
        "model_label": call.run.label,
        "task_type": call.task_type,
        "prompt": services.sanitizer.text(call.prompt),
        "graded_prompt": None if call.graded_prompt == call.prompt else services.sanitizer.text(call.graded_prompt),
        "tags": call.case.tags,
        "flaky": call.case.flaky,
        "metadata": services.sanitizer.mapping(call.case.metadata),
        **_base_fields(call, services),
    }


def _base_fields(call: Call, services: Services) -> dict[str, str | None]:
    """The fields of a later turn that name the image it edits. A probe edits none of its own run."""
    if call.base is None:
        return {}
    folder, path = services.writer.folder.absolute(), call.base.path
    inside = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else None
    return {"base_path": inside, "base_sha256": call.base.sha256}


def prompt_of_output(call: Call, record: Record, services: Services) -> str | None:
    """What the model was sent for an existing output of a case, if that is not the case's prompt."""
    is_generated_for_case = record.test_id == call.case.id and not call.run.config.reads_outputs
    sent = record.prompt if record.sent_prompt is None else record.sent_prompt
    return sent if is_generated_for_case and sent != services.sanitizer.text(call.prompt) else None


def refused_record(call: Call, message: str, make_record: partial[Record]) -> Record:
    """The record of a cell whose generation was refused, which a case may expect."""
    expected = call.case.expect.refusal
    return make_record(
        status=Status.REFUSED,
        verdict=Verdict.PASS if expected else Verdict.FAIL,
        failure_tags=() if expected else ("refused",),
        reasons={"refused": message},
        skipped_rules=rule_texts(call),
    )


def rule_texts(call: Call) -> tuple[str, ...]:
    """The rules of a call, as the suite wrote them."""
    return tuple(rule.text for rule, _ in call.grading.rules)


def stored_grades(call: Call, graded: Record, folder: Path, services: Services) -> CellGrades | None:
    """The grades of a record in the run ``folder``, with the files that its graders saved.

    ``None`` if such a file is missing: the cell must then be graded again.
    """
    is_of_another_run = folder != services.writer.folder
    if is_of_another_run and not _copy_files(graded, folder, services):
        return None
    records = (
        record.model_copy(
            update={
                "is_optional": record.key in call.grading.optional_graders,
                **(_free(call, record) if is_of_another_run else {}),
            }
        )
        for record in graded.graders
    )
    kinds = tuple(_error_kind(graded, grader.key) for grader in graded.graders)
    written = {name for grader in call.grading.graders for name in grader.metrics(call.case)}
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
    asked_judge = any(grader.key == record.key and grader.judge_names for grader in call.grading.graders)
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


def _copy_files(graded: Record, folder: Path, services: Services) -> bool:
    """Copies the files that the graders saved. Returns whether all of them exist."""
    for relative in saved_files(graded):
        path = file_inside(folder, relative)
        if path is None:
            return False
        name = relative.rpartition("/")[2]
        if not path.is_symlink():
            services.writer.save(graded.test_id, graded.model_label, name, None, source=path)
            continue
        try:
            data = path.read_bytes()
        except OSError:
            return False
        services.writer.save(graded.test_id, graded.model_label, name, data)
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
