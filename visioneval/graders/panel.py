"""Combines the answers of a panel of judges into one grade. Pure.

A panel replaces one large judge by several that may err differently: P. Verga et al., "Replacing judges with juries:
evaluating LLM generations with a panel of diverse models" (2024). An even split is no answer: no coin decides it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from visioneval.judging.ask import median
from visioneval.records.model import JudgeAnswer
from visioneval.rules import show_score
from visioneval.suite.entries.judges import Combine
from visioneval.types import Metric, Score

VERDICT = "judge_verdict"


@dataclass(frozen=True, slots=True)
class PanelResult:
    """The combined answers of a panel. ``error`` says why a score is ``None``."""

    scores: Mapping[str, Score]
    reasons: Mapping[str, str]
    failure_tags: tuple[str, ...]
    details: Mapping[str, str]
    error: str | None = None


def combine_panel(
    answers: Sequence[JudgeAnswer],
    metrics: Mapping[str, Metric],
    *,
    required: int,
    optional: Collection[str] = (),
    combine: Combine | None = None,
) -> PanelResult:
    """The majority of answers, and the median or mean of numbers, of the judges that measured a metric.

    A score is ``None`` if fewer than ``required`` judges measured it. A yes, a no or a word needs more than half of the
    judges that measured the metric; otherwise the score is ``None``, too. A quorum excuses judges that are down: if one
    was never asked, all must answer. A metric in ``optional`` that no judge reports is omitted. A failure tag needs
    more than half of the judges that answered.
    """
    if any(answer.never_asked for answer in answers):
        required = len(answers)
    scores: dict[str, Score] = {}
    problems: dict[str, None] = {}
    for name, metric in metrics.items():
        by_judge = {answer.judge: answer.scores[name] for answer in answers if name in answer.scores}
        measured = {judge: score for judge, score in by_judge.items() if score is not None}
        if name in optional and not measured and len(by_judge) < len(answers):
            continue
        if len(measured) < required:
            scores[name] = None
            problems[_too_few(answers, measured, required)] = None
            continue
        values: list[Any] = list(measured.values())
        if metric.type == "number":
            scores[name] = fmean(values) if combine == "mean" else median(values)
            continue
        answer, times = Counter(values).most_common(1)[0]
        scores[name] = answer if times * 2 > len(values) else None
        if scores[name] is None:
            judges = {
                side: [judge for judge, score in measured.items() if score == side]
                for side in metric.choices or (True, False)
            }
            sides = ", ".join(f"{' and '.join(names)} {show_score(side)}" for side, names in judges.items() if names)
            problems[f"the judges are split on {name!r}: {sides}"] = None
    reasons: dict[str, list[str]] = {}
    for judge in answers:
        for key, text in judge.reasons.items():
            reasons.setdefault(key, []).append(f"{judge.judge}: {text}")
    named = Counter(tag for judge in answers for tag in dict.fromkeys(judge.failure_tags))
    complete = sum(judge.is_complete for judge in answers)
    return PanelResult(
        scores,
        reasons={key: "; ".join(texts) for key, texts in reasons.items()},
        failure_tags=tuple(tag for tag, times in named.items() if times * 2 > complete),
        details=_verdict(answers, required),
        error="; ".join(problems) or None,
    )


def _too_few(answers: Sequence[JudgeAnswer], measured: Collection[str], required: int) -> str:
    missing = [f"{answer.judge}: {answer.error or 'no answer'}" for answer in answers if answer.judge not in measured]
    never_asked = [answer.judge for answer in answers if answer.never_asked]
    why = f", as {' and '.join(never_asked)} {'was' if len(never_asked) == 1 else 'were'} never asked"
    must = f"{required} must{why if never_asked else ''}"
    return f"{len(measured)} of {len(answers)} judges answered, {must}; {'; '.join(missing)}"


def _verdict(answers: Sequence[JudgeAnswer], required: int) -> dict[str, str]:
    """The verdict of most judges, as a detail; empty if too few gave one or they are split."""
    verdicts = Counter(verdict for answer in answers if (verdict := answer.details.get(VERDICT)) in ("PASS", "FAIL"))
    passed, failed = verdicts["PASS"], verdicts["FAIL"]
    if passed + failed < required or passed == failed:
        return {}
    return {VERDICT: "PASS" if passed > failed else "FAIL"}
