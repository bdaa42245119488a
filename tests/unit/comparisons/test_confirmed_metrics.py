"""New samples of metrics: how they join B's own, what is in doubt, and what they decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from compare_factory import mark, side

from visioneval.analysis.cells import Cell
from visioneval.analysis.compare.compare import Comparison, compare
from visioneval.analysis.compare.doubt import METRICS_FIRST_STEP, METRICS_SECOND_STEP, metrics_in_doubt
from visioneval.analysis.compare.gates import check_confirm, check_gates, needs_all_cases, parse_fail_on
from visioneval.analysis.compare.must_pass import CaseKey, Confirmation
from visioneval.analysis.compare.pooled import pooled_metrics
from visioneval.errors import UsageError
from visioneval.types import Metric, Verdict

SCORE = Metric(type="number", range=(0, 5), better="higher")
Values = Mapping[tuple[str, str], Sequence[float | None]]


def cells(values: Values, name: str = "fine", **changes: Any) -> list[Cell]:
    """Cells that all pass, with these scores of the samples of each case on each model run."""
    return [
        Cell(case, label, sample, Verdict.PASS, {name: score}, **changes)
        for (case, label), scores in values.items()
        for sample, score in enumerate(scores)
    ]


def compared(before: Values, after: Values, name: str = "fine", metric: Metric = SCORE, **changes: Any) -> Comparison:
    metrics = {name: metric}
    a, b = cells(before, name, **changes), cells(after, name, **changes)
    return compare(side(a, metrics=metrics), side(b, "b", metrics=metrics))


def confirmation(new: Values, name: str = "fine", stopped: str | None = None) -> Confirmation:
    planned = max(map(len, new.values()), default=3)
    scores: dict[CaseKey, Any] = {key: [{name: value} for value in values] for key, values in new.items()}
    verdicts = {key: [Verdict.PASS] * len(values) for key, values in new.items()}
    return Confirmation(planned, verdicts, stopped, scores)


def pooled(comparison: Comparison, new: Values, name: str = "fine") -> tuple[float | None, int]:
    (item,) = pooled_metrics(comparison, confirmation(new, name), [*comparison.metrics, *comparison.by_type])
    return item.difference.difference, item.difference.n_cases


class TestPooling:
    def test_samples_of_a_case_count_the_same_and_cases_too(self) -> None:
        comparison = compared({("c", "m"): [4], ("d", "m"): [4, 4]}, {("c", "m"): [1], ("d", "m"): [4, 4]})
        change, cases = pooled(comparison, {("c", "m"): [4, 4], ("d", "m"): [4, 1]})
        assert (change, cases) == (pytest.approx((-1 - 0.75) / 2), 2)

    def test_a_model_run_with_more_samples_keeps_its_share(self) -> None:
        """The runs differ by their model alone, so no new sample may shift the weights of models."""
        runs: Values = {("c", "good"): [5], ("c", "bad"): [1, 1, 1], ("d", "good"): [5], ("d", "bad"): [1, 1, 1]}
        comparison = compared(runs, runs)
        assert pooled(comparison, {key: [values[0] or 0] * 3 for key, values in runs.items()}) == (0, 2)

    def test_turns_are_one_case(self) -> None:
        before: Values = {("c/1", "m"): [5], ("c/2", "m"): [5], ("d", "m"): [5]}
        comparison = compared(before, {**before, ("c/2", "m"): [3]})
        assert pooled(comparison, {("c/1", "m"): [5], ("c/2", "m"): [5], ("d", "m"): [5]}) == (-0.25, 2)

    def test_a_case_that_did_not_change_is_none_that_differs(self) -> None:
        """Neither the sum of .1, .2 and .3 nor its mean is exact."""
        before: Values = {(f"c{number}", "m"): [0.1, 0.7, 0.3] for number in range(6)}
        comparison = compared(before, {**before, ("c0", "m"): [0, 0, 0]})
        (item,) = pooled_metrics(comparison, confirmation({key: [0.1, 0.3, 0.7] for key in before}), comparison.metrics)
        assert item.difference.changed_cases == 1

    def test_a_null_score_lacks(self) -> None:
        comparison = compared({("c", "m"): [5], ("d", "m"): [5]}, {("c", "m"): [5], ("d", "m"): [4]})
        (item,) = pooled_metrics(
            comparison, confirmation({("c", "m"): [5, 5], ("d", "m"): [5, None]}), comparison.metrics
        )
        assert item.lacking == (("d", "m"),)

    def test_a_metric_by_type_is_confirmed_too(self) -> None:
        grader = mark("gecko", "gecko")
        before: Values = {(name, "m"): [1] for name in "cd"}
        comparison = compared(before, {**before, ("c", "m"): [0]}, "gecko.counting", graders=(grader,))
        assert [item.name for item in comparison.by_type] == ["gecko.counting"]
        new = confirmation({key: [1, 1, 1] for key in before}, "gecko.counting")
        (result,) = check_gates(comparison, parse_fail_on(["gecko.counting:0.2"]), new)
        assert (result.state, result.message) == (
            "passed",
            "1 -> 0.5 (-0.5); with 3 new samples of each case -0.125: not confirmed",
        )


def fallen(cases: int, fallen_cases: int, metric: Metric = SCORE) -> Comparison:
    """Some cases fall from 5 to 2."""
    before: Values = {(f"c{number}", "m"): [5] for number in range(cases)}
    return compared(before, {key: [2 if n < fallen_cases else 5] for n, key in enumerate(before)}, metric=metric)


class TestDoubt:
    @pytest.mark.parametrize(
        ("cases", "fallen_cases", "is_in_doubt"),
        [
            (8, 0, False),
            (8, 1, False),  # p .49
            (8, 2, True),  # p .25
            (8, 6, True),  # p .0105
            (8, 7, False),  # p .003, which the first step fails
            (4, 4, False),  # no number of samples decides four cases
        ],
    )
    def test_what_is_worse_and_not_sure(self, cases: int, fallen_cases: int, is_in_doubt: bool) -> None:
        comparison = fallen(cases, fallen_cases)
        assert bool(metrics_in_doubt(comparison)) == is_in_doubt
        assert needs_all_cases(comparison, parse_fail_on(["regressed"])[0]) == is_in_doubt

    @pytest.mark.parametrize(("better", "is_in_doubt"), [("lower", False), ("none", False), ("higher", True)])
    def test_only_what_is_worse(self, better: Any, is_in_doubt: bool) -> None:
        assert bool(metrics_in_doubt(fallen(8, 5, SCORE.model_copy(update={"better": better})))) == is_in_doubt

    def test_both_steps_together_are_the_level_of_one(self) -> None:
        assert pytest.approx(0.05) == METRICS_FIRST_STEP + METRICS_SECOND_STEP

    @pytest.mark.parametrize(
        ("stopped", "state", "message"),
        [
            (None, "cannot_tell", "only new samples of all cases can decide, and must_pass failed without them"),
            ("the budget is used up", "unmeasured", "8 cases could not be confirmed (the budget is used up)"),
        ],
    )
    def test_without_new_samples(self, stopped: str | None, state: str, message: str) -> None:
        comparison, gates = fallen(8, 5), parse_fail_on(["regressed", "fine:0.5"])
        for result in check_gates(comparison, gates, Confirmation(3, {}, stopped, failed=("must_pass",))):
            assert result.state == state
            assert message in result.message

    def test_metrics_are_counted_in_the_second_step(self) -> None:
        """5 of 8 is p .027, which is below .04 alone, and not with another metric that changed as much."""
        names = {(f"c{number}", "m"): [5] for number in range(8)}
        after = {key: [2 if n < 5 else 5] for n, key in enumerate(names)}
        new: dict[CaseKey, Any] = {}
        a, b = cells(names), cells(after)
        metrics = {"fine": SCORE, "other": SCORE}
        for n, (old, cell) in enumerate(zip(a, b, strict=True)):
            old.scores = {"fine": 5, "other": 2}
            cell.scores = {"fine": cell.scores["fine"], "other": 5 if n < 7 else 2}
            new[cell.test_id, "m"] = [cell.scores] * 3
        verdicts = {key: [Verdict.PASS] * 3 for key in new}
        states = []
        for chosen in (("fine",), ("fine", "other")):
            kept = {name: metrics[name] for name in chosen}
            comparison = compare(side(a, metrics=kept), side(b, "b", metrics=kept))
            (result,) = check_gates(comparison, parse_fail_on(["regressed"]), Confirmation(3, verdicts, scores=new))
            states.append(result.state)
        assert states == ["failed", "passed"]


class TestBounds:
    @pytest.mark.parametrize(
        ("fallen_cases", "gate", "needs"),
        [
            (5, "fine:0.5", True),
            (5, "fine:2", False),  # within the bound
            (8, "fine:0.1", False),  # surely worse by more
            (5, "pass_rate:0.1", False),
            (5, "broken", False),
        ],
    )
    def test_only_a_failure_that_is_not_sure_needs_new_samples(self, fallen_cases: int, gate: str, needs: bool) -> None:
        assert needs_all_cases(fallen(8, fallen_cases), parse_fail_on([gate])[0]) == needs

    def test_a_single_case_has_no_interval_and_is_in_doubt(self) -> None:
        assert needs_all_cases(fallen(1, 1), parse_fail_on(["fine:0.5"])[0])

    def test_which_gates_are_confirmed(self) -> None:
        check_confirm(3, parse_fail_on(["fine:1"]))
        with pytest.raises(UsageError, match="regressed, must_pass and METRIC:NUMBER"):
            check_confirm(3, parse_fail_on(["broken", "broken_same_output"]))
