"""What pairs of answers come to: wins, ties, flips, errors, and the interval of the win rate."""

from __future__ import annotations

from typing import Any

import pytest
from statsmodels.stats.proportion import proportion_confint

from visioneval.analysis.compare.preferences import summarize_preferences, win_interval
from visioneval.records.preferences import Preference


def asked(case: str, first: str, answer: Any, sample: int = 0, **more: Any) -> Preference:
    known = {"a": "r@x", "b": "r@y", "judge": "j", "reason": None, "error": None if answer else "down", **more}
    return Preference(test_id=case, sample_index=sample, first=first, answer=answer, **known)


def pair(case: str, one: Any, other: Any, sample: int = 0, **more: Any) -> list[Preference]:
    return [asked(case, "a", one, sample, **more), asked(case, "b", other, sample, **more)]


@pytest.mark.parametrize(
    ("one", "other", "result"),
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
def test_both_orders_make_one_result(one: Any, other: Any, result: str) -> None:
    (found,) = summarize_preferences(pair("one", one, other))
    assert [each.result for each in found.pairs] == [result]
    rate = {"a": 0.0, "b": 1.0, "tie": 0.5, "flip": 0.5, "error": None}[result]
    assert found.rate == rate
    assert (found.interval is None) == (result == "error")
    assert found.judged == (result != "error")


def test_an_order_that_was_never_asked_is_no_answer() -> None:
    (found,) = summarize_preferences([asked("one", "a", "b")])
    assert (found.errors, found.judged, found.rate) == (1, 0, None)


def test_ties_count_half_and_errors_for_nobody() -> None:
    lines = [*pair("1", "b", "b"), *pair("2", "a", "b"), *pair("3", "tie", "tie"), *pair("4", "b", None)]
    (found,) = summarize_preferences(lines)
    assert (found.count("b"), found.count("a"), found.ties, found.flips, found.errors) == (1, 0, 2, 1, 1)
    assert found.rate == pytest.approx(2 / 3)
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx(proportion_confint(2, 3, method="wilson"))


def test_other_judges_and_other_runs_are_findings_of_their_own() -> None:
    lines = [*pair("1", "b", "b"), *pair("1", "a", "a", judge="k"), *pair("1", "tie", "tie", b="s@y")]
    assert [(each.b, each.judge, each.rate) for each in summarize_preferences(lines)] == [
        ("r@y", "j", 1.0), ("r@y", "k", 0.0), ("s@y", "j", 0.5)
    ]  # fmt: skip
    assert summarize_preferences([]) == ()


def test_samples_of_a_case_are_not_independent() -> None:
    cases = {f"c{at}": "b" if at < 12 else "a" for at in range(20)}
    lines = [line for case, won in cases.items() for sample in range(5) for line in pair(case, won, won, sample)]
    (found,) = summarize_preferences(lines)
    assert found.rate == pytest.approx(0.6)
    assert found.interval is not None
    low, high = proportion_confint(60, 100, method="wilson")
    assert found.interval.high - found.interval.low > 1.8 * (high - low)
    assert found.interval.low == pytest.approx(proportion_confint(12, 20, method="normal")[0], abs=0.03)


def test_cases_that_are_all_alike_still_have_an_interval() -> None:
    assert win_interval([3.0] * 8, [3] * 8).low == pytest.approx(proportion_confint(8, 8, method="wilson")[0])
    assert win_interval([2.0, 1.0], [2, 2]).high == pytest.approx(proportion_confint(1.5, 2, method="wilson")[1])
    with pytest.raises(ValueError, match="max"):
        win_interval([], [])
