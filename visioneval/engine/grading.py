"""The grading of one image: each grader by itself, so that one that fails leaves ``null`` and stops nobody."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

from visioneval.aio import gather_all
from visioneval.engine.calls.calls import Meter
from visioneval.engine.context import RunContext
from visioneval.engine.image_cache import CellImages
from visioneval.engine.sanitize import Sanitizer, amount, scalar
from visioneval.engine.user_code import described, guarded
from visioneval.errors import AuthError, BudgetError, GraderError, ImageError, ProviderError, StoppedError
from visioneval.graders.base import Grade, GradingContext
from visioneval.plan import Call
from visioneval.providers.base import CellRef, Question, Reply
from visioneval.providers.conversation import converse
from visioneval.records.model import CellError, Fingerprint, GraderRecord
from visioneval.records.questions import PromptQuestions
from visioneval.suite.graders import BaseGrader
from visioneval.types import Metric, Output, Score


@dataclass(frozen=True, slots=True)
class Graded:
    """What all graders of a cell found together."""

    scores: dict[str, Score]
    reasons: dict[str, str]
    failure_tags: tuple[str, ...]
    graders: tuple[GraderRecord, ...]
    kinds: tuple[str, ...]
    """For each grader what kind of error it had, where it had one: a provider's kind, ``internal``, ``unmeasured``."""

    @property
    def error(self) -> CellError | None:
        """The first thing that could not be measured."""
        failed = ((grader, kind) for grader, kind in zip(self.graders, self.kinds, strict=True) if grader.error)
        for grader, kind in failed:
            return CellError(stage="grade", kind=kind, message=f"{grader.key}: {grader.error}")
        return None


async def grade(
    call: Call,
    sample: int,
    image: Output | None,
    params: Mapping[str, Any],
    bench: RunContext,
    deadline: float,
) -> Graded:
    """Everything that the graders of a cell say; ``params`` are those that drew it. Raises ``StoppedError`` alone."""

    def save(name: str, data: bytes) -> str:
        if "." not in name.strip("."):
            raise GraderError(f"{name!r} is not the name of an image: it has no ending")
        return bench.writer.save(call.case.id, call.run.label, f"{sample}.{name}", data)

    subject = GradingContext(
        case=call.case,
        task_type=call.task_type,
        prompt=call.prompt,
        requested_size=_requested_size(params),
        output=image,
        files=call.files,
        save=save,
        rules=tuple(rule.text for rule, warn in call.rules if not warn),
        variables=bench.variables,
        template_folders=bench.template_folders,
        show=CellImages(image, bench.shelf).show,
        watching=bench.tools.watching,
        once=bench.once,
        known_questions=bench.questions.find,
        keep_questions=partial(_keep_questions, bench),
    )
    about = CellRef(call.case.id, call.run.label, sample)
    told = await gather_all(_ask(each, subject, about, bench, deadline) for each in call.graders)
    scores: dict[str, Score] = {}
    reasons: dict[str, str] = {}
    tags: dict[str, None] = {}
    for said, _, _ in told:
        scores.update(said.scores)
        reasons.update(said.reasons)
        tags.update(dict.fromkeys(said.failure_tags))
    return Graded(scores, reasons, tuple(tags), tuple(one for _, one, _ in told), tuple(kind for _, _, kind in told))


def _judges(
    about: CellRef, bench: RunContext, meter: Meter, models: list[str]
) -> Callable[[str, Question], Awaitable[Reply]]:
    """What one grader asks judges with; ``meter`` counts what that used, ``models`` gets who answered."""

    async def ask(name: str, question: Question) -> Reply:
        if name not in bench.tools.judges:
            raise GraderError(f"there is no judge {name!r} to ask: the grader names it in the suite, 'judge: {name}'")
        judge, config = bench.tools.judges[name], bench.plan.suite.judges[name]

        async def once(each: Question) -> Reply:
            return await bench.calls.ask(config, judge, each, about, meter)

        try:
            reply = await converse(once, question)
        except ProviderError as error:
            stop_for_key(error, f"the judge {name!r}", bench.plain)
            raise
        models.append(reply.model)
        return reply

    return ask


def _keep_questions(bench: RunContext, entry: PromptQuestions) -> None:
    """Writes the questions of a prompt down, less the secrets that they repeat."""
    data = entry.model_dump(mode="json")
    bench.questions.add(PromptQuestions.model_validate(bench.plain(data)) if bench.plain.hides(data) else entry)


