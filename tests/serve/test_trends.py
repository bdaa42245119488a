"""The lines over the runs of a suite of an experiment."""

from __future__ import annotations

from typing import Any

from record_factory import record, run_of

from visioneval.analysis.summary.summary import Summary, summarize
from visioneval.serve.index import HEIGHT, MAX_POINTS, PAD, WIDTH, RunRow, Trend, series, trends

METRICS = {
    "look": {"type": "bool"},
    "look.score": {"type": "number", "range": [0, 5]},
    "other": {"type": "number"},
    "large": {"type": "number"},
}
INFO = run_of({"one": {}, "two": {}}, ["m"], [], METRICS)
BASE = summarize(
    INFO, [record(test_id=case, scores={"look": case == "one", "look.score": 3}) for case in ("one", "two")]
)


def row(number: int, *, means: dict[str, float] | None = None, **changes: Any) -> RunRow:
    """A run; ``means`` replace those of metrics, ``pass_rate`` its rate, and the rest are fields of its summary."""
    estimates = {name: {"value": value, "n": 2} for name, value in (means or {}).items()}
    data = BASE.model_dump()
    data["models"][0]["metrics"] |= estimates
    data["counts"]["pass_rate"]["value"] = changes.pop("pass_rate", 0.5)
    summary = Summary.model_validate({**data, "deciding_metrics": ("look", "look.score"), "cost_usd": None, **changes})
    return RunRow(f"run-{number}", experiment="nightly", suite="demo", tone="pass", summary=summary)


def named(lines: list[Trend]) -> dict[str, Trend]:
    return {line.name: line for line in lines}


def rows(*pass_rates: float | None) -> list[RunRow]:
    return [row(number, pass_rate=rate) for number, rate in enumerate(pass_rates, 1)]


def test_suites_and_experiments_are_series_of_their_own() -> None:
    def named_row(number: int, experiment: str, suite: str) -> RunRow:
        return RunRow(f"run-{number}", experiment=experiment, suite=suite, summary=BASE)

    listed = [named_row(1, "x", "a"), named_row(2, "x", "b"), named_row(3, "", "a"), named_row(4, "x", "a")]
    listed += [RunRow("run-5", experiment="x", suite="a", state="running"), named_row(6, "y", "b")]
    found = {key: [row.run_id for row in members] for key, members in series(listed).items()}
    assert found == {("y", "b"): ["run-6"], ("x", "a"): ["run-1", "run-4"], ("x", "b"): ["run-2"]}
    assert list(found) == [("y", "b"), ("x", "a"), ("x", "b")], "the newest first"


def test_a_rate_goes_from_the_bottom_to_the_top() -> None:
    line = named(trends(rows(0.0, 0.5, 1.0)))["Pass rate"]
    assert [(point.x, point.y) for point in line.points] == [
        (PAD, HEIGHT - PAD),
        (WIDTH / 2, HEIGHT / 2),
        (WIDTH - PAD, PAD),
    ]
    assert line.last == "100 %"
    assert line.text == "Pass rate over 3 runs, oldest first: 0 %, 50 %, 100 %"


def test_two_values_are_no_line() -> None:
    assert trends(rows(0.0, 1.0)) == []
    assert "Pass rate" not in named(trends(rows(0.0, 1.0, None)))
    assert "Pass rate" in named(trends(rows(0.0, 1.0, None, 1.0)))


def test_an_unmeasured_value_is_a_gap_and_not_zero() -> None:
    line = named(trends(rows(0.5, 0.5, None, 0.5, None, 0.5, 0.5, None)))["Pass rate"]
    assert len(line.paths) == 2
    assert len(line.points) == 5
    assert line.last == "not measured"
    assert line.text.endswith("not measured, 50 %, 50 %, not measured")


def test_metrics_are_those_that_decide_or_those_asked_for() -> None:
    runs = [row(number, means={"other": 2.0}) for number in range(3)]
    assert list(named(trends(runs))) == ["Pass rate", "look.score", "look"]
    assert list(named(trends(runs, ["oth*"]))) == ["Pass rate", "other"]
    assert list(named(trends(runs, ["none"]))) == ["Pass rate"]


def test_values_have_their_units() -> None:
    lines = named(trends([row(number, means={"look.score": 8 / 3, "look": 2 / 3}) for number in range(3)]))
    score, share = lines["look.score"], lines["look"]
    assert (score.last, score.low, score.high, score.points[0].text) == ("2.67 of 5", "0", "5", "run-0: 2.67 of 5")
    assert (share.last, share.low, share.high) == ("66.7 %", "0 %", "100 %")


def test_a_metric_without_a_range_uses_its_values() -> None:
    lines = named(trends([row(at, means={"other": 2.0 + at, "large": 1234.5}) for at in range(3)], ["other", "large"]))
    assert (lines["other"].low, lines["other"].high) == ("2", "4")
    assert [point.y for point in lines["other"].points] == [HEIGHT - PAD, HEIGHT / 2, PAD]
    assert [point.y for point in lines["large"].points] == [HEIGHT / 2] * 3
    assert lines["large"].last == "1,234"


def test_cost_and_failure_tags_have_lines_where_there_are_any() -> None:
    lines = named(trends([row(1, cost_usd=1.0), row(2, cost_usd=2.0, failure_tags={"spill": 1}), row(3, cost_usd=1.0)]))
    assert lines["Cost, USD"].low == "0.0000"
    assert [point.text for point in lines["Cells tagged spill"].points] == ["run-1: 0 %", "run-2: 50 %", "run-3: 0 %"]


def test_a_line_has_the_last_runs() -> None:
    line = named(trends([row(number) for number in range(MAX_POINTS + 50)]))["Pass rate"]
    assert len(line.points) == MAX_POINTS
    assert line.points[0].text.startswith("run-50:")
    assert line.text.startswith(f"Pass rate over the last 12 of {MAX_POINTS} runs")


def test_a_metric_whose_meaning_changed_is_a_line_for_each_meaning() -> None:
    def metrics(high: int) -> dict[str, Any]:
        return {**BASE.model_dump()["metrics"], "look.score": {"type": "number", "range": [0, high]}}

    without = {name: metric for name, metric in metrics(5).items() if name != "look.score"}
    runs = [row(at, metrics=metrics(5) if at < 3 else metrics(100)) for at in range(6)]
    lines = named(trends([*runs, row(7, metrics=without)]))
    assert [name for name in lines if "score" in name] == [
        "look.score (number from 0 to 5, higher is better)",
        "look.score (number from 0 to 100, higher is better)",
    ]
    assert [line.high for name, line in lines.items() if "score" in name] == ["5", "100"]
    assert "look.score" in named(trends([row(7, metrics=without), *runs[:3]])), "one meaning needs no name"
