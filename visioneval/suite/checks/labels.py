"""Checks of ``labels``: unique keys, the metrics that questions name, and the anchors file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from visioneval.media.urls import public_address
from visioneval.suite.entries.graders import rubric_scale
from visioneval.suite.label_presets import READY
from visioneval.suite.labels import VERDICT, WHY, LabelQuestion, Labels, metric_mismatch
from visioneval.suite.loading.messages import Loc, did_you_mean
from visioneval.suite.loading.paths import Trust
from visioneval.suite.metrics import SuiteMetrics
from visioneval.suite.model import Suite
from visioneval.types import Metric

Problems = Iterator[tuple[Loc, str]]


def label_problems(suite: Suite, folder: Path, trust: Trust, broken: frozenset[str]) -> Problems:
    """Every problem of ``labels``. ``broken`` names the top-level keys that are incomplete in this suite."""
    labels = suite.labels
    if labels is None or "labels" in broken:
        return
    yield from _keys(labels)
    if not broken & {"cases", "graders", "metrics"}:
        metrics = SuiteMetrics(suite).all
        for index, question in enumerate(labels.questions):
            for name in question.metrics:
                if message := _metric(question, name, metrics, suite):
                    yield ("labels", "questions", index, "metric"), message
    if labels.anchors is not None and (message := _anchors(labels.anchors, folder, trust)):
        yield ("labels", "anchors"), message


def _keys(labels: Labels) -> Problems:
    """Duplicate keys. A question replaces the preset's question of its key; it cannot have the key of a pair."""
    preset = READY[labels.preset] if labels.preset else None
    used = {key for pair in preset.pairs for key in (pair.key, f"{pair.key}{WHY}")} if preset else set()
    for index, question in enumerate(labels.questions):
        if question.key in used:
            yield ("labels", "questions", index, "key"), f"two questions have the key {question.key!r}"
        used.add(question.key)
    used = {each.key for each in (*labels.questions, *(preset.questions if preset else ()))}
    for index, pair in enumerate(labels.pairs):
        if clashing := used & {pair.key, f"{pair.key}{WHY}"}:
            yield ("labels", "pairs", index, "key"), f"two questions have the key {min(clashing)!r}"
        used |= {pair.key, f"{pair.key}{WHY}"}


def _metric(question: LabelQuestion, name: str, metrics: dict[str, Metric], suite: Suite) -> str | None:
    if name not in metrics:
        if name == VERDICT and not suite.has_rules:
            return "a suite without rules has no verdict: add 'graders' and 'verdict', or remove 'metric'"
        if name == VERDICT:
            return None if question.type == "yes_no" else "the verdict is yes or no: use the type yes_no"
        return f"no grader writes {name!r}{did_you_mean(name, {*metrics, VERDICT})}"
    return metric_mismatch(question, name, metrics[name], rubric_scale(name, suite.graders))


def _anchors(path: str, folder: Path, trust: Trust) -> str | None:
    if refusal := trust.refusal(path, folder):
        return refusal
    return None if (folder / path).is_file() else f"{public_address(path)}: there is no such file"
