"""The record of a cell: what its generation gives, stored grades that are still valid, all scores, and the verdict."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from visioneval.expressions import DIGITS, NotForCellError, NoValueError, evaluate
from visioneval.records.model import CellError, GraderRecord, Record
from visioneval.records.untrusted import file_inside
from visioneval.records.writer import model_slug
from visioneval.rules import CellVerdict, judge_cell
from visioneval.running.calls.calls import GenerationResult
from visioneval.running.cells.grading import CellGrades
from visioneval.running.cells.services import Services
from visioneval.running.keys import generation_key, grade_key
from visioneval.running.plan import Call
from visioneval.running.sanitize import usd
from visioneval.suite.metrics import BUILT_IN, Formula
from visioneval.types import Score, Status, Verdict


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
    """The fields of a record that name its cell and describe its case, and of a later turn the image that it edits."""
    base: dict[str, str | None] = {}
    if call.base is not None:  # a probe edits none of its own run
        folder, path = services.writer.folder.absolute(), call.base.path
        inside = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else None
        base = {"base_path": inside, "base_sha256": call.base.sha256}
    return {
        "test_id": call.case.id,
        "model_label": call.run.label,
        "task_type": call.task_type,
        "prompt": services.sanitizer.text(call.prompt),
        "graded_prompt": None if call.graded_prompt == call.prompt else services.sanitizer.text(call.graded_prompt),
        "tags": call.case.tags,
        "flaky": call.case.flaky,
        "metadata": services.sanitizer.mapping(call.case.metadata),
        **base,
    }


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
    failed = graded.error and graded.error.message.partition(": ")[0]  # which only the error of the cell names
    kinds = tuple(
        graded.error.kind if graded.error and grader.key == failed else "unmeasured" for grader in graded.graders
    )
    written = {name for grader in call.grading.graders for name in grader.metrics(call.case)}
    scores = {name: score for name, score in graded.scores.items() if name in written}
    computed = graded.scores.keys() - written
    reasons = {name: reason for name, reason in graded.reasons.items() if name not in computed}
    return CellGrades(scores, reasons, graded.failure_tags, tuple(records), kinds)


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


@dataclass(frozen=True, slots=True)
class CellScores:
    """All scores of a cell. ``reasons`` names what a computed metric was computed from, or why it is null.

    ``optional`` are the metrics that may be null, and ``unmeasured`` the other computed metrics that are null.
    """

    scores: dict[str, Score]
    reasons: dict[str, str]
    optional: frozenset[str]
    unmeasured: tuple[str, ...]


def cell_scores(call: Call, grades: CellGrades, built_in: Mapping[str, Score]) -> CellScores:
    """Adds the built-in and computed metrics of a cell to its graders' scores.

    ``built_in`` are those that are known of the generation.
    """
    scores = grades.scores | {name: built_in[name] for name in call.grading.metrics.built_in if name in built_in}
    graders = (grader for grader in call.grading.graders if grader.key in call.grading.optional_graders)
    optional = {metric for grader in graders for metric in grader.metrics(call.case)} | call.grading.optional_metrics
    reasons: dict[str, str] = {}
    unmeasured: list[str] = []
    for formula in call.grading.metrics.formulas:
        try:
            scores[formula.name] = _value(formula, scores)
            read = {name: score for name in formula.reads if (score := scores.get(name)) is not None}
            shown = {
                name: ("no", "yes")[score] if isinstance(score, bool) else f"{score:.6g}"
                for name, score in read.items()
            }
            reasons[formula.name] = ", ".join(f"{name} {text}" for name, text in shown.items())
        except NotForCellError:
            continue
        except NoValueError as error:
            scores[formula.name], reasons[formula.name] = None, str(error)
            if error.sources and error.sources <= optional:
                optional.add(formula.name)
            elif formula.name not in optional:
                unmeasured.append(formula.name)
    return CellScores(scores, reasons, frozenset(optional), tuple(unmeasured))


def _value(formula: Formula, scores: Mapping[str, Score]) -> Score:
    """The value of a computed metric, of its type. Raises what ``evaluate`` raises."""
    value = evaluate(formula.tree, scores)
    if formula.metric.type == "bool":
        return bool(value)
    number = round(float(value), DIGITS) + 0.0  # without a negative zero
    low, high = formula.metric.range or (None, None)
    if (low is not None and number < low) or (high is not None and number > high):
        raise NoValueError(f"{number:g} is outside the range {low:g} to {'any' if high is None else f'{high:g}'}")
    return number


def built_in_scores(call: Call, generation: Mapping[str, Any], scores: Mapping[str, Score]) -> dict[str, Score]:
    """The built-in metrics of the generation of a cell's output, from the fields of its record.

    Empty if nothing was generated, as the output comes from a cache or a file. If it was graded again, only ``scores``,
    those of the record of its generation, may still contain them.
    """
    if call.run.config.reads_outputs:
        return {}
    if generation["attempts"] == 0:
        return {name: scores[name] for name in BUILT_IN if name in scores}
    free = {"cost_usd": 0.0} if call.run.config.is_free and generation["cost_usd"] is None else {}
    return {name: generation[name] for name in BUILT_IN} | free


def judged_record(
    call: Call, graded: CellGrades, cell: CellScores, make_record: partial[Record], *, is_ungraded: bool
) -> Record:
    """Applies the rules to all scores of a cell and completes its record."""
    verdict = judge_cell(
        call.grading.rules,
        cell.scores,
        failed_graders=(*graded.failed_graders, *cell.unmeasured),
        optional_metrics=cell.optional,
        is_ungraded=is_ungraded,
    )
    return make_record(
        verdict=verdict.verdict,
        failed_rules=verdict.failed,
        warned_rules=verdict.warned,
        skipped_rules=verdict.skipped,
        scores=cell.scores,
        unmeasured_metrics=cell.unmeasured,
        reasons=graded.reasons | cell.reasons,
        failure_tags=graded.failure_tags,
        graders=graded.graders,
        error=_cell_error(graded, cell, verdict, call),
    )


def _cell_error(graded: CellGrades, cell: CellScores, verdict: CellVerdict, call: Call) -> CellError | None:
    """Why the cell has no verdict, or else the error of its first failed grader, and how to do without its scores."""
    if graded.error is not None:
        key = graded.error.message.partition(":")[0]
        metrics = next((grader.metrics(call.case) for grader in call.grading.graders if grader.key == key), {})
        formulas = call.grading.metrics.formulas
        read = {rule.metric for rule, _ in call.grading.rules}.union(*(formula.reads for formula in formulas))
        if key not in graded.failed_graders or not read.isdisjoint(metrics):
            return graded.error
        hint = f"no rule reads its scores: with 'optional: true' on the grader {key!r}, a cell can pass without them"
        return graded.error.model_copy(update={"message": f"{graded.error.message} ({hint})"})
    if verdict.verdict is not Verdict.ERROR:
        return None
    nulls = (f"{name} ({cell.reasons[name]})" for name in cell.unmeasured)
    if missing := (*verdict.unmeasured, *graded.failed_graders, *nulls):
        return CellError(stage="verdict", kind="unmeasured", message=f"not measured: {', '.join(missing)}")
    message = f"none of the {len(call.grading.rules)} rules of this cell could be evaluated"
    return CellError(stage="verdict", kind="no_rule", message=message)
