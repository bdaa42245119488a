"""The variables of a rubric's template and the JSON Schema, both from the same metrics, so that they always agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from visioneval.graders.rubric.metrics import RubricMetric, RubricOptions, ScaleScore
from visioneval.suite.cases.case import TestCase
from visioneval.suite.cases.prompts import context
from visioneval.suite.entries.judge_prompt import REASON, media_of

VERDICT, TAGS = "verdict", "failure_tags"
VERDICTS = ("PASS", "FAIL")


def rubric_groups(asked: Mapping[str, RubricMetric], *, per_metric: bool) -> list[Mapping[str, RubricMetric]]:
    """The metrics of a case, grouped by call."""
    return [{name: asked[name]} for name in asked] if per_metric else [asked]


def rubric_keys(metrics: Mapping[str, RubricMetric], failure_tags: Sequence[str]) -> list[str]:
    """The keys of a judge's reply: the reason first, so that it looks before it scores."""
    return [REASON, *metrics, *([TAGS] if failure_tags else []), VERDICT]


def rubric_schema(metrics: Mapping[str, RubricMetric], failure_tags: Sequence[str]) -> dict[str, Any]:
    """The properties of a judge's reply, in the order of ``rubric_keys``."""
    properties: dict[str, Any] = {REASON: {"type": "string"}}
    properties |= {name: metric.answer for name, metric in metrics.items()}
    if failure_tags:
        properties[TAGS] = {"type": "array", "items": {"type": "string", "enum": list(failure_tags)}}
    meaning = "Your own judgement of the whole: PASS if it is usable as it is, otherwise FAIL."
    properties[VERDICT] = {"type": "string", "enum": list(VERDICTS), "description": meaning}
    return properties


def rubric_context(
    case: TestCase,
    prompt: str,
    options: RubricOptions,
    metrics: Mapping[str, RubricMetric],
    *,
    images: Sequence[Mapping[str, str]],
    variables: Mapping[str, Any],
) -> dict[str, Any]:
    """The variables of a rubric template. They depend on the case and the rubric alone, never on rules."""
    variables_of_template = {
        **context(case, variables),
        "task_type": str(case.task_type),
        "media": media_of(case),
        "prompt": prompt,
        "criteria": case.criteria,
        "region": case.region,
        "images": list(images),
        "metrics": {name: _metric_context(metric) for name, metric in metrics.items()},
        "failure_tags": list(options.failure_tags),
        "zoom": options.zoom.model_dump() if options.zoom else None,
        "keys": rubric_keys(metrics, options.failure_tags),
        "show": list(options.parts),
    }
    return options.visible(variables_of_template)


def _metric_context(metric: RubricMetric) -> dict[str, Any]:
    fields = metric.model_dump(exclude={"when"})
    if not isinstance(metric, ScaleScore):
        return fields
    low, high = metric.scale
    return {**fields, "low": f"{low:g}", "high": f"{high:g}", "step": f"{metric.step:g}"}