def stop_for_key(error: ProviderError, who: str, plain: Sanitizer) -> None:
    """Raises ``AuthError`` where a provider refused the key: every other call would be refused too."""
    if error.kind == "auth":
        raise AuthError(f"{who}: the provider refuses the key: {plain.text(error)}") from None


def _requested_size(params: Mapping[str, Any]) -> str | None:
    size = params.get("size")
    return size if isinstance(size, str) else None


async def _ask(
    config: BaseGrader, subject: GradingContext, about: CellRef, bench: RunContext, deadline: float
) -> tuple[Grade, GraderRecord, str]:
    start = perf_counter()
    meter = Meter()
    models: list[str] = []
    own = replace(subject, judge=config.judge_name, ask_judge=_judges(about, bench, meter, models))
    kind = "unmeasured"
    try:
        async with asyncio.timeout_at(deadline):
            said = await guarded(Grade, bench.tools.graders[config.key].grade, own)
        if said.judge_model is None and models:
            said = replace(said, judge_model=models[-1])
        return (*_told(config, subject, bench, said, start, meter), kind)
    except BudgetError as error:
        kind, failed = "budget", Grade(scores={}, error=str(error))
    except StoppedError:
        raise
    except (GraderError, ProviderError, ImageError) as error:
        kind = error.kind if isinstance(error, ProviderError) else kind
        failed = Grade(scores={}, error=str(error) or type(error).__name__)
    except TimeoutError:
        most = bench.plan.suite.cell_timeout_s
        kind, failed = "timeout", Grade(scores={}, error=f"not done within the {most:g} s that a cell may take")
    except Exception as error:
        bench.debug(error)
        kind, failed = "internal", Grade(scores={}, error=described(error))
    return (*_told(config, subject, bench, failed, start, meter), kind)


def _told(
    config: BaseGrader, subject: GradingContext, bench: RunContext, said: Grade, start: float, meter: Meter
) -> tuple[Grade, GraderRecord]:
    """What a grader said, checked and plain. Raises any exception where it said something impossible."""
    scores, bad = checked_scores(said.scores, config.metrics(subject.case), config.optional(subject.case))
    plain = bench.plain
    record = GraderRecord(
        key=config.key,
        type=config.type_name,
        error=plain.text(said.error or "; ".join(bad)) or None,
        details=plain.mapping(said.details),
        usage=plain.counts(meter.usage or said.usage),
        cost_usd=meter.cost_usd if meter.calls else amount(said.cost_usd),
        seconds=round(perf_counter() - start, 6),
        cached=meter.calls > 0 and meter.cached == meter.calls,
        fingerprint=Fingerprint(
            version=config.version,
            judge_model=said.judge_model,
            template_sha256=said.template_sha256,
            schema_sha256=said.schema_sha256,
            config_sha256=bench.plan.config_sha256[config.key],
            tool_versions=plain.texts(said.tool_versions),
        ),
    )
    tags = [said.failure_tags] if isinstance(said.failure_tags, str) else said.failure_tags
    kept = Grade(scores=scores, reasons=plain.texts(said.reasons), failure_tags=tuple(map(plain.text, tags)))
    return kept, record


def checked_scores(
    said: Mapping[str, Any], declared: Mapping[str, Metric], optional: Collection[str] = ()
) -> tuple[dict[str, Score], list[str]]:
    """The declared metrics and no other, each of its type and range or ``None``, and what was wrong with the rest.

    An ``optional`` one may be left out by a grader that measured something; one that measured nothing leaves ``None``.
    """
    scores: dict[str, Score] = {}
    bad = [f"wrote {name!r}, which it does not declare" for name in said if name not in declared]
    for name, metric in declared.items():
        if name in optional and name not in said and said:
            continue
        value = scalar(said.get(name))
        wrong = None if value is None else _misfit(value, metric)
        scores[name] = value if wrong is None else None
        if wrong is not None:
            bad.append(f"{name} is {value!r:.60}, {wrong}")
        elif name not in said:
            bad.append(f"{name} was not measured")
    return scores, bad


def _misfit(value: Any, metric: Metric) -> str | None:
    """Why a value is none of a metric's."""
    if metric.type == "bool":
        return None if isinstance(value, bool) else "not a yes or no"
    number = amount(value)
    if number is None or not math.isfinite(number):
        return "not a number"
    low, high = metric.range or (-math.inf, None)
    if number < low or (high is not None and number > high):
        return f"outside {low:g} to {'any' if high is None else f'{high:g}'}"
    return None
