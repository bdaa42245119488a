"""A panel: one grader grades an output once with each of its judges, and their grades become one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from visioneval.errors import NEVER_ASKED
from visioneval.graders.base import Grade
from visioneval.graders.panel import combine_panel
from visioneval.records.judge_answers import JudgeAnswer
from visioneval.records.model import Fingerprint
from visioneval.running.calls.meter import JudgeMeters, Meter
from visioneval.running.sanitize import Sanitizer
from visioneval.suite.cases.case import TestCase
from visioneval.suite.entries.graders import BaseGrader


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
    config: BaseGrader,
    case: TestCase,
    checked: Sequence[CheckedGrade],
    meters: JudgeMeters,
    sanitizer: Sanitizer,
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
    is_unmeasured = None in result.scores.values() or any(attempt.never_asked for attempt in checked)
    return CheckedGrade(grade, fingerprint, is_unmeasured, _kind(checked, config.required_judges)), answers


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


def _kind(checked: Sequence[CheckedGrade], required: int) -> str:
    """The kind of error: of the first judge that was never asked, else, if too few answered, of the first of them."""
    if never_asked := [attempt.kind for attempt in checked if attempt.never_asked]:
        return never_asked[0]
    kinds = [attempt.kind for attempt in checked if attempt.is_unmeasured]
    return "unmeasured" if len(checked) - len(kinds) >= required else kinds[0]  # at most a split
