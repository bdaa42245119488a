"""Summaries: counts, rates, reasons, gates and questions by type, computed from records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from record_factory import UNMEASURED, info, record, run_of
from record_factory import info as empty_info

from visioneval import Fingerprint, GraderRecord, Record, RunInfo, Summary
from visioneval.analysis.scores import Estimate
from visioneval.analysis.summary.gates import GateFinding
from visioneval.analysis.summary.summary import exit_code, gates_of, in_order, summarize
from visioneval.records.model import RunState
from visioneval.report.cell import case_text
from visioneval.report.outcome import outcome
from visioneval.suite.filters import Scope
from visioneval.suite.model import Suite
from visioneval.suite.runs import Selection, Shard

METRICS: dict[str, Any] = {"fine": {"type": "bool"}, "level": {"type": "number", "range": [0, 1]}}
CASES: dict[str, dict[str, Any]] = {"a": {"tags": ["x"]}, "b": {"tags": ["x", "y"]}, "c": {}}


def cell(case: str, label: str = "m", verdict: str = "PASS", **changes: Any) -> Record:
    status = {"ERROR": "error"}.get(verdict, "completed")
    tags = CASES.get(case, {}).get("tags", [])
    return record(test_id=case, model_label=label, tags=tags, verdict=verdict, **{"status": status, **changes})


def refusal(case: str, verdict: str = "FAIL") -> Record:
    return cell(case, verdict=verdict, status="refused", failure_tags=["refused"], reasons={"refused": "no"})


def findings(
    *cells: Record, gates: list[Any] | None = None, labels: list[str] | None = None, **changes: Any
) -> Summary:
    return summarize(run_of(CASES, labels or ["m"], gates or [], METRICS, **changes), cells)


def test_pass_rate_excludes_errors() -> None:
    summary = findings(cell("a"), cell("b", verdict="FAIL"), cell("c", verdict="ERROR", error=UNMEASURED))
    counts = summary.counts
    assert (counts.cells, counts.passed, counts.failed, counts.errors) == (3, 1, 1, 1)
    assert (counts.pass_rate.value, counts.pass_rate.n) == (0.5, 2)
    assert counts.pass_rate.low == pytest.approx(0.0945, abs=1e-4)
    assert counts.pass_rate.high == pytest.approx(0.9055, abs=1e-4)


def test_pass_rate_is_null_without_measured_cells() -> None:
    rate = findings(cell("a", verdict="ERROR", error=UNMEASURED)).counts.pass_rate
    assert (rate.value, rate.low, rate.high, rate.n) == (None, None, None, 0)


def test_refusals_also_count_in_their_verdict() -> None:
    counts = findings(refusal("a"), refusal("b", "PASS"), cell("c")).counts
    assert (counts.passed, counts.failed, counts.refused) == (2, 1, 2)


def test_metric_means_cover_measured_cells_only() -> None:
    cells = [
        cell("a", scores={"fine": True, "level": 0.5}),
        cell("b", scores={"fine": False, "level": None}),
        cell("c", scores={"fine": None}),
    ]
    result = findings(*cells).models[0].metrics
    assert (result["fine"].value, result["fine"].n, result["fine"].unmeasured) == (0.5, 2, 1)
    assert (result["level"].value, result["level"].n, result["level"].unmeasured) == (0.5, 1, 1)


def test_mean_of_equal_scores_is_exact() -> None:
    cells = [cell("a", scores={"level": 0.7}, sample_index=at) for at in range(10)]
    assert findings(*cells).models[0].metrics["level"].value == 0.7


def test_model_runs_without_records_are_listed() -> None:
    summary = findings(cell("a", "second"), labels=["first", "second"])
    assert [(model.label, model.counts.cells) for model in summary.models] == [("first", 0), ("second", 1)]
    assert summary.models[0].metrics == {}


def test_costs_add_generation_and_grading_and_count_unknown_costs() -> None:
    grader = {"key": "look", "type": "t", "cost_usd": 0.25, "fingerprint": {"config_sha256": "0"}}
    summary = findings(cell("a", cost_usd=1.0, graders=[grader]), cell("b"), labels=["m", "n"])
    assert (summary.cost_usd, summary.models[0].cost_usd, summary.models[1].cost_usd) == (1.25, 1.25, None)
    assert (summary.unpriced, summary.models[0].unpriced, summary.models[1].unpriced) == (1, 1, 0)


@pytest.mark.parametrize(("graded_from", "what"), [(None, {"generation", "judging"}), ("earlier", {"judging"})])
def test_outputs_of_another_run_are_in_no_table_of_costs(graded_from: str | None, what: set[str]) -> None:
    suite = Suite.model_validate(
        {
            "name": "demo",
            "cases": [{"id": "a", "prompt": "a tree"}, {"id": "b", "output_of": "a"}],
            "models": [{"provider": "openai", "params": {"model": "gpt-image-2"}, "label": "m"}],
            "judges": {"default": {"provider": "openai", "model": "gpt-5.4"}},
            "graders": [
                {"key": "look", "type": "rubric", "metrics": {"good": {"type": "pass_fail", "description": "?"}}}
            ],
            "verdict": ["good"],
        }
    )
    look = GraderRecord(key="look", type="rubric", cost_usd=0.1, fingerprint=Fingerprint(config_sha256="0"))
    run = empty_info(suite=suite, state="complete", graded_from=graded_from)
    cells = [record(test_id=case, model_label="m", cost_usd=0.0, graders=[look]) for case in ("a", "b")]
    costs = {cost.what: cost.paid for cost in summarize(run, cells).costs}
    assert costs.keys() == what
    assert costs["judging"] == 2
    assert costs.get("generation", 1) == 1, "that of b is the output of a"


def test_tags_count_their_cells() -> None:
    tags = findings(cell("a"), cell("b", verdict="FAIL"), cell("c")).tags
    assert {tag: (counts.cells, counts.failed) for tag, counts in tags.items()} == {"x": (2, 1), "y": (1, 1)}


def test_failure_tags_and_warnings_are_sorted_by_count() -> None:
    cells = [
        cell("a", verdict="FAIL", failure_tags=["blurred"], warned_rules=["level > 0"]),
        cell("b", verdict="FAIL", failure_tags=["cut", "blurred"]),
    ]
    summary = findings(*cells)
    assert list(summary.failure_tags.items()) == [("blurred", 2), ("cut", 1)]
    assert summary.warned_rules == {"level > 0": 1}


REASONS = [
    ("fine", {"fine": "own", "look": "shared"}, "own"),
    ("not fine", {"fine": "own"}, "own"),
    ("level>=0.5", {"look": "shared"}, "shared"),
    ("'level' >= 0.5", {"level": "own"}, "own"),
    ("fine", {"level": "of another metric"}, "of another metric"),
    ("fine", {"fine": "own", "level": "of another metric"}, "own"),
    ("fine", {"other": "of nobody"}, None),
    ("expect.refusal", {}, None),
]


@pytest.mark.parametrize(("rule", "reasons", "expected_reason"), REASONS)
def test_failed_rule_has_the_reason_of_its_metric_or_grader(
    rule: str, reasons: dict[str, str], expected_reason: str | None
) -> None:
    (failing,) = findings(cell("a", verdict="FAIL", failed_rules=[rule], reasons=reasons)).failing
    assert failing.reasons.get(rule) == expected_reason


NO_REASON = 'the judge answered no: "Is the sign readable?"'


@pytest.mark.parametrize(("reasons", "shown"), [({}, NO_REASON), ({"sharp": "blurred"}, "blurred")])
def test_a_rule_that_a_judge_failed_without_a_reason_shows_the_question(
    tmp_path: Path, reasons: dict[str, str], shown: str
) -> None:
    suite = Suite.model_validate(
        {
            "name": "signs",
            "cases": [{"id": "a", "prompt": "p"}],
            "judges": {"default": {"provider": "openai", "model": "gpt-5.4"}},
            "models": [{"provider": "mock", "label": "m"}],
            "graders": [
                {
                    "key": "look",
                    "type": "rubric",
                    "metrics": {"sharp": {"type": "pass_fail", "description": "Is the sign readable?"}},
                }
            ],
            "verdict": ["sharp"],
        }
    )
    run = run_of({"a": {}}, ["m"], [], {"sharp": {"type": "bool"}}).model_copy(update={"suite": suite})
    failed = cell("a", verdict="FAIL", failed_rules=["sharp"], scores={"sharp": False}, reasons=reasons)
    (failing,) = summarize(run, [failed]).failing
    assert failing.reasons == {"sharp": shown}
    text = case_text([failed], run, tmp_path)
    assert ("Is the sign readable?" in text, "blurred" in text) == (not reasons, bool(reasons))
    of_another = failed.model_copy(update={"reasons": {**failed.reasons, "other": "a reason of another grader"}})
    assert ("Is the sign readable?" in case_text([of_another], run, tmp_path)) == (not reasons)


def test_judges_of_a_panel_that_gave_no_reason_have_their_score() -> None:
    level = {"type": "score", "scale": [1, 5], "description": "how clear it is"}
    judge = {"provider": "openai", "model": "gpt-5.4"}
    suite = Suite.model_validate(
        {
            "name": "signs",
            "cases": [{"id": "a", "prompt": "p"}],
            "judges": {"one": judge, "two": {**judge, "model": "gpt-5.5"}},
            "models": [{"provider": "mock", "label": "m"}],
            "graders": [{"key": "look", "type": "rubric", "judge": ["one", "two"], "metrics": {"clear": level}}],
            "verdict": ["clear >= 3"],
        }
    )
    run = run_of({"a": {}}, ["m"], [], {"clear": {"type": "number"}}).model_copy(update={"suite": suite})
    failed = cell("a", verdict="FAIL", failed_rules=["clear >= 3"], scores={"clear": 2.0})
    (failing,) = summarize(run, [failed]).failing
    assert failing.reasons == {"clear >= 3": 'the judges answered 2: "How clear is it?"'}


def test_refused_cell_has_the_reason_of_the_refusal() -> None:
    (failing,) = findings(refusal("a")).failing
    assert (failing.failed_rules, failing.reasons) == ((), {"refused": "no"})


def test_in_order_sorts_records_in_suite_order() -> None:
    info = run_of(CASES, ["m", "n"], [], METRICS)
    mixed = [cell("c", "n"), cell("gone"), cell("a", "n"), cell("a", "m", sample_index=1), cell("a", "m")]
    result = [gate_entry.cell for gate_entry in in_order(info, mixed)]
    assert result == [("a", "m", 0), ("a", "m", 1), ("a", "n", 0), ("c", "n", 0), ("gone", "m", 0)]


def gate(summary: Summary, rule: str) -> GateFinding:
    return next(gate_entry for gate_entry in summary.gates if gate_entry.rule == rule)


def state(rule: str, *cells: Record, **scope: Any) -> str:
    entry: Any = {"rule": rule, **scope} if scope else rule
    return gate(findings(*cells, gates=[entry]), rule).state


ERROR = cell("c", verdict="ERROR", error=UNMEASURED)
GATES = [
    ("pass_rate >= 0.5", "unmeasured", [cell("a"), cell("b", verdict="FAIL"), ERROR]),
    ("pass_rate > 0.5", "failed", [cell("a"), cell("b", verdict="FAIL"), ERROR]),
    ("pass_rate == 1", "unmeasured", [cell("a"), ERROR]),
    ("pass_rate == 1", "passed", [cell("a")]),
    ("pass_rate >= 0", "unmeasured", [ERROR]),
    ("pass_rate == 0", "passed", [cell("a", verdict="FAIL")]),
    ("error_rate == 0", "failed", [cell("a"), ERROR]),
    ("error_rate <= 0.5", "passed", [cell("a"), ERROR]),
    ("refusal_rate < 0.5", "passed", [refusal("a"), cell("b"), cell("c")]),
    ("refusal_rate == 0", "failed", [refusal("a"), cell("b"), cell("c")]),
    ("mean(level) >= 0.5", "passed", [cell("a", scores={"level": 0.75}), cell("b", scores={"level": 0.25})]),
    ("mean(level) >= 0.5", "failed", [cell("a", scores={"level": 0.25}), cell("b", scores={"level": None})]),
    ("mean(level) >= 0", "unmeasured", [cell("a", scores={"level": None}), cell("b")]),
    ("mean(level) != 1", "unmeasured", []),
    ("rate(fine) == 0.5", "unmeasured", [cell("a", scores={"fine": True}), cell("b", scores={"fine": False}), ERROR]),
    ("rate(fine) == 0.5", "passed", [cell("a", scores={"fine": True}), cell("b", scores={"fine": False})]),
]


@pytest.mark.parametrize(("rule", "expected", "cells"), GATES)
def test_gate_covers_measured_cells(rule: str, expected: str, cells: list[Record]) -> None:
    assert state(rule, *cells) == expected


def test_scoped_gate_covers_the_cells_of_its_scope() -> None:
    cells = [cell("a", "m"), cell("b", "m", "FAIL"), cell("c", "m", "FAIL"), cell("a", "n", "ERROR", error=UNMEASURED)]
    scopes: list[tuple[dict[str, Any], float | None, int, int]] = [
        ({"cases": ["a"]}, 1.0, 1, 1),
        ({"tags": ["x"]}, 0.5, 2, 1),
        ({"tags": ["y"]}, 0.0, 1, 0),
        ({"models": ["m"]}, 1 / 3, 3, 0),
        ({"models": ["n"]}, None, 0, 1),
        ({"tasks": ["image_generation"]}, 1 / 3, 3, 1),
        ({"cases": ["a"], "models": ["m*"]}, 1.0, 1, 0),
    ]
    for scope, value, n, errors in scopes:
        result = findings(*cells, gates=[{"rule": "pass_rate == 1", **scope}], labels=["m", "n"]).gates[0]
        assert (result.value, result.n, result.errors) == (value, n, errors), scope
        assert result.scope == "; ".join(f"{name}: {', '.join(values)}" for name, values in scope.items())


DEFAULTS = [
    (None, ["pass_rate == 1", "error_rate == 0", "unmeasured_rate == 0"]),
    (["pass_rate >= 0.5"], ["pass_rate >= 0.5", "error_rate == 0", "unmeasured_rate == 0"]),
    (["error_rate <= 0.1"], ["error_rate <= 0.1", "unmeasured_rate <= 0.1"]),
    (["error_rate < 0.1"], ["error_rate < 0.1", "unmeasured_rate < 0.1"]),
    (["error_rate >= 0.1"], ["error_rate >= 0.1", "unmeasured_rate == 0"]),
    (["unmeasured_rate <= 0.2"], ["unmeasured_rate <= 0.2", "error_rate == 0"]),
    (["error_rate <= 1", "unmeasured_rate == 0"], ["error_rate <= 1", "unmeasured_rate == 0"]),
    (
        [{"rule": "error_rate <= 0.1", "cases": ["a"]}],
        ["error_rate <= 0.1", "error_rate == 0", "unmeasured_rate == 0"],
    ),
]


@pytest.mark.parametrize(("gates", "expected"), DEFAULTS)
def test_error_gate_is_added_unless_the_suite_has_one(gates: Any, expected: list[str]) -> None:
    info = run_of(CASES, ["m"], gates, METRICS)
    assert [entry.rule for entry in gates_of(info.suite)] == expected


NARROWED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"cases": ["c"]}, {"cases": ["a"]}, "skipped"),
    ({"tags": ["y"]}, {"cases": ["a"]}, "skipped"),
    ({"models": ["n"]}, {"models": ["m"]}, "skipped"),
    ({"models": ["m"]}, {"models": ["m"]}, "passed"),
    ({}, {"cases": ["a"]}, "passed"),
]


@pytest.mark.parametrize(("scope", "chosen", "expected"), NARROWED)
def test_gate_is_skipped_if_a_flag_excludes_its_scope(
    scope: dict[str, Any], chosen: dict[str, Any], expected: str
) -> None:
    narrowed = {name: case for name, case in CASES.items() if name in chosen.get("cases", CASES)}
    labels = chosen.get("models", ["m", "n"])
    info = run_of(narrowed, labels, [{"rule": "pass_rate == 1", **scope}], METRICS, selection=Selection(**chosen))
    summary = summarize(info, [cell(name, label) for name in narrowed for label in labels])
    assert (summary.gates[0].state, summary.exit_code) == (expected, 3 if expected == "skipped" else 0)


def test_gate_is_skipped_if_a_flag_excludes_its_grader() -> None:
    gates = ["mean(level) >= 0.5", "pass_rate == 1"]
    info = run_of(CASES, ["m"], gates, METRICS, selection=Selection(graders=("other",)))
    info = info.model_copy(update={"metrics": {"fine": info.metrics["fine"]}})
    summary = summarize(info, [cell("a", scores={"fine": True})])
    assert [gate_entry.state for gate_entry in summary.gates] == ["skipped", "passed", "passed", "passed"]
    assert summary.exit_code == 3  # not all cells
    assert summary.left_out_graders == tuple(grader.key for grader in info.suite.graders)


def test_gate_without_cells_in_a_full_run_is_unmeasured() -> None:
    assert state("pass_rate == 1", cell("a"), models=["nobody"]) == "unmeasured"


def result(rule: str, gate_state: str) -> GateFinding:
    return GateFinding(rule=rule, scope="", value=None, n=0, errors=0, state=gate_state)


CODES: list[tuple[RunState, list[tuple[str, str]], int]] = [
    ("complete", [], 0),
    ("complete", [("pass_rate == 1", "passed"), ("error_rate == 0", "passed")], 0),
    ("complete", [("pass_rate == 1", "skipped"), ("error_rate == 0", "passed")], 3),
    ("complete", [("pass_rate == 1", "passed"), ("unmeasured_rate == 0", "failed")], 3),
    ("complete", [("pass_rate == 1", "failed"), ("unmeasured_rate == 0", "failed")], 3),
    ("complete", [("pass_rate == 1", "failed"), ("error_rate == 0", "passed")], 1),
    ("complete", [("mean(level) > 1", "failed")], 1),
    ("complete", [("refusal_rate == 0", "failed")], 1),
    ("complete", [("pass_rate == 1", "unmeasured")], 3),
    ("complete", [("error_rate == 0", "failed")], 3),
    ("complete", [("pass_rate == 1", "failed"), ("error_rate == 0", "failed")], 3),
    ("complete", [("pass_rate == 1", "failed"), ("mean(level) > 1", "unmeasured")], 3),
    ("interrupted", [], 130),
    ("interrupted", [("pass_rate == 1", "failed"), ("error_rate == 0", "failed")], 130),
    ("running", [("pass_rate == 1", "failed")], 1),
]


@pytest.mark.parametrize(("run_state", "gates", "code"), CODES)
def test_exit_code(run_state: RunState, gates: list[tuple[str, str]], code: int) -> None:
    info = run_of(CASES, ["m"], [], METRICS).model_copy(update={"state": run_state})
    assert exit_code(info, [result(*gate_entry) for gate_entry in gates]) == code


def test_run_without_all_its_cells_is_incomplete() -> None:
    info = run_of(CASES, ["m"], ["pass_rate == 1"], METRICS)
    complete = [cell(name) for name in CASES]
    assert [summarize(info, cells).exit_code for cells in (complete, complete[1:])] == [0, 3]


@pytest.mark.parametrize(
    ("stopped_by", "unjudged_pairs", "code"), [("budget", 0, 3), ("refused_key", 0, 3), ("quota", 0, 3), (None, 1, 3)]
)
def test_exit_code_of_a_run_without_all_its_values(stopped_by: Any, unjudged_pairs: int, code: int) -> None:
    state = "interrupted" if stopped_by else "complete"
    info = run_of(CASES, ["m"], [], METRICS).model_copy(update={"state": state, "stopped_by": stopped_by})
    assert exit_code(info, [result("pass_rate == 1", "failed")], unmeasured_pairs=unjudged_pairs) == code


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "All gates passed"),
        ({"selection": Selection(shard=Shard(number=1, count=4))}, "Shard 1/4: gates are evaluated after merging"),
        ({"state": "interrupted", "stopped_by": "budget"}, "Stopped by its budget"),
        ({"state": "interrupted", "stopped_by": "refused_key"}, "Stopped by a refused API key"),
        ({"state": "interrupted", "stopped_by": "quota"}, "Stopped by a spent quota"),
        ({"state": "interrupted"}, "Interrupted"),
        ({"planned_cells": 4}, "Incomplete: 3 of 4 cells"),
    ],
)
def test_the_outcome_in_one_sentence(changes: dict[str, Any], text: str) -> None:
    tone, sentence = outcome(findings(*map(cell, CASES), gates=["pass_rate == 1"], **changes))
    assert (tone, sentence) == ("error" if changes else "pass", text)


def test_a_model_run_narrows_gates() -> None:
    gates = [{"rule": "pass_rate == 1", "models": ["n"]}, {"rule": "pass_rate == 0", "models": ["m"]}]
    info: RunInfo = run_of(CASES, ["m", "n"], gates, METRICS)
    summary = summarize(info.within(Scope(models=("n",)), 1), [cell("a", "n")])
    assert [gate_entry.state for gate_entry in summary.gates] == ["passed", "skipped", "passed", "passed"]
    assert [model.label for model in summary.models] == ["n"]
    assert (summary.planned_cells, summary.exit_code) == (1, 0)


def test_summary_round_trips_through_json() -> None:
    summary = findings(cell("a"), refusal("b"), ERROR)
    assert Summary.model_validate_json(summary.model_dump_json()) == summary


@pytest.mark.parametrize(
    ("judge", "names"),
    [({"provider": "recorded", "path": "a.csv"}, []), ({"provider": "openai", "model": "gpt-5.4"}, ["look"])],
)
def test_a_judge_that_costs_nothing_is_in_no_table_of_costs(judge: dict[str, Any], names: list[str]) -> None:
    suite = Suite.model_validate(
        {
            "name": "demo",
            "cases": [{"id": "one", "prompt": "a tree"}],
            "models": [{"provider": "mock", "label": "mock"}],
            "judges": {"default": judge},
            "graders": [
                {"key": "look", "type": "rubric", "metrics": {"good": {"type": "pass_fail", "description": "?"}}}
            ],
            "verdict": ["good"],
        }
    )
    look = GraderRecord(key="look", type="rubric", cost_usd=0.0, fingerprint=Fingerprint(config_sha256="0"))
    run = empty_info(suite=suite, state="complete")
    costs = summarize(run, [record(model_label="mock", graders=[look])]).costs
    assert [cost.name for cost in costs] == names


def asked_grader(*questions: tuple[str, int | None], **details: Any) -> GraderRecord:
    asked = [
        {"id": f"q{at}", "question": f"Q{at}", "type": kind, "score": score}
        for at, (kind, score) in enumerate(questions)
    ]
    known = {"source": "pinned", "prompt_sha256": "a", "dropped": 0, "coverage": None, "questions": asked}
    return GraderRecord(
        key="gecko", type="gecko", details={**known, **details}, fingerprint=Fingerprint(config_sha256="0")
    )


def asked_summary(*cells: tuple[str, GraderRecord]) -> Summary:
    suite = Suite.model_validate(
        {
            "name": "demo",
            "cases": [{"id": "one", "prompt": "a tree"}],
            "models": [{"provider": "mock", "label": label} for label in ("m", "n")],
            "graders": [{"key": "gecko", "type": "gecko"}],
            "verdict": ["gecko >= 0"],
        }
    )
    metrics = {name: {"type": "number", "range": [0, 1]} for name in ("gecko", "gecko.object", "gecko.shape")}
    records = [
        record(model_label=label, sample_index=at, graders=(graded,), scores={"gecko": 0.5, "gecko.object": 0.5})
        for at, (label, graded) in enumerate(cells)
    ]
    return summarize(info(suite=suite, metrics=metrics, state="complete", planned_cells=len(cells)), records)


def test_images_count_by_their_number_of_questions() -> None:
    pooled = asked_summary(
        ("m", asked_grader(("object", 1))),
        ("m", asked_grader(("object", 0), ("object", 0), ("object", 0), ("color", 1))),
        ("n", asked_grader(("object", None))),
    ).questions["gecko"]
    objects, every = pooled.models["m"].types["object"], pooled.models["m"].all
    assert (objects.value, objects.n, objects.cases, objects.unmeasured) == (0.25, 4, 1, 0)
    assert (every.value, every.n, every.cases, every.unmeasured) == (0.4, 5, 1, 0)
    assert pooled.models["n"].types == {"object": Estimate(unmeasured=1)}


def test_sets_of_questions_are_counted_once() -> None:
    first = {"source": "generated", "prompt_sha256": "a", "coverage": 0.5, "dropped": 2}
    second = {"source": "generated", "prompt_sha256": "b", "coverage": 1.0, "dropped": 1}
    pooled = asked_summary(
        ("m", asked_grader(("object", 1), **first)),
        ("n", asked_grader(("object", 0), **first)),
        ("n", asked_grader(("object", 0), **second)),
        ("n", asked_grader(("object", 0), prompt_sha256="c")),
    ).questions["gecko"]
    assert (pooled.prompts, pooled.generated, pooled.coverage, pooled.dropped) == (3, 2, 0.75, 3)


def test_unknown_details_are_ignored() -> None:
    assert asked_summary(("m", asked_grader(questions="many"))).questions == {}
    assert asked_summary(("m", asked_grader(questions=[5]))).questions == {}
