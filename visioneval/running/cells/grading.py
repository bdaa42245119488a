"""Grades one output. Graders run independently: one that fails writes ``null`` scores and stops no other."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from visioneval.errors import NEVER_ASKED, BudgetError, GraderError, ProviderError, StoppedError
from visioneval.graders.base import Grade, GradingContext, RunOnce, run_directly
from visioneval.graders.measures import Measure
from visioneval.graders.panel import combine_panel
from visioneval.providers.base import CellRef, Question, Reply
from visioneval.records.model import CellError, Fingerprint, GraderRecord, JudgeAnswer
from visioneval.records.questions import PromptQuestions
from visioneval.running.calls.attempts import call_user_code
from visioneval.running.calls.judges import JudgeMeters, Meter
from visioneval.running.calls.prices import checked_usage
from visioneval.running.cells.services import CellImages, SavedImages, Services, SingleFlight
from visioneval.running.plan import Call
from visioneval.running.sanitize import Sanitizer, amount, scalar, usd
from visioneval.suite.case import TestCase
from visioneval.suite.entries.graders import BaseGrader
from visioneval.threads import Stopwatch, gather_all
from visioneval.types import Metric, Output, Score, declared_word

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GradedOutput:
    """The output of a cell, ``None`` if it has only recorded answers. ``params`` are those of its generation.

    ``deadline`` is in the time of the event loop.
    """

    call: Call
    sample: int
    output: Output | None
    params: Mapping[str, Any]
    deadline: float


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


async def grade(graded: GradedOutput, services: Services) -> CellGrades:
    """Runs all graders of a cell. Raises only ``StoppedError``."""
    files = SavedImages(services.writer, graded.call, graded.sample)
    turn = next(services.turns)
    results = await gather_all(
        _run_grader(config, graded, services, files, turn) for config in graded.call.grading.graders
    )
    scores: dict[str, Score] = {}
    reasons: dict[str, str] = {}
    tags: dict[str, None] = {}
    for checked, _ in results:
        scores.update(checked.grade.scores)
        reasons.update(checked.grade.reasons)
        tags.update(dict.fromkeys(checked.grade.failure_tags))
    records, kinds = tuple(record for _, record in results), tuple(checked.kind for checked, _ in results)
    return CellGrades(scores, reasons, tuple(tags), records, kinds)


async def _run_grader(
    config: BaseGrader, graded: GradedOutput, services: Services, files: SavedImages, turn: int
) -> tuple[CheckedGrade, GraderRecord]:
    """Runs one grader, once with each of its judges if it has a panel, and builds its record."""
    meters, answers = JudgeMeters(), tuple[JudgeAnswer, ...]()
    names = config.judge_names if config.has_panel else (next(iter(config.judge_names), None),)
    shared = SingleFlight() if config.has_panel else run_directly
    with Stopwatch() as stopwatch:
        checked, *others = await gather_all(
            GraderAttempt(config, graded, services, files, turn, meters, name, shared).run() for name in names
        )
        if config.has_panel and meters.by_judge:  # else no judge was asked, such as after OCR passed
            checked, answers = panel_grade(config, graded.call.case, [checked, *others], meters, services.sanitizer)
    result, meter, fingerprint = checked.grade, meters.total, checked.fingerprint
    if fingerprint.judge_model is None and meter.judge_model is not None:  # else the grader names a model
        fingerprint = fingerprint.model_copy(update={"judge_model": meter.judge_model})
    judges = [services.plan.suite.judges[name] for name in meters.by_judge]  # custom ones have a version
    if versions := {judge.provider_name: services.sanitizer.text(judge.version) for judge in judges if judge.version}:
        tools = {**versions, **fingerprint.tool_versions}
        fingerprint = fingerprint.model_copy(update={"tool_versions": tools})
    seconds, waited = stopwatch.read()
    record = GraderRecord(
        key=config.key,
        type=config.type_name,
        error=result.error,
        is_unmeasured=checked.is_unmeasured,
        is_optional=config.key in graded.call.grading.optional_graders and not checked.never_asked,
        never_asked=checked.never_asked,
        details={**result.details, **({} if answers else meter.details)},
        refused=meter.refused if config.judge_names else None,
        usage=services.sanitizer.counts(meter.usage) or result.usage,
        cost_usd=meter.cost_usd if meter.calls else result.cost_usd,
        seconds=round(seconds, 6),
        waited_seconds=round(waited, 6),
        cached=meter.is_from_cache,
        fingerprint=fingerprint,
        judges=answers,
    )
    return checked, record


@dataclass(frozen=True, slots=True)
class GraderAttempt:
    """One grader on one cell, with one of its judges. Its methods are what the grader's context offers."""

    config: BaseGrader
    graded: GradedOutput
    services: Services
    files: SavedImages
    turn: int
    meters: JudgeMeters
    judge: str | None
    once_per_panel: RunOnce
    never_asked: list[Exception] = field(default_factory=list)
    """Why a judge was not asked a question at all."""

    async def run(self) -> CheckedGrade:
        """The checked grade. A failure becomes a grade without scores.

        A question that was never asked also makes a grade without scores, even if the grader catches the error. An
        error that ends the run is raised again.
        """
        checked = await self._checked_run()
        for error in self.never_asked:
            if isinstance(error, StoppedError) and not isinstance(error, BudgetError):
                raise error
        if not self.never_asked:
            return checked
        kind, message = self.services.failure_of(self.never_asked[0])
        scores = dict.fromkeys(checked.grade.scores)
        without_scores = replace(checked.grade, scores=scores, failure_tags=(), error=message)
        return replace(checked, grade=without_scores, is_unmeasured=True, kind=kind)

    async def _checked_run(self) -> CheckedGrade:
        limit = asyncio.timeout_at(self.graded.deadline)
        grader = self.services.components.graders[self.config.key]
        try:
            async with limit:
                result = await call_user_code(Grade, grader.grade, self._context())
            return self._checked(result, "unmeasured")
        except Exception as error:
            if isinstance(error, StoppedError) and not isinstance(error, BudgetError):
                raise
            kind, message = self.services.failure_of(error, limit)
            failed = Grade(scores={}, error=_with_await_hint(message) if kind == "internal" else message)
        return self._checked(failed, kind)

    def _context(self) -> GradingContext:
        """The cell as the grader sees it."""
        services, call, size = self.services, self.graded.call, self.graded.params.get("size")
        return GradingContext(
            case=call.case,
            task_type=call.task_type,
            prompt=call.graded_prompt,
            requested_size=size if isinstance(size, str) else None,
            output=self.graded.output,
            files=call.files,
            save=self.save,
            measure=self.measure,
            variables=services.plan.suite.vars,
            templates=services.plan.templates,
            judge=self.judge,
            ask_judge=self.ask,
            show=CellImages(self.graded.output, services.image_cache).show,
            watching=services.components.watching,
            once=services.once,
            once_per_panel=self.once_per_panel,
            known_questions=services.questions.find,
            keep_questions=self.keep_questions,
        )

    def save(self, name: str, data: bytes) -> str:
        """Stores an image. Names have the judge's in a panel, whose judges all save the same names."""
        if self.config.has_panel and isinstance(name, str) and "." in name:
            stem, _, extension = name.rpartition(".")
            name = f"{stem}.{self.judge}.{extension}"
        return self.files.save_checked(name, data) if self.config.runs_code else self.files.save(name, data)

    async def measure(self, measure: Measure[T]) -> T:
        """Makes a local measurement, or reads it from the cache. Those of the cell that began first come first."""
        measurements = self.services.measurements
        if self.config.runs_code:  # nothing says what a custom class reads
            return await measurements.directly(measure, turn=self.turn)
        return await measurements(measure, hash_of=self._hash_of, meter=self.meters.total, turn=self.turn)

    def _hash_of(self, path: Path) -> str:
        output = self.graded.output
        return output.sha256 if output is not None and str(path) == str(output.path) else self.services.hash_of(path)

    async def ask(self, judge: str, question: Question) -> Reply:
        """Asks a judge of the suite by its key."""
        if judge not in self.services.components.judges:
            raise GraderError(f"no judge {judge!r}: set it on the grader in the suite, 'judge: {judge}'")
        call = self.graded.call
        about = CellRef(call.case.id, call.run.label, self.graded.sample)
        try:
            return await self.services.judges.ask(judge, question, about, self.meters.of(judge))
        except (StoppedError, ProviderError) as error:
            if isinstance(error, StoppedError) or error.kind in NEVER_ASKED:
                self.never_asked.append(error)
            raise

    def keep_questions(self, entry: PromptQuestions) -> None:
        """Stores the questions of a prompt, with secrets removed."""
        data, sanitizer = entry.model_dump(mode="json"), self.services.sanitizer
        self.services.questions.add(PromptQuestions.model_validate(sanitizer(data)) if sanitizer.hides(data) else entry)

    def _checked(self, result: Grade, kind: str) -> CheckedGrade:
        """Validates and sanitizes the result. An invalid one may raise any exception."""
        config, case, sanitizer = self.config, self.graded.call.case, self.services.sanitizer
        scores, bad = checked_scores(result.scores, config.metrics(case), config.omissible(case))
        if config.runs_code:
            nulls = (name for name in scores if name in result.scores and scalar(result.scores[name]) is None)
            bad += [f"{name} is null, and the grader gave no cause in Grade.error" for name in nulls]
        tags = [result.failure_tags] if isinstance(result.failure_tags, str) else result.failure_tags
        grade = Grade(
            scores=scores,
            reasons=sanitizer.texts(result.reasons),
            failure_tags=tuple(map(sanitizer.text, tags)),
            details=sanitizer.mapping(result.details),
            error=sanitizer.text(result.error or _with_await_hint("; ".join(bad))) or None,
            usage=checked_usage(sanitizer.counts(result.usage)),
            cost_usd=usd(result.cost_usd),
        )
        fingerprint = Fingerprint(
            version=config.version,
            judge_model=result.judge_model,
            template_sha256=result.template_sha256,
            schema_sha256=result.schema_sha256,
            config_sha256=self.services.plan.config_sha256[config.key],
            tool_versions=sanitizer.texts(result.tool_versions),
        )
        return CheckedGrade(grade, fingerprint, bool(bad) or None in scores.values(), kind)


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
        value = declared_word(scalar(reported[name]), metric.choices)
        wrong = None if value is None else _range_problem(value, metric)
        scores[name] = value if wrong is None else None
        if wrong is not None:
            bad.append(f"{name} is {value!r:.60}, {wrong}")
    return scores, bad


