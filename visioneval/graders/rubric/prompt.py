"""What a rubric's template sees, made from one metrics map together with the schema, so that the two cannot drift."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from visioneval.graders.rubric.metrics import PassFail, RubricMetric, RubricOptions
from visioneval.rules import parse_rule
from visioneval.suite.case import TestCase
from visioneval.suite.judge_prompt import REASON, media_of
from visioneval.suite.prompts import context

VERDICT, TAGS = "verdict", "failure_tags"


def rubric_groups(options: RubricOptions) -> list[Mapping[str, RubricMetric]]:
    """The metrics that share a call."""
    return [{name: options.asked[name]} for name in options.asked] if options.per_metric else [options.asked]


def rubric_keys(metrics: Mapping[str, RubricMetric], failure_tags: Sequence[str]) -> list[str]:
    """The keys of a judge's reply: the reason first, so that it looks before it scores."""
    return [REASON, *metrics, *([TAGS] if failure_tags else []), VERDICT]


def rubric_schema(metrics: Mapping[str, RubricMetric], failure_tags: Sequence[str]) -> dict[str, Any]:
    """The properties of a judge's reply, in the order of ``rubric_keys``."""
    said: dict[str, Any] = {REASON: {"type": "string"}}
    said |= {name: metric.answer for name, metric in metrics.items()}
    if failure_tags:
        said[TAGS] = {"type": "array", "items": {"type": "string", "enum": list(failure_tags)}}
    said[VERDICT] = {"type": "string", "enum": ["PASS", "FAIL"]}
    return said


def rubric_context(
    case: TestCase,
    prompt: str,
    options: RubricOptions,
    metrics: Mapping[str, RubricMetric],
    *,
    rules: Sequence[str],
    images: Sequence[Mapping[str, str]],
    variables: Mapping[str, Any],
) -> dict[str, Any]:
    """Everything that a rubric template may use. ``rules`` are those over these metrics, as written."""
    return {
        **context(case, variables),
        "task_type": str(case.task_type),
        "media": media_of(case),
        "prompt": prompt,
        "criteria": case.criteria,
        "region": case.region,
        "images": list(images),
        "metrics": {name: _words(metric) for name, metric in metrics.items()},
        "rules": list(rules),
        "failure_tags": list(options.failure_tags),
        "zoom": options.zoom.model_dump() if options.zoom else None,
        "keys": rubric_keys(metrics, options.failure_tags),
    }


def _words(metric: RubricMetric) -> dict[str, Any]:
    words = metric.model_dump()
    if isinstance(metric, PassFail):
        return words
    low, high = metric.scale
    return {**words, "low": f"{low:g}", "high": f"{high:g}", "step": f"{metric.step:g}"}


def rules_over(rules: Sequence[str], metrics: Mapping[str, Any]) -> list[str]:
    """Those of the rules that are about one of the metrics."""
    return [rule for rule in rules if parse_rule(rule).metric in metrics]
