"""Checks of ``labels:``: keys, the metrics that questions name, and the file of anchors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from visioneval.suite.graders import scored_by
from visioneval.suite.label_presets import READY
from visioneval.suite.labels import VERDICT, WHY, LabelQuestion, Labels, metric_misfit
from visioneval.suite.loading.messages import Loc, did_you_mean
from visioneval.suite.loading.paths import Trust
from visioneval.suite.model import Suite
from visioneval.types import Metric

Found = Iterator[tuple[Loc, str]]


def label_problems(suite: Suite, folder: Path, trust: Trust, broken: frozenset[str]) -> Found:
    """Every problem of ``labels:``. ``broken`` names the top-level keys that are incomplete here."""
    labels = suite.labels
    if labels is None or "labels" in broken:
        return
    yield from _keys(labels)
    if not broken & {"cases", "graders", "metrics"}:
        metrics = written_metrics(suite)
        for index, question in enumerate(labels.questions):
            if message := _metric(question, metrics, suite):
                yield ("labels", "questions", index, "metric"), message
    if labels.anchors is not None and (message := _anchors(labels.anchors, folder, trust)):
        yield ("labels", "anchors"), message


def written_metrics(suite: Suite) -> dict[str, Metric]:
    """Every metric that some grader writes for some case."""
    return {
        name: metric
        for grader in suite.graders
        for case in suite.cases
        if grader.when is None or grader.when.fits(case.id, case.task_type, case.tags)
        for name, metric in grader.metrics(case).items()
    }


def _keys(labels: Labels) -> Found:
    """Keys that stand twice. A key of the ready set's own kind is replaced, one of the other kind is taken."""
    ready = READY[labels.preset] if labels.preset else None
    seen = {key for pair in ready.pairs for key in (pair.key, f"{pair.key}{WHY}")} if ready else set()
    for index, question in enumerate(labels.questions):
        if question.key in seen:
            yield ("labels", "questions", index, "key"), f"two questions have the key {question.key!r}"
        seen.add(question.key)
    seen = {each.key for each in (*labels.questions, *(ready.questions if ready else ()))}
    for index, pair in enumerate(labels.pairs):
        if taken := seen & {pair.key, f"{pair.key}{WHY}"}:
            yield ("labels", "pairs", index, "key"), f"two questions have the key {min(taken)!r}"
        seen |= {pair.key, f"{pair.key}{WHY}"}


def _metric(question: LabelQuestion, metrics: dict[str, Metric], suite: Suite) -> str | None:
    name = question.metric
    if name is None:
        return None
    if name not in metrics:
        if name == VERDICT:
            return None if question.type == "yes_no" else "the verdict is a yes or no: ask with the type yes_no"
        return f"no grader writes {name!r}{did_you_mean(name, {*metrics, VERDICT})}"
    return metric_misfit(question, metrics[name], scored_by(name, suite.graders))


def _anchors(path: str, folder: Path, trust: Trust) -> str | None:
    if refusal := trust.refusal(path, folder):
        return refusal
    return None if (folder / path).is_file() else f"{path}: there is no such file"
