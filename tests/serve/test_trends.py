"""The lines over the runs of an experiment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from visioneval.serve.index import HEIGHT, MAX_POINTS, PAD, WIDTH, Trend, experiment_trends, trends
from visioneval.serve.listing import RunRow, SummaryPart

PART = SummaryPart(
    passed=1,
    failed=1,
    errors=0,
    pass_rate=0.5,
    low=None,
    high=None,
    exit_code=0,
    cost_usd=None,
    unpriced=0,
    metrics={"look": 0.5, "look.score": 3.0, "other": 1.0},
    ranges={"look": (0.0, 1.0), "look.score": (0.0, 5.0), "other": None},
    shares=frozenset({"look"}),
    deciding=("look", "look.score"),
    failure_tags={},
)


def row(number: int, **changes: Any) -> RunRow:
    return RunRow(f"run-{number}", tone="pass", summary=replace(PART, **changes))


def test_runs_of_two_suites_are_two_lines() -> None:
    rows = [replace(row(number, pass_rate=number / 4), suite="ab"[number % 2]) for number in range(1, 5)]
    lines = named(experiment_trends([*rows, replace(row(5), suite="alone")]))
    assert [name for name in lines if "Pass" in name] == ["b: Pass rate", "a: Pass rate"]
    assert [len(lines[f"{suite}: Pass rate"].points) for suite in "ab"] == [2, 2]
    assert "Pass rate" in named(experiment_trends(rows[::2])), "one suite needs no name"


def named(lines: list[Trend]) -> dict[str, Trend]:
    return {line.name: line for line in lines}


def test_a_rate_goes_from_the_bottom_to_the_top() -> None:
    line = named(trends([row(1, pass_rate=0.0), row(2, pass_rate=0.5), row(3, pass_rate=1.0)]))["Pass rate"]
    assert [(point.x, point.y) for point in line.points] == [
        (PAD, HEIGHT - PAD),
        (WIDTH / 2, HEIGHT / 2),
        (WIDTH - PAD, PAD),
    ]
    assert line.last == "100.0\u202f%"
    assert line.text == "Pass rate over 3 runs, oldest first: 0.0\u202f%, 50.0\u202f%, 100.0\u202f%"


def test_an_unmeasured_value_is_a_gap_and_not_zero() -> None:
    rows = [row(1), row(2), row(3, pass_rate=None), row(4), row(5), row(6, pass_rate=None)]
    line = named(trends(rows))["Pass rate"]
    assert len(line.paths) == 2
    assert len(line.points) == 4
    assert line.last == "not measured"
    assert line.text.endswith("50.0\u202f%, 50.0\u202f%, not measured, 50.0\u202f%, 50.0\u202f%, not measured")


def test_metrics_are_those_that_decide_or_those_asked_for() -> None:
    rows = [row(1), row(2)]
    assert list(named(trends(rows))) == ["Pass rate", "look.score", "look"]
    assert list(named(trends(rows, ["oth*"]))) == ["Pass rate", "other"]
    assert list(named(trends(rows, ["none"]))) == ["Pass rate"]
    assert named(trends(rows))["look"].high == "100.0\u202f%"
    assert named(trends(rows))["look.score"].high == "5"


def test_a_metric_without_a_range_uses_its_values() -> None:
    line = named(trends([row(1, metrics={"other": 2.0}), row(2, metrics={"other": 4.0})], ["other"]))["other"]
    assert (line.low, line.high) == ("2", "4")
    assert [point.y for point in line.points] == [HEIGHT - PAD, PAD]
    level = named(trends([row(1), row(2)], ["other"]))["other"]
    assert [point.y for point in level.points] == [HEIGHT / 2] * 2


def test_cost_and_failure_tags_have_lines_where_there_are_any() -> None:
    lines = named(trends([row(1, cost_usd=1.0), row(2, cost_usd=2.0, failure_tags={"spill": 1})]))
    assert lines["Cost, USD"].low == "0.0000"
    assert [point.text for point in lines["Cells tagged spill"].points] == ["run-1: 0.0\u202f%", "run-2: 50.0\u202f%"]


def test_runs_without_figures_are_left_out() -> None:
    assert trends([row(1)]) == []
    assert trends([row(1), RunRow("run-2", state="running")]) == []
    line = named(trends([row(1), RunRow("run-2", state="running"), row(3)]))["Pass rate"]
    assert [point.x for point in line.points] == [PAD, WIDTH - PAD]


def test_a_line_has_the_last_runs() -> None:
    line = named(trends([row(number) for number in range(MAX_POINTS + 50)]))["Pass rate"]
    assert len(line.points) == MAX_POINTS
    assert line.points[0].text.startswith("run-50:")
    assert line.text.startswith(f"Pass rate over the last 12 of {MAX_POINTS} runs")


def test_a_metric_whose_meaning_changed_is_a_line_for_each_meaning() -> None:
    small, large = ({"look.score": f"number from 0 to {high}"} for high in (5, 100))
    rows = [row(1, meanings=small), row(2, meanings=small), row(3, meanings={}), row(4, meanings=large)]
    lines = named(trends(rows))
    assert [name for name in lines if "look" in name] == [
        "look.score (number from 0 to 5)",
        "look.score (number from 0 to 100)",
        "look",
    ]
    assert [len(lines[f"look.score (number from 0 to {high})"].points) for high in (5, 100)] == [3, 1]
    assert "look.score" in named(trends([row(0, meanings={}), *rows[:3]])), "one meaning needs no name"
