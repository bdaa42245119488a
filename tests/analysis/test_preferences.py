"""Pairwise preferences: wins, ties, flips, errors, and the interval of the win rate."""

from __future__ import annotations

from typing import Any

import pytest
from preference_factory import pair, preference

from visioneval.analysis.preferences import (
    PreferencePanel,
    never_asked_pairs,
    summarize_preferences,
    unjudged,
)
from visioneval.analysis.stats.intervals import rate_interval


@pytest.mark.parametrize(
    ("first_answer", "second_answer", "result"),
    [
        ("a", "a", "a"),
        ("b", "b", "b"),
        ("tie", "tie", "tie"),
        ("a", "b", "flip"),
        ("b", "a", "flip"),
        ("tie", "b", "flip"),
        ("b", None, "error"),
        (None, None, "error"),
    ],
)
def test_both_orders_give_one_result(first_answer: Any, second_answer: Any, result: str) -> None:
    (summary,) = summarize_preferences(pair("one", first_answer, second_answer))
    assert [finding.result for finding in summary.pairs] == [result]
    rate = {"a": 0.0, "b": 1.0, "tie": 0.5, "flip": 0.5, "error": None}[result]
    assert summary.rate == rate
    assert (summary.interval is None) == (result == "error")
    assert summary.judged == (result != "error")


@pytest.mark.parametrize(
    ("lines", "result"),
    [
        (pair("one", "b", "b", judge="k"), "b"),
        (pair("one", None, None, judge="k"), "b"),
        (pair("one", None, None, judge="k", never_asked=True), "error"),
        ([preference("one", "a", "b", judge="k"), preference("one", "b", None, judge="k", never_asked=True)], "error"),
        ([preference("one", "a", "b", judge="k")], "error"),
        ([], "error"),
    ],
)
def test_a_quorum_excuses_a_judge_that_is_down_and_none_that_was_never_asked(lines: Any, result: str) -> None:
    panel = PreferencePanel("better", ("j", "k"), required=1)
    findings = summarize_preferences([*pair("one", "b", "b"), *lines], [panel])
    assert [finding.result for finding in findings[-1].pairs] == [result]
    assert unjudged(findings) == (result == "error")
    assert [(entry.name, entry.number) for entry in never_asked_pairs(findings)] == (
        [("k", 1)] if lines and result == "error" else []
    )


def test_missing_order_is_an_error() -> None:
    (summary,) = summarize_preferences([preference("one", "a", "b")])
    assert (summary.errors, summary.judged, summary.rate) == (1, 0, None)


def test_ties_count_half_and_errors_do_not_count() -> None:
    lines = [*pair("1", "b", "b"), *pair("2", "a", "b"), *pair("3", "tie", "tie"), *pair("4", "b", None)]
    (summary,) = summarize_preferences(lines)
    assert (summary.count("b"), summary.count("a"), summary.ties, summary.flips, summary.errors) == (1, 0, 2, 1, 1)
    assert summary.rate == pytest.approx(2 / 3)
    assert summary.interval == rate_interval([(1.0, 1), (0.5, 1), (0.5, 1)], ties=2)


def test_judges_and_runs_are_summarized_separately() -> None:
    lines = [*pair("1", "b", "b"), *pair("1", "a", "a", judge="k"), *pair("1", "tie", "tie", b="s@y")]
    assert [(finding.b, finding.judge, finding.rate) for finding in summarize_preferences(lines)] == [
        ("r@y", "j", 1.0), ("r@y", "k", 0.0), ("s@y", "j", 0.5)
    ]  # fmt: skip
    assert summarize_preferences([]) == ()
