"""Grades one image. Graders run independently: one that fails writes ``null`` scores and stops no other."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from visioneval.aio import gather_all
from visioneval.engine.calls.asking import judge_asker
from visioneval.engine.calls.cost.meter import Meter
from visioneval.engine.calls.user_code import call_user_code, describe_error
from visioneval.engine.cells.context import RunContext
from visioneval.engine.cells.image_cache import CellImages
from visioneval.engine.cells.saved_images import SavedImages
from visioneval.engine.sanitize import amount, scalar
from visioneval.errors import BudgetError, GraderError, ImageError, ProviderError, StoppedError
from visioneval.expansion import Call
from visioneval.graders.base import Grade, GradingContext
from visioneval.providers.base import CellRef, Question, Reply
from visioneval.records.model import CellError, Fingerprint, GraderRecord
from visioneval.records.questions import PromptQuestions
from visioneval.stopwatch import Stopwatch, measured
from visioneval.suite.entries.graders import BaseGrader
from visioneval.types import Metric, Output, Score


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

    def write(name: str, data: bytes) -> str:
        return context.writer.save(call.case.id, call.run.label, f"{sample}.{name}", data)

    images = SavedImages(write)
    subject = GradingContext(
        case=call.case,
        task_type=call.task_type,
        prompt=call.prompt,
        requested_size=_requested_size(params),
        output=image,
        files=call.files,
        save=images.save,
        variables=context.variables,
        template_folders=context.template_folders,
        show=CellImages(image, context.image_cache).show,
        watching=context.components.watching,
        once=context.once,
        known_questions=context.questions.find,
        keep_questions=partial(_keep_questions, context),
    )
    about = CellRef(call.case.id, call.run.label, sample)
    graded = await gather_all(
        _ask(
            config,
            replace(subject, save=images.save_checked if config.runs_code else images.save),
            about,
            context,
            deadline,
            is_optional=config.key in call.optional_graders,
        )
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


def _judge_asker(about: CellRef, context: RunContext, meter: Meter) -> Callable[[str, Question], Awaitable[Reply]]:
    """The function with which one grader asks judges, and which counts its calls in ``meter``."""

    def ask(name: str, question: Question) -> Awaitable[Reply]:
        if name not in context.components.judges:
            raise GraderError(f"no judge {name!r}: set it on the grader in the suite, 'judge: {name}'")
        judge, config = context.components.judges[name], context.plan.suite.judges[name]
        return judge_asker(context.calls, name, config, judge, about, meter)(question)

    return ask


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
    config: BaseGrader,
    subject: GradingContext,
    about: CellRef,
    context: RunContext,
    deadline: float,
    *,
    is_optional: bool,
) -> tuple[Grade, GraderRecord, str]:
    with measured() as stopwatch:
        return await _ask_measured(config, subject, about, context, deadline, stopwatch, is_optional=is_optional)


async def _ask_measured(
    config: BaseGrader,
    subject: GradingContext,
    about: CellRef,
    context: RunContext,
    deadline: float,
    stopwatch: Stopwatch,
    *,
    is_optional: bool,
) -> tuple[Grade, GraderRecord, str]:
    meter = Meter()
    grader_context = replace(subject, judge=config.judge_name, ask_judge=_judge_asker(about, context, meter))
    kind = "unmeasured"
    limit = asyncio.timeout_at(deadline)
    try:
        async with limit:
            result = await call_user_code(Grade, context.components.graders[config.key].grade, grader_context)
        return (*_checked_grade(config, subject, context, result, stopwatch, meter, is_optional=is_optional), kind)
    except BudgetError as error:
        kind, failed = "budget", Grade(scores={}, error=str(error))
    except StoppedError:
        raise
    except (GraderError, ProviderError, ImageError) as error:
        kind = error.kind if isinstance(error, ProviderError) else kind
        failed = Grade(scores={}, error=str(error) or type(error).__name__)
    except Exception as error:
        if isinstance(error, TimeoutError) and limit.expired():
            timeout_s = context.plan.suite.cell_timeout_s
            kind, failed = "timeout", Grade(scores={}, error=f"exceeded the cell timeout of {timeout_s:g} s")
        else:  # includes a TimeoutError that the grader raised
            context.debug(error)
            kind, failed = "internal", Grade(scores={}, error=_with_await_hint(describe_error(error)))
    return (*_checked_grade(config, subject, context, failed, stopwatch, meter, is_optional=is_optional), kind)


def _checked_grade(
    config: BaseGrader,
    subject: GradingContext,
    context: RunContext,
    result: Grade,
    stopwatch: Stopwatch,
    meter: Meter,
    *,
    is_optional: bool,
) -> tuple[Grade, GraderRecord]:
    """Validates and sanitizes a grader's result, and builds its record. An invalid result may raise any exception."""
    scores, bad = checked_scores(result.scores, config.metrics(subject.case), config.omissible(subject.case))
    if config.runs_code:
        bad += [
            f"{name} is null, and the grader gave no cause in Grade.error"
            for name in _null_scores(result.scores, scores)
        ]
    sanitizer = context.sanitizer
    seconds, waited = stopwatch.read()
    record = GraderRecord(
        key=config.key,
        type=config.type_name,
        error=sanitizer.text(result.error or _with_await_hint("; ".join(bad))) or None,
        is_unmeasured=bool(bad) or None in scores.values(),
        is_optional=is_optional,
        details=sanitizer.mapping(result.details),
        refused=meter.refused if config.judge_name else None,
        usage=sanitizer.counts(meter.usage or result.usage),
        cost_usd=meter.cost_usd if meter.calls else amount(result.cost_usd),
        seconds=round(seconds, 6),
        waited_seconds=round(waited, 6),
        cached=meter.calls > 0 and meter.cached == meter.calls,
        fingerprint=Fingerprint(
            version=config.version,
            judge_model=meter.judge_model if result.judge_model is None else result.judge_model,
            template_sha256=result.template_sha256,
            schema_sha256=result.schema_sha256,
            config_sha256=context.plan.config_sha256[config.key],
            tool_versions=sanitizer.texts(result.tool_versions),
        ),
    )
    tags = [result.failure_tags] if isinstance(result.failure_tags, str) else result.failure_tags
    grade = Grade(scores=scores, reasons=sanitizer.texts(result.reasons), failure_tags=tuple(map(sanitizer.text, tags)))
    return grade, record


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
        if name in optional and name not in reported and reported:
            continue
        value = scalar(reported.get(name))
        wrong = None if value is None else _range_problem(value, metric)
        scores[name] = value if wrong is None else None
        if wrong is not None:
            bad.append(f"{name} is {value!r:.60}, {wrong}")
        elif name not in reported:
            bad.append(f"{name} was not measured")
    return scores, bad


def _range_problem(value: Any, metric: Metric) -> str | None:
    """Why a value does not fit a metric; ``None`` if it fits."""
    if metric.type == "bool":
        return None if isinstance(value, bool) else "not true or false"
    number = amount(value)
    if number is None or not math.isfinite(number):
        return "not a number"
    low, high = metric.range or (-math.inf, None)
    if number < low or (high is not None and number > high):
        return f"outside the range {low:g} to {'any' if high is None else f'{high:g}'}"
    return None
