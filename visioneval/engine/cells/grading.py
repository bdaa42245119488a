"""Grades one image. Graders run independently: one that fails writes ``null`` scores and stops no other."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from visioneval.aio import gather_all
from visioneval.engine.calls.asking import ask_judge
from visioneval.engine.calls.cost.meter import JudgeMeters, Meter
from visioneval.engine.calls.cost.usage import checked_usage
from visioneval.engine.calls.user_code import call_user_code, describe_error
from visioneval.engine.cells.context import RunContext
from visioneval.engine.cells.image_cache import CellImages
from visioneval.engine.cells.measurements import CachedImage
from visioneval.engine.cells.panel import CheckedGrade, judge_contexts, panel_grade
from visioneval.engine.cells.saved_images import SavedImages
from visioneval.engine.sanitize import amount, scalar, usd
from visioneval.errors import NEVER_ASKED, BudgetError, GraderError, ImageError, ProviderError, StoppedError
from visioneval.expansion.plan import Call
from visioneval.graders.base import Grade, GradingContext
from visioneval.graders.measures import MeasureOnce
from visioneval.providers.base import CellRef, Question, Reply
from visioneval.records.judge_answers import JudgeAnswer
from visioneval.records.model import CellError, Fingerprint, GraderRecord
from visioneval.records.questions import PromptQuestions
from visioneval.stopwatch import Stopwatch
from visioneval.suite.entries.graders import BaseGrader
from visioneval.types import Metric, Output, Score

SubjectOf = Callable[[BaseGrader, JudgeMeters], GradingContext]


@dataclass(frozen=True, slots=True)
class CellGrades:
    """The combined results of all graders of a cell."""

    scores: dict[str, Score]
    reasons: dict[str, str]
    failure_tags: tuple[str, ...]
    graders: tuple[GraderRecord, ...]
    kinds: tuple[str, ...]
    """The kind of error of each grader that failed: a provider's kind, ``internal``, ``unmeasured``."""

    @property
    def error(self) -> CellError | None:
        """The error of the first grader that failed, those first that the cell needs."""
        failed = [(grader, kind) for grader, kind in zip(self.graders, self.kinds, strict=True) if grader.error]
        for grader, kind in sorted(failed, key=lambda entry: entry[0].is_optional):
            return CellError(stage="grade", kind=kind, message=f"{grader.key}: {grader.error}")
        return None

    @property
    def failed_graders(self) -> tuple[str, ...]:
        """The keys of the failed graders that the cell needs."""
        return tuple(grader.key for grader in self.graders if grader.is_unmeasured and not grader.is_optional)


async def grade(
    call: Call,
    sample: int,
    image: Output | None,
    params: Mapping[str, Any],
    context: RunContext,
    deadline: float,
) -> CellGrades:
    """Runs all graders of a cell; ``params`` are those of its generation. Raises only ``StoppedError``."""
    subject_of = _subjects(call, sample, image, params, context)
    graded = await gather_all(
        _ask(config, subject_of, context, deadline, is_optional=config.key in call.optional_graders)
        for config in call.graders
    )
    scores: dict[str, Score] = {}
    reasons: dict[str, str] = {}
    tags: dict[str, None] = {}
    for result, _, _ in graded:
        scores.update(result.scores)
        reasons.update(result.reasons)
        tags.update(dict.fromkeys(result.failure_tags))
    return CellGrades(
        scores, reasons, tuple(tags), tuple(record for _, record, _ in graded), tuple(kind for _, _, kind in graded)
    )


def _subjects(
    call: Call, sample: int, image: Output | None, params: Mapping[str, Any], context: RunContext
) -> SubjectOf:
    """A function that returns the cell as one of its graders sees it."""

    def write(name: str, data: bytes) -> str:
        source = data.file if isinstance(data, CachedImage) else None
        return context.writer.save(call.case.id, call.run.label, f"{sample}.{name}", data, source=source)

    images = SavedImages(write)
    show = CellImages(image, context.image_cache).show
    about = CellRef(call.case.id, call.run.label, sample)
    turn = next(context.turns)
    requested_size, keep_questions = _requested_size(params), partial(_keep_questions, context)

    def subject_of(config: BaseGrader, meters: JudgeMeters) -> GradingContext:
        return GradingContext(
            case=call.case,
            task_type=call.task_type,
            prompt=call.graded_prompt,
            requested_size=requested_size,
            output=image,
            files=call.files,
            save=images.save_checked if config.runs_code else images.save,
            # nothing says what a custom class reads
            measure=partial(context.measurements.directly, turn=turn)
            if config.runs_code
            else _measurer(image, context, meters.total, turn),
            variables=context.variables,
            templates=context.plan.templates,
            judge=next(iter(config.judge_names), None),
            ask_judge=_judge_asker(about, context, meters),
            show=show,
            watching=context.components.watching,
            once=context.once,
            known_questions=context.questions.find,
            keep_questions=keep_questions,
        )

    return subject_of


