"""Builds labeled runs from scores and answers by cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from record_factory import info, record

from visioneval import Verdict
from visioneval.analysis.agreement.answers import LabeledRun
from visioneval.records.labels import Label
from visioneval.suite.model import Suite

USABLE = {"key": "usable", "ask": "Usable?", "type": "yes_no", "metric": "good"}
CLEAR = {"key": "clear", "ask": "How clear?", "type": "scale", "scale": [1, 5], "metric": "layout"}
SHARP = {"key": "sharp", "ask": "How sharp?", "type": "scale", "scale": [1, 5], "metric": "edge"}
WRONG = {"key": "wrong", "ask": "What is wrong?", "type": "tags", "choices": ["colour", "cut"]}
BETTER = {"key": "better", "ask": "Which is better?"}
METRICS: dict[str, Any] = {
    "good": {"type": "bool"},
    "blank": {"type": "bool", "better": "lower"},
    "layout": {"type": "number", "range": [0, 5]},
    "edge": {"type": "number", "range": [0, None]},
}
RUBRIC = {"type": "score", "scale": [0, 5], "description": "order"}


def run_info(
    cases: Iterable[str], questions: Sequence[Mapping[str, Any]], run_id: str = "r", models: Sequence[str] = ("m",)
) -> Any:
    """A run whose graders write METRICS; a rubric writes ``layout``."""
    suite = Suite.model_validate(
        {
            "name": "demo",
            "judges": {"default": {"provider": "recorded", "path": "answers.csv"}},
            "cases": [{"id": name, "prompt": "a tree"} for name in cases],
            "models": [{"provider": "mock", "label": label} for label in models],
            "graders": [
                {"key": "own", "type": "own:Look", "writes": {k: v for k, v in METRICS.items() if k != "layout"}},
                {"key": "look", "type": "rubric", "metrics": {"layout": RUBRIC}},
            ],
            "verdict": ["good", "layout >= 3"],
            "labels": {"questions": list(questions), "pairs": [BETTER]},
        }
    )
    return info(
        run_id=run_id,
        suite=suite,
        metrics=METRICS,
        state="complete",
        planned_cells=len(suite.cases) * len(suite.models),
    )


def label(case: str, rater: str, question: str, answer: Any, at: str = "2025-06-01", **more: Any) -> Label:
    fields = {"model_label": "m", "sample_index": 0, "source": "page", **more}
    return Label(rater=rater, test_id=case, question=question, answer=answer, at=f"{at}T12:00:00+00:00", **fields)


def labeled(
    scores: Mapping[str, Mapping[str, Any]],
    labels: Sequence[Label],
    questions: Sequence[Mapping[str, Any]] = (USABLE, CLEAR, SHARP, WRONG),
    *,
    run_id: str = "r",
    anchors: Sequence[Label] = (),
) -> LabeledRun:
    """A run with one model run and one cell per case. A cell passes if it is good."""
    verdicts = {True: Verdict.PASS, False: Verdict.FAIL}
    records = [
        record(run_id=run_id, test_id=case, scores=values, verdict=verdicts.get(values.get("good"), Verdict.ERROR),
               reasons={"look": f"about {case}"})
        for case, values in scores.items()
    ]  # fmt: skip
    return LabeledRun(run_info(scores, questions, run_id), records, labels, anchors)
