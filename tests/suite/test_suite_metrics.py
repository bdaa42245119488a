"""Computed and built-in metrics in a suite: checks, records, verdicts, resuming, grading again and comparisons."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from fake_api import FakeAPI
from suite_runner import SuiteRunner
from toys import LOOK, SECOND, Toy

from visioneval import Metric, read_records
from visioneval.suite.metrics import SuiteMetrics
from visioneval.suite.model import Suite
from visioneval.suite.runs import Selection, selected


def metrics_of(**changes: Any) -> SuiteMetrics:
    facts: dict[str, Any] = {
        "name": "demo",
        "cases": [{"id": "one", "prompt": "a tree", "tags": ["t"]}, {"id": "two", "prompt": "a tree"}],
        "models": [{"provider": "mock"}],
        "graders": [{"key": "x", "type": "m:C", "writes": {"a": {"type": "number"}, "b": {}}}],
        "verdict": ["b"],
    }
    return SuiteMetrics(Suite.model_validate({**facts, **changes}))


def test_the_order_is_that_of_what_is_read() -> None:
    metrics = metrics_of(metrics={"late": "early + seconds", "early": "a * 2", "only": "where(tag(t), a, a / a)"})
    assert list(metrics.all) == ["a", "b", "seconds", "late", "early", "only"]
    case = metrics_of()._suite.cases[0]
    assert [formula.name for formula in metrics.for_case(case).formulas] == ["early", "only", "late"]
    assert metrics.sources("late") == {"late", "early", "a", "seconds"}
    assert metrics.grader_sources() == {"late": ("a",), "early": ("a",), "only": ("a",)}


def test_built_in_metrics_are_there_only_if_the_suite_reads_them() -> None:
    assert list(metrics_of().all) == ["a", "b"]
    assert list(metrics_of(gates=["p95(seconds) <= 20"]).all) == ["a", "b", "seconds"]
    assert list(metrics_of(verdict=["b", "attempts < 3"]).all) == ["a", "b", "attempts"]
    cases = [{"id": "one", "prompt": "x", "verdict": ["b", "cost_usd < 1"]}, {"id": "two", "prompt": "x"}]
    of_one_case = metrics_of(cases=cases)
    assert [of_one_case.for_case(case).built_in for case in of_one_case._suite.cases] == [("cost_usd",), ()]


def test_a_metric_of_a_case_does_not_depend_on_what_else_is_selected() -> None:
    graders = [
        {"key": "x", "type": "m:C", "writes": {"a": {}, "b": {}}},
        {"key": "y", "type": "m:C", "when": {"tags": ["t"]}, "writes": {"c": {}}},
    ]
    whole = metrics_of(graders=graders, metrics={"m": "where(tag(t), c, a)"})._suite
    selection = selected(whole, Selection(cases=("two",)))
    case = whole.cases[1]
    assert SuiteMetrics(whole, selection).for_case(case) == SuiteMetrics(whole).for_case(case)
    assert SuiteMetrics(whole, selection).all["m"] == Metric(type="bool")
    assert "m" not in SuiteMetrics(whole, selected(whole, Selection(graders=("y",)))).for_case(case).metrics


SCORED = {"graders": [LOOK, SECOND], "verdict": ["fine"]}


@pytest.mark.parametrize(
    ("case", "expression", "verdict", "expected", "score", "reason"),
    [
        ({}, "level * 10", ["overall >= 5"], "PASS", 5.0, "level 0.5"),
        ({}, "level * 10", ["overall > 5"], "FAIL", 5.0, "level 0.5"),
        ({}, "level / 3", ["overall == 0.166667"], "PASS", 0.166667, "level 0.5"),  # six decimals
        ({}, "fine and second", ["overall"], "PASS", True, "fine yes, second yes"),
        ({}, "level / (level - 0.5)", ["fine"], "ERROR", None, "division by 0"),
        ({}, "level * 30", ["fine"], "ERROR", None, "15 is outside the range 0 to 10"),
        ({}, "level / (level - 0.5)", ["not fine"], "FAIL", None, "division by 0"),
        ({}, "level / (level - 0.5)", ["fine", {"rule": "overall > 1", "level": "warn"}], "PASS", None, "division by 0"),
        ({"look": "half"}, "level * 10", ["second"], "ERROR", None, "level is null"),
        ({"second": "raises"}, "where(level > 0.4, level, second)", ["overall > 0"], "ERROR", 0.5, "level 0.5"),
    ],
)  # fmt: skip
def test_the_verdict_over_a_computed_metric(
    toy: Toy, case: Any, expression: str, verdict: Any, expected: str, score: Any, reason: str
) -> None:
    entry = {"expression": expression, **({} if "and" in expression else {"range": [0, 10]})}
    result = toy.run({"metadata": case}, **{**SCORED, "verdict": verdict, "metrics": {"overall": entry}})
    record = toy.record
    assert (record.verdict, record.scores["overall"]) == (expected, score), result.output
    assert record.reasons["overall"].startswith(reason)
    assert result.exit_code == {"PASS": 0, "FAIL": 1, "ERROR": 3}[expected] or record.is_unmeasured
    assert record.is_unmeasured is (record.unmeasured_metrics != () or record.graders[1].is_unmeasured
                                    or record.graders[0].is_unmeasured)  # fmt: skip


def test_a_null_metric_is_unmeasured_and_named(toy: Toy) -> None:
    result = toy.run(**{**SCORED, "metrics": {"overall": "level / (level - 0.5)"}})
    assert (result.exit_code, toy.record.unmeasured_metrics) == (3, ("overall",))
    assert toy.record.error is not None
    assert toy.record.error.message == "not measured: overall (division by 0)"
    assert toy.summary["counts"]["unmeasured"] == 1


def test_a_metric_of_an_optional_grader_may_be_null(toy: Toy) -> None:
    graders = [LOOK, {**SECOND, "optional": True}]
    metrics = {"overall": "where(second, level, 0)"}
    result = toy.run(
        {"metadata": {"second": "raises"}}, graders=graders, verdict=["fine", "overall > 0"], metrics=metrics
    )
    assert (toy.record.verdict, toy.record.scores["overall"], result.exit_code) == ("PASS", None, 0), result.output
    assert toy.record.unmeasured_metrics == ()


def test_a_grader_that_only_a_computed_metric_reads_is_needed(toy: Toy) -> None:
    warn = {"rule": "second", "level": "warn"}
    broken = {"metadata": {"second": "raises"}}
    assert toy.run(broken, graders=[LOOK, SECOND], verdict=["fine", warn]).exit_code == 0
    metrics = {"overall": "where(second, level, 0)"}
    result = toy.run(broken, graders=[LOOK, SECOND], verdict=["fine", warn, "overall > 0"], metrics=metrics)
    assert (toy.record.verdict, result.exit_code) == ("ERROR", 3)


def test_seconds_cost_and_attempts_of_a_generation(toy: Toy) -> None:
    verdict = ["fine", "seconds < 100", "cost_usd == 0.5", "attempts == 1"]
    result = toy.run(verdict=verdict, gates=["pass_rate == 1", "p50(seconds) < 100", "mean(cost_usd) <= 0.5"])
    record = toy.record
    assert (record.verdict, result.exit_code) == ("PASS", 0), result.output
    assert (record.scores["seconds"], record.scores["cost_usd"], record.scores["attempts"]) == (record.seconds, 0.5, 1)
    assert list(toy.info.metrics) == ["fine", "level", "seconds", "cost_usd", "attempts"]


def test_existing_outputs_have_no_built_in_metric(toy: Toy) -> None:
    toy.outputs("a.png")
    models = [{"provider": "files", "label": "m", "path": "a.png"}]
    result = toy.run(models=models, verdict=["fine", "seconds < 100"], gates=["pass_rate == 1", "p50(seconds) < 100"])
    assert "seconds" not in toy.record.scores
    assert (toy.record.verdict, toy.record.skipped_rules, result.exit_code) == ("PASS", ("seconds < 100",), 3)
    assert toy.summary["gates"][1]["state"] == "unmeasured"


RUBRIC: dict[str, Any] = {
    "key": "look",
    "type": "rubric",
    "metrics": {
        "layout": {"type": "score", "scale": [0, 5], "description": "The layout."},
        "color": {"type": "score", "scale": [0, 5], "description": "The color."},
    },
}
ANSWER = {"layout": 4, "color": 1, "reason": "so it is", "verdict": "PASS"}


@pytest.fixture
def paid(tmp_path: Path, api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> SuiteRunner:
    monkeypatch.setenv("LOCAL_KEY", api.key)
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    runner = SuiteRunner(tmp_path, api)
    api.script.judge(ANSWER)
    return runner


def formula(expression: str, **changes: Any) -> dict[str, Any]:
    return {"graders": [RUBRIC], "metrics": {"overall": expression}, "verdict": ["overall >= 2"], **changes}


def test_a_changed_expression_asks_no_judge(paid: SuiteRunner) -> None:
    paid.write(**formula("sqrt(layout * color)"))
    assert paid.run().exit_code == 0
    calls = paid.called
    paid.write(**formula("min(layout, color)"))
    result = paid("run", paid.folder / "suite.yaml", "--runs", paid.out, "--resume", "r")
    assert result.exit_code == 1, result.output
    assert "re-evaluated: 2 (2 metrics changed)" in result.output + result.stderr
    assert paid.called == calls
    assert [(r.verdict, r.scores) for r in paid.records().values()] == [
        ("FAIL", {"layout": 4, "color": 1, "overall": 1.0})
    ] * 2
    grade = paid("grade", "r", "--suite", paid.folder / "suite.yaml", "--runs", paid.out, "--run-id", "g")
    assert (grade.exit_code, paid.called) == (1, calls)
    paid.write(**formula("layout - 2", verdict=["overall >= 2"]))
    grade = paid("grade", "r", "--suite", paid.folder / "suite.yaml", "--runs", paid.out, "--run-id", "h")
    assert (grade.exit_code, paid.called) == (0, calls), grade.output
    assert [r.scores["overall"] for r in paid.records("h").values()] == [2.0, 2.0]


def test_built_in_metrics_survive_a_grade_and_are_missing_after_a_replay(paid: SuiteRunner) -> None:
    cache = ("--cache", str(paid.folder / "cache"))
    paid.write(**formula("layout", gates=["pass_rate == 1"]))
    paid.run(*cache)
    paid.write(**formula("layout", gates=["pass_rate == 1", "mean(cost_usd) <= 0.05", "mean(attempts) == 1"]))
    suite_file = paid.folder / "suite.yaml"
    assert paid("grade", "r", "--suite", suite_file, "--runs", paid.out, "--run-id", "g", *cache).exit_code == 0
    first, again = paid.records(), paid.records("g")
    for cell, record in again.items():
        assert (record.scores["cost_usd"], record.scores["attempts"]) == (first[cell].cost_usd, 1)
        assert (record.cost_usd, record.attempts) == (0, 0)
    paid.write(**formula("layout + 0", gates=["pass_rate == 1", "mean(cost_usd) <= 0.05", "mean(attempts) == 1"]))
    assert paid("grade", "g", "--suite", suite_file, "--runs", paid.out, "--run-id", "h", *cache).exit_code == 0
    assert paid("run", suite_file, "--runs", paid.out, "--resume", "r", *cache).exit_code == 0
    replay = paid.run(*cache, "--reuse", "all", run_id="replayed")
    assert replay.exit_code == 3, replay.output  # a gate on what was not measured
    assert all("seconds" not in record.scores for record in paid.records("replayed").values())
    listed = json.loads(paid("compare", "r", "replayed", "--runs", paid.out, "--json").stdout)
    assert listed["exit_code"] == 0  # nothing is lost


def test_compare_by_a_computed_and_by_a_built_in_metric(toy: Toy) -> None:
    metrics = {"metrics": {"overall": {"expression": "level * 10", "range": [0, 10]}}}
    cases = [{} for _ in range(4)]
    toy.run(*cases, **metrics, verdict=["level >= 0.4"], arguments=("--run-id", "a"))
    bad = [{"metadata": {"look": "bad"}} for _ in range(4)]
    toy.run(*bad, **metrics, verdict=["level >= 0.2"], arguments=("--run-id", "b"))
    result = toy("compare", "a", "b", "--fail-on", "overall:1", "--json")
    gate = json.loads(result.stdout)["gates"][0]
    assert (gate["state"], result.exit_code) == ("failed", 1)
    plain = json.loads(toy("compare", "a", "b", "--json", "--fail-on", "broken").stdout)
    assert [entry["name"] for entry in plain["metrics"]] == ["fine", "level", "overall"]
    for arguments in (("--metric", "seconds"), ("--fail-on", "seconds:1000"), ("--fail-on", "attempts:0")):
        result = toy("compare", "a", "b", "--json", *arguments)
        names = [entry["name"] for entry in json.loads(result.stdout)["metrics"]]
        assert set(names) & {"seconds", "attempts"}, result.output
    assert toy("compare", "a", "b", "--fail-on", "seconds:0.5", "--fail-on", "cost_usd:0").exit_code == 0


TAGGED = {"w": {"expression": "where(tag(easy), 5, level)", "range": [0, 5]}, "half": "w / 2"}


@pytest.mark.parametrize("kind", ["run", "baseline", "records"])
@pytest.mark.parametrize(("before", "after"), [([], ["easy"]), (["easy"], []), (["easy"], ["other"])])
def test_a_metric_is_not_compared_where_the_tags_that_it_reads_changed(
    toy: Toy, kind: str, before: list[str], after: list[str]
) -> None:
    same = [{"tags": ["easy"]}, *[{}] * 48]
    for name, tags in (("a", before), ("b", after)):
        toy.run({"tags": tags}, *same, metrics=TAGGED, verdict=["w >= 0.1"], arguments=("--run-id", name))
    toy("baseline", "set", "a")
    Path("a.jsonl").write_text(Path("runs/a/results.jsonl").read_text())
    a = {"run": "a", "baseline": "baseline", "records": "a.jsonl"}[kind]
    result = toy("compare", a, "b", "--json")
    data = json.loads(result.stdout)
    gate = next(gate for gate in data["gates"] if gate["fail_on"] == "missing-metrics")
    assert (result.exit_code, gate["state"]) == (3, "unmeasured")
    for name in ("w", "half"):
        assert f"{name} has another meaning in 1 case, because it reads their tags: case0" in gate["message"]
    pairs = {entry["name"]: entry["n_pairs"] for entry in data["metrics"]}
    assert (pairs["level"], pairs["w"], pairs["half"]) == (50, 49, 49)
    assert toy("compare", a, "b", "--allow", "missing-metrics").exit_code == 0
    assert toy("compare", a, "b", "--metric", "level").exit_code == 0


def test_tags_that_no_expression_reads_change_no_metric(toy: Toy) -> None:
    for name, tags in (("a", ["easy", "old"]), ("b", ["new", "easy"])):
        toy.run({"tags": tags}, metrics=TAGGED, verdict=["w >= 0.1"], arguments=("--run-id", name))
    result = toy("compare", "a", "b", "--json", "--fail-on", "w:0")
    assert (result.exit_code, json.loads(result.stdout)["metrics"][-1]["n_pairs"]) == (0, 1)


def test_a_gate_on_a_metric_whose_tags_changed_is_not_measured(toy: Toy) -> None:
    for name, tags in (("a", []), ("b", ["easy"])):
        cases = [*[{"tags": tags}] * 6, {"tags": ["easy"], "flaky": True}]
        toy.run(*cases, metrics=TAGGED, verdict=["w >= 0.1"], arguments=("--run-id", name))
    result = toy("compare", "a", "b", "--json", "--fail-on", "w:0")
    assert (result.exit_code, json.loads(result.stdout)["gates"][0]["state"]) == (3, "unmeasured")
    assert "better" not in toy("compare", "a", "b").stdout


def test_a_changed_expression_is_reported_by_compare(toy: Toy) -> None:
    toy.run(metrics={"overall": "level * 10"}, verdict=["overall >= 5"], arguments=("--run-id", "a"))
    path = toy.write(metrics={"overall": "level * 9"}, verdict=["overall >= 5"])
    assert toy("grade", "a", "--suite", path, "--run-id", "b", "--trust-suite").exit_code == 1
    listed = json.loads(toy("compare", "a", "b", "--json").stdout)
    assert [(entry["metric"], entry["what"]) for entry in listed["not_graded_alike"]] == [
        ("pass_rate", "computed metrics")
    ]


def test_export_report_and_plan_know_computed_metrics(toy: Toy) -> None:
    metrics = {"overall": {"expression": "level * 10 + attempts", "range": [0, None]}}
    toy.run({}, {}, metrics=metrics, verdict=["overall >= 5"], samples=2, arguments=("--run-id", "a"))
    assert toy("export", "a", "-o", toy.folder / "a.csv").exit_code == 0
    header = (toy.folder / "a.csv").read_text().splitlines()[0]
    assert header.endswith("fine,level,attempts score,overall")
    assert toy("report", "a").exit_code == 0
    result = toy("plan", toy.folder / "suite.yaml", "--trust-suite", "--detect", "overall:1", "--like", "a")
    assert "the same in all samples" in result.stderr  # known, with no variance
    results = toy.folder / "runs" / "a" / "results.jsonl"
    slower = [{**json.loads(line), "seconds": at + 1} for at, line in enumerate(results.read_text().splitlines())]
    results.write_text("".join(f"{json.dumps(record)}\n" for record in slower))
    result = toy("plan", toy.folder / "suite.yaml", "--trust-suite", "--detect", "seconds:1", "--like", "a", "--json")
    assert result.exit_code == 0, result.stderr
    result = toy("plan", toy.folder / "suite.yaml", "--trust-suite", "--detect", "overal:1")
    assert "did you mean 'overall'?" in result.stderr


def test_a_selection_of_graders_skips_what_it_cannot_compute(toy: Toy) -> None:
    more = {**SCORED, "metrics": {"overall": "where(second, level, 0)"}, "verdict": ["fine", "overall > 0"]}
    result = toy.run(**more, arguments=("--grader", "look"))
    assert (toy.record.verdict, toy.record.skipped_rules) == ("PASS", ("overall > 0",)), result.output
    assert "overall" not in toy.info.metrics


def test_gates_weighted_by_tag_and_over_quantiles(toy: Toy) -> None:
    cases = [{"tags": ["photo"]}] * 3 + [{"tags": ["logo"], "metadata": {"look": "bad"}}]
    gates: list[Any] = [
        "p50(level) >= 0.5",
        "p10(level) == 0.325",
        {"rule": "mean(level) >= 0.4166", "weights": {"photo": 2, "logo": 1}},
        {"rule": "mean(level) < 0.4168", "weights": {"photo": 2, "logo": 1}},
        {"rule": "pass_rate == 0.5", "weights": {"photo": 1, "logo": 1}},
    ]
    result = toy.run(*cases, gates=gates)
    assert result.exit_code == 0, result.output
    found = toy.summary["gates"]
    assert [gate["value"] for gate in found[:3]] == pytest.approx([0.5, 0.325, (2 * 0.5 + 0.25) / 3])
    assert "weights: photo 2, logo 1" in found[2]["scope"]
    result = toy.run(*cases, gates=gates, arguments=("--tag", "photo"))
    assert [gate["state"] for gate in toy.summary["gates"][:5]] == ["passed", "failed", *["skipped"] * 3]


def test_only_finite_scores_are_recorded(toy: Toy) -> None:
    toy.run(metrics={"big": "(level * 100) ** 200 ** 2", "fine2": "level"})
    (record,) = read_records(toy.latest)
    assert record.scores["big"] is None
    assert all(score is None or math.isfinite(score) for score in record.scores.values())