def _judge_asker(
    about: CellRef, context: RunContext, meters: JudgeMeters
) -> Callable[[str, Question], Awaitable[Reply]]:
    """The function with which one grader asks judges, and which counts its calls in ``meters``."""

    async def ask(name: str, question: Question) -> Reply:
        if name not in context.components.judges:
            raise GraderError(f"no judge {name!r}: set it on the grader in the suite, 'judge: {name}'")
        judge, config = context.components.judges[name], context.plan.suite.judges[name]
        return await ask_judge(context.calls, name, config, judge, about, meters.of(name), question)

    return ask


def _measurer(output: Output | None, context: RunContext, meter: Meter, turn: int) -> MeasureOnce:
    """The function with which one grader measures, and which counts its measurements in ``meter``."""

    def hash_of(path: Path) -> str:
        return output.sha256 if output is not None and str(path) == str(output.path) else context.hash_of(path)

    return partial(context.measurements, hash_of=hash_of, meter=meter, turn=turn)


def _keep_questions(context: RunContext, entry: PromptQuestions) -> None:
    """Stores the questions of a prompt, with secrets removed."""
    data = entry.model_dump(mode="json")
    context.questions.add(
        PromptQuestions.model_validate(context.sanitizer(data)) if context.sanitizer.hides(data) else entry
    )


def _requested_size(params: Mapping[str, Any]) -> str | None:
    size = params.get("size")
    return size if isinstance(size, str) else None


async def _ask(
    config: BaseGrader, subject_of: SubjectOf, context: RunContext, deadline: float, *, is_optional: bool
) -> tuple[Grade, GraderRecord, str]:
    """Runs one grader, once with each of its judges if it has a panel, and builds its record."""
    meters = JudgeMeters()
    subject = subject_of(config, meters)
    judges: tuple[JudgeAnswer, ...] = ()
    with Stopwatch() as stopwatch:
        if not config.has_panel:
            checked = await _attempt(config, subject, context, deadline)
        else:
            contexts = judge_contexts(subject, config.judge_names)
            attempts = await gather_all(_attempt(config, panelist, context, deadline) for panelist in contexts)
            checked = attempts[0]
            if meters.by_judge:  # else no judge was asked, such as after OCR passed
                checked, judges = panel_grade(config, subject.case, attempts, meters, context.sanitizer)
    record = _grader_record(config, context, checked, judges, meters.total, stopwatch, is_optional=is_optional)
    return checked.grade, record, checked.kind


async def _attempt(config: BaseGrader, subject: GradingContext, context: RunContext, deadline: float) -> CheckedGrade:
    """Runs one grader with one judge. A failure becomes a grade without scores.

    A question that was never asked also makes a grade without scores, even if the grader catches the error. An error
    that ends the run is raised again.
    """
    never_asked: list[Exception] = []

    async def ask(judge: str, question: Question) -> Reply:
        try:
            return await subject.ask_judge(judge, question)
        except (StoppedError, ProviderError) as error:
            if isinstance(error, StoppedError) or error.kind in NEVER_ASKED:
                never_asked.append(error)
            raise

    checked = await _checked_attempt(config, replace(subject, ask_judge=ask), context, deadline)
    for error in never_asked:
        if isinstance(error, StoppedError) and not isinstance(error, BudgetError):
            raise error
    if not never_asked:
        return checked
    grade = replace(
        checked.grade,
        scores=dict.fromkeys(checked.grade.scores),
        failure_tags=(),
        error=context.sanitizer.text(str(never_asked[0])),
    )
    return replace(checked, grade=grade, is_unmeasured=True, kind=_kind_of(never_asked[0]))


def _kind_of(error: Exception) -> str:
    """The kind of a cell's error."""
    if isinstance(error, BudgetError):
        return "budget"
    return error.kind if isinstance(error, ProviderError) else "unmeasured"


async def _checked_attempt(
    config: BaseGrader, subject: GradingContext, context: RunContext, deadline: float
) -> CheckedGrade:
    kind = "unmeasured"
    limit = asyncio.timeout_at(deadline)
    try:
        async with limit:
            result = await call_user_code(Grade, context.components.graders[config.key].grade, subject)
        return _checked_grade(config, subject, context, result, kind)
    except (BudgetError, GraderError, ProviderError, ImageError) as error:
        kind, failed = _kind_of(error), Grade(scores={}, error=str(error) or type(error).__name__)
    except StoppedError:
        raise
    except Exception as error:
        if isinstance(error, TimeoutError) and limit.expired():
            timeout_s = context.plan.suite.cell_timeout_s
            kind, failed = (
                "timeout",
                Grade(scores={}, error=f"exceeded the cell timeout of {timeout_s:g} s (cell_timeout_s)"),
            )
        else:  # includes a TimeoutError that the grader raised
            context.debug(error)
            kind, failed = "internal", Grade(scores={}, error=_with_await_hint(describe_error(error)))
    return _checked_grade(config, subject, context, failed, kind)


