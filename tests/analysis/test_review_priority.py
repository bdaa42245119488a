"""Review priority of cells."""

from __future__ import annotations

from typing import Any

import pytest
from record_factory import info, record

from visioneval import Record, RunInfo
from visioneval.analysis.summary.judges import ReviewPriority
from visioneval.suite.model import Suite

RUBRIC: dict[str, Any] = {
    "key": "look",
    "type": "rubric",
    "metrics": {
        "neat": {"type": "score", "scale": [0, 4], "description": "x"},
        "right": {"type": "pass_fail", "description": "x"},
    },
}


def run() -> RunInfo:
    suite = Suite.model_validate(
        {
            "name": "demo",
            "judges": {"default": {"provider": "openai", "model": "m"}},
            "cases": [{"id": "one", "prompt": "a tree", "expect": {"text": {"required": ["A"]}}}],
            "models": [{"provider": "mock"}],
            "graders": [RUBRIC, {"key": "copy", "type": "text"}, {"key": "file", "type": "properties"}],
            "verdict": ["copy", "right"],
        }
    )
    case = suite.cases[0]
    return info(suite=suite, metrics={name: m for grader in suite.graders for name, m in grader.metrics(case).items()})


def weight(cell: Record) -> float:
    known = run()
    return ReviewPriority(known.suite, known.metrics).weight(cell)


def judged(details: dict[str, Any], **changes: Any) -> Record:
    look = {"key": "look", "type": "rubric", "details": details, "fingerprint": {"config_sha256": "0"}}
    scores = {
        "neat": 4,
        "right": True,
        "copy": True,
        "copy.recall": 1.0,
        "copy.cer": 0.0,
        "file": True,
        "file.blank": False,
    }
    return record(**{"graders": [look], "scores": scores, **changes})


def test_full_agreement_has_priority_zero() -> None:
    assert weight(judged({"judge_verdict": "PASS", "votes": {"neat": [4, 4, 4], "right": [True, True, True]}})) == 0


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ({"neat": 4, "right": True, "copy": False}, 1.0),
        ({"neat": 0, "right": True, "copy": True}, 0.5),
        ({"neat": 4, "right": True, "copy": True, "copy.cer": 1.0}, 0.5),
        ({"neat": 4, "right": True, "file": True, "file.blank": True}, 0.5),
        ({"neat": None, "right": True, "copy": None}, 0.0),
        ({"copy": False}, 0.0),
        ({}, 0.0),
    ],
)
def test_priority_grows_with_the_distance_between_graders(scores: dict[str, Any], expected: float) -> None:
    assert weight(record(scores=scores)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        ({"neat": [1, 3, 2], "right": [True, True, True]}, 0.5),
        ({"neat": [2, 2, 2], "right": [True, False, True]}, 1.0),
        ({"neat": [2, None, 2]}, 0.0),
        ({"unknown": [0, 9], "neat": "odd"}, 0.0),
        ("odd", 0.0),
        (None, 0.0),
    ],
)
def test_priority_grows_with_the_range_of_votes(votes: Any, expected: float) -> None:
    assert weight(judged({"votes": votes})) == pytest.approx(expected)


def test_judge_against_the_rules_raises_priority() -> None:
    assert weight(judged({"judge_verdict": "FAIL"})) == 1
    assert weight(judged({"judge_verdict": "FAIL"}, failed_rules=["right"])) == 0


def test_cell_of_an_unknown_case_has_priority_zero() -> None:
    assert weight(record(test_id="other", scores={"neat": 4, "copy": False})) == 0