def _range_problem(value: Any, metric: Metric) -> str | None:
    """Why a value does not fit a metric; ``None`` if it fits."""
    if metric.type == "bool":
        return None if isinstance(value, bool) else "not true or false"
    if metric.type == "one_of":
        return None if isinstance(value, str) and value in metric.choices else f"not one of {', '.join(metric.choices)}"
    number = amount(value)
    if number is None:
        return "not a number"
    low, high = metric.range or (-math.inf, None)
    if number < low or (high is not None and number > high):
        return f"outside the range {low:g} to {'any' if high is None else f'{high:g}'}"
    return None


@dataclass(frozen=True, slots=True)
class CheckedGrade:
    """A validated and sanitized grade. ``kind`` is the kind of its error, if it has one."""

    grade: Grade
    fingerprint: Fingerprint
    """Without the model of the last reply, unless the grader names it."""
    is_unmeasured: bool
    kind: str

    @property
    def never_asked(self) -> bool:
        """Whether the judge was not asked a question at all: of a panel, any of its judges."""
        return self.kind in NEVER_ASKED


def panel_grade(
    config: BaseGrader, case: TestCase, checked: Sequence[CheckedGrade], meters: JudgeMeters, sanitizer: Sanitizer
) -> tuple[CheckedGrade, tuple[JudgeAnswer, ...]]:
    """The combined grade of a panel, and the answer of each judge. ``checked`` is in the panel's order."""
    answers = tuple(
        _answer(name, attempt, meters, sanitizer) for name, attempt in zip(config.judge_names, checked, strict=True)
    )
    result = combine_panel(
        answers,
        config.metrics(case),
        required=config.required_judges,
        optional=config.omissible(case),
        combine=config.panel_combine,
    )
    rendered = next((attempt for attempt in checked if attempt.fingerprint.template_sha256), checked[0])
    models = ", ".join(answer.model for answer in answers if answer.model)
    grade = Grade(
        scores=result.scores,
        reasons=result.reasons,
        failure_tags=result.failure_tags,
        details=result.details,
        error=result.error,
    )
    fingerprint = rendered.fingerprint.model_copy(update={"judge_model": models or None})
    never_asked = [attempt.kind for attempt in checked if attempt.never_asked]
    unmeasured = [attempt.kind for attempt in checked if attempt.is_unmeasured]
    is_split = len(checked) - len(unmeasured) >= config.required_judges  # enough have answered
    kind = never_asked[0] if never_asked else "unmeasured" if is_split else unmeasured[0]
    is_unmeasured = None in result.scores.values() or bool(never_asked)
    return CheckedGrade(grade, fingerprint, is_unmeasured, kind), answers


def _answer(name: str, checked: CheckedGrade, meters: JudgeMeters, sanitizer: Sanitizer) -> JudgeAnswer:
    grade, meter = checked.grade, meters.by_judge.get(name, Meter())
    return JudgeAnswer(
        judge=name,
        model=checked.fingerprint.judge_model or meter.judge_model,
        scores=dict(grade.scores),
        reasons=dict(grade.reasons),
        failure_tags=grade.failure_tags,
        error=grade.error,
        never_asked=checked.never_asked,
        details={**grade.details, **meter.details},
        usage=sanitizer.counts(meter.usage or grade.usage),
        cost_usd=meter.cost_usd if meter.calls else grade.cost_usd,
        cached=meter.calls > 0 and meter.cached == meter.calls,
        refused=meter.refused,
    )