def _checked_grade(
    config: BaseGrader, subject: GradingContext, context: RunContext, result: Grade, kind: str
) -> CheckedGrade:
    """Validates and sanitizes a grader's result. An invalid result may raise any exception."""
    scores, bad = checked_scores(result.scores, config.metrics(subject.case), config.omissible(subject.case))
    if config.runs_code:
        bad += [
            f"{name} is null, and the grader gave no cause in Grade.error"
            for name in _null_scores(result.scores, scores)
        ]
    sanitizer = context.sanitizer
    plain_details = sanitizer.shallow if config.measures_locally and not config.judge_names else sanitizer.mapping
    tags = [result.failure_tags] if isinstance(result.failure_tags, str) else result.failure_tags
    grade = Grade(
        scores=scores,
        reasons=sanitizer.texts(result.reasons),
        failure_tags=tuple(map(sanitizer.text, tags)),
        details=plain_details(result.details),
        error=sanitizer.text(result.error or _with_await_hint("; ".join(bad))) or None,
        usage=checked_usage(sanitizer.counts(result.usage)),
        cost_usd=usd(result.cost_usd),
    )
    fingerprint = Fingerprint(
        version=config.version,
        judge_model=result.judge_model,
        template_sha256=result.template_sha256,
        schema_sha256=result.schema_sha256,
        config_sha256=context.plan.config_sha256[config.key],
        tool_versions=sanitizer.texts(result.tool_versions),
    )
    return CheckedGrade(grade, fingerprint, bool(bad) or None in scores.values(), kind)


def _grader_record(
    config: BaseGrader,
    context: RunContext,
    checked: CheckedGrade,
    judges: tuple[JudgeAnswer, ...],
    meter: Meter,
    stopwatch: Stopwatch,
    *,
    is_optional: bool,
) -> GraderRecord:
    grade = checked.grade
    seconds, waited = stopwatch.read()
    return GraderRecord(
        key=config.key,
        type=config.type_name,
        error=grade.error,
        is_unmeasured=checked.is_unmeasured,
        is_optional=is_optional and not checked.never_asked,
        never_asked=checked.never_asked,
        details={**grade.details, **({} if judges else meter.details)},
        refused=meter.refused if config.judge_names else None,
        usage=context.sanitizer.counts(meter.usage) or grade.usage,
        cost_usd=meter.cost_usd if meter.calls else grade.cost_usd,
        seconds=round(seconds, 6),
        waited_seconds=round(waited, 6),
        cached=meter.is_from_cache,
        fingerprint=_with_judge_model(checked.fingerprint, meter),
        judges=judges,
    )


def _with_judge_model(fingerprint: Fingerprint, meter: Meter) -> Fingerprint:
    """The fingerprint with the model of the last reply, unless the grader names a model."""
    if fingerprint.judge_model is not None or meter.judge_model is None:
        return fingerprint
    return fingerprint.model_copy(update={"judge_model": meter.judge_model})


def _null_scores(reported: Mapping[str, Any], scores: Mapping[str, Score]) -> list[str]:
    """The declared metrics that a grader reported as ``None``."""
    return [name for name in scores if name in reported and scalar(reported[name]) is None]


def _with_await_hint(message: str) -> str:
    """The message of an error. Adds what to do if the grader used an answer of a judge without waiting for it."""
    if "<coroutine object" not in message and "'coroutine' object" not in message:
        return message
    return f"{message}: write 'async def grade' and 'await context.ask(...)'"


def checked_scores(
    reported: Mapping[str, Any], declared: Mapping[str, Metric], optional: Collection[str] = ()
) -> tuple[dict[str, Score], list[str]]:
    """Keeps the declared metrics that have a valid type and range, and returns the problems of the others.

    A grader that reports any score may omit an ``optional`` metric. Other missing metrics become ``None``.
    """
    scores: dict[str, Score] = {}
    bad = [f"wrote the undeclared metric {name!r}" for name in reported if name not in declared]
    for name, metric in declared.items():
        if name not in reported:
            if name not in optional or not reported:
                scores[name] = None
                bad.append(f"{name} was not measured")
            continue
        value = scalar(reported[name])
        wrong = None if value is None else _range_problem(value, metric)
        scores[name] = value if wrong is None else None
        if wrong is not None:
            bad.append(f"{name} is {value!r:.60}, {wrong}")
    return scores, bad


def _range_problem(value: Any, metric: Metric) -> str | None:
    """Why a value does not fit a metric; ``None`` if it fits."""
    if metric.type == "bool":
        return None if isinstance(value, bool) else "not true or false"
    number = amount(value)
    if number is None:
        return "not a number"
    low, high = metric.range or (-math.inf, None)
    if number < low or (high is not None and number > high):
        return f"outside the range {low:g} to {'any' if high is None else f'{high:g}'}"
    return None
