"""Where judges and rules, graders and votes disagree: counts of a run, and the review priority of its cells."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from record_factory import info, record
from rich.console import Console

from visioneval import Fingerprint, GraderRecord, Record, RunInfo
from visioneval.analysis.summary.judges import Disagreement, Disagreements, ReviewPriority
from visioneval.analysis.summary.summary import summarize
from visioneval.report.run import run_report
from visioneval.report.terminal import print_report
from visioneval.suite.model import Suite

SUITE = Suite.model_validate(
    {
        "name": "demo",
        "cases": [{"id": "one", "prompt": "a tree"}],
        "models": [{"provider": "mock"}],
        "judges": {"default": {"provider": "openai", "model": "m"}},
        "graders": [
            {
                "key": "logo",
                "type": "rubric",
                "metrics": {
                    "intent": {"type": "score", "scale": [0, 5], "description": "x"},
                    "clean": {"type": "pass_fail", "description": "x"},
                },
            },
            {"key": "copy", "type": "text"},
        ],
        "verdict": ["intent >= 4", "clean", "copy"],
    }
)


def cell(verdict: str | None, failed: list[str], intent: Any = 4, sample: int = 0) -> Record:
    details: dict[str, Any] = {} if verdict is None else {"judge_verdict": verdict}
    judged = GraderRecord(key="logo", type="rubric", details=details, fingerprint=Fingerprint(config_sha256="0"))
    other = GraderRecord(
        key="copy", type="text", details={"judge_verdict": "FAIL"}, fingerprint=Fingerprint(config_sha256="0")
    )
    return record(
        sample_index=sample,
        model_label="mock",
        verdict="FAIL" if failed else "PASS",
        failed_rules=failed,
        scores={"intent": intent, "clean": True, "copy": True},
        graders=[judged, other],
    )


@pytest.mark.parametrize(
    ("graded", "judged", "disagreed"),
    [
        (cell("PASS", []), 1, 0),
        (cell("FAIL", ["clean"]), 1, 0),
        (cell("PASS", ["intent >= 4"], intent=3), 1, 1),
        (cell("FAIL", []), 1, 1),
        (cell("PASS", ["copy"]), 1, 0),
        (cell("FAIL", ["copy"]), 1, 1),
        (cell("PASS", ["clean"], intent=None), 0, 0),
        (cell(None, ["clean"]), 0, 0),
        (record(status="error", verdict="ERROR"), 0, 0),
        (record(status="refused", verdict="FAIL", failed_rules=["expect.refusal"]), 0, 0),
    ],
)
def test_judge_verdict_is_compared_with_rules_over_its_metrics(graded: Record, judged: int, disagreed: int) -> None:
    counted = Disagreements(SUITE)
    counted.add(graded)
    assert counted.result() == {"logo": Disagreement(judged=judged, disagreed=disagreed)}


@pytest.mark.parametrize(
    ("rule", "scores", "failed", "judged", "disagreed"),
    [
        ("fit >= 4", {"fit": 5}, False, 1, 1),
        ("fit >= 4", {}, False, 0, 0),  # the judge is not asked for it in this case
        ("both >= 4", {"both": 1, "sharp": 0}, True, 0, 0),  # nor for the sharpness
        ("judged >= 4", {"judged": 5}, False, 1, 1),
        ("judged >= 4", {"judged": None}, False, 0, 0),  # a rule reads what could not be computed
        ("fit >= 4", {"fit": 5, "judged": None}, False, 1, 1),  # no rule does
        ("quick >= 4", {"quick": 5}, False, 0, 0),
    ],
)
def test_what_a_judge_was_not_asked_for_is_no_disagreement(
    rule: str, scores: dict[str, Any], failed: bool, judged: int, disagreed: int
) -> None:
    score = {"type": "score", "scale": [0, 5], "description": "x"}
    formulas = {"both": "intent + sharp", "judged": "intent + fit", "quick": "seconds"}
    rubric = {"intent": score, "fit": {**score, "when": {"tags": ["x"]}}}
    suite = Suite.model_validate(
        {
            **SUITE.model_dump(include={"name", "cases", "models", "judges"}),
            "graders": [{"key": "logo", "type": "rubric", "metrics": rubric}, {"key": "sharp", "type": "properties"}],
            "metrics": {name: {"expression": formula} for name, formula in formulas.items()},
            "verdict": [rule],
        }
    )
    details = {"judge_verdict": "PASS" if failed else "FAIL"}
    judge = GraderRecord(key="logo", type="rubric", details=details, fingerprint=Fingerprint(config_sha256="0"))
    counted = Disagreements(suite)
    counted.add(record(scores={"intent": 4, **scores}, failed_rules=[rule] if failed else [], graders=[judge]))
    assert counted.result() == {"logo": Disagreement(judged=judged, disagreed=disagreed)}


def printed(cells: list[Record]) -> tuple[str, dict[str, Any]]:
    summary = summarize(info(suite=SUITE, state="complete", planned_cells=len(cells)), cells)
    out = io.StringIO()
    print_report(run_report(summary), Console(file=out, width=80))
    return out.getvalue(), json.loads(summary.model_dump_json())


def test_summary_counts_disagreements() -> None:
    cells = [cell("PASS", ["intent >= 4"], intent=3), *(cell("PASS", [], sample=at) for at in range(1, 24))]
    text, data = printed([*cells, cell("FAIL", [], sample=24)])
    assert "judge and rules disagree in 2 of 25 cells (logo)\n" in text
    assert "which cells: visioneval report r --open" in text
    assert data["judge_disagreements"] == {"logo": {"judged": 25, "disagreed": 2}}


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


def judged_cell(details: dict[str, Any], **changes: Any) -> Record:
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
    assert (
        weight(judged_cell({"judge_verdict": "PASS", "votes": {"neat": [4, 4, 4], "right": [True, True, True]}})) == 0
    )


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
    assert weight(judged_cell({"votes": votes})) == pytest.approx(expected)


def test_judge_against_the_rules_raises_priority() -> None:
    assert weight(judged_cell({"judge_verdict": "FAIL"})) == 1
    assert weight(judged_cell({"judge_verdict": "FAIL"}, failed_rules=["right"])) == 0


def test_cell_of_an_unknown_case_has_priority_zero() -> None:
    assert weight(record(test_id="other", scores={"neat": 4, "copy": False})) == 0
