"""New samples of metrics: how they join B's own, what is in doubt, and what they decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from compare_factory import mark, side

from visioneval import Metric, UsageError, Verdict
from visioneval.analysis.compare.compare import Comparison, compare
from visioneval.analysis.compare.confirm import Confirmation
from visioneval.analysis.compare.gates import GateResult, check_confirm, check_gates, needs_all_cases, parse_fail_on
from visioneval.analysis.compare.pairing import CaseKey
from visioneval.analysis.compare.regressed import (
    METRICS_FIRST_STEP,
    METRICS_SECOND_STEP,
    metrics_in_doubt,
    pooled_metric,
)
from visioneval.analysis.sides import Cell, Side, pooled_cell
from visioneval.types import Score

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
    item = pooled_metric(comparison, confirmation(new, name), (*comparison.metrics, *comparison.by_type)[0])
    return item.change, item.first.n_cases


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
        assert pooled(comparison, {key: [0.1, 0.3, 0.7] for key in before if key != ("c0", "m")} | {("c0", "m"): []})[
            0
        ] == (pytest.approx(-1.1 / 3 / 6))
        assert pooled(compared(before, before), {key: [0.1, 0.3, 0.7] for key in before}) == (0, 6)

    def test_the_runs_of_a_baseline_are_samples_of_their_own(self) -> None:
        """A case whose two runs have 5 and 1 varies, which their mean of 3 does not show."""
        values: Values = {(f"c{n}", "m"): [5] for n in range(4)}
        other = cells({key: [1] for key in values})
        a = side(
            [pooled_cell(both) for both in zip(cells(values), other, strict=True)], metrics={"fine": SCORE}, runs=2
        )
        b = side(cells({key: [3] for key in values}), "b", metrics={"fine": SCORE})
        comparison = compare(a, b)
        item = pooled_metric(comparison, confirmation({key: [3] for key in values}), comparison.metrics[0])
        assert [sorted(case.a) for case in item.samples] == [[[1], [5]]] * 4
        assert item.change == 0

    def test_a_null_score_lacks(self) -> None:
        comparison = compared({("c", "m"): [5], ("d", "m"): [5]}, {("c", "m"): [5], ("d", "m"): [4]})
        new = confirmation({("c", "m"): [5, 5], ("d", "m"): [5, None]})
        item = pooled_metric(comparison, new, comparison.metrics[0])
        assert list(item.new.lacking) == [("d", "m")]
        assert (item.new.unmeasured, item.new.units, item.change) == (1, 4, pytest.approx(-0.25))

    def test_a_metric_by_type_is_confirmed_too(self) -> None:
        grader = mark("gecko", "gecko")
        before: Values = {(name, "m"): [1] for name in "cd"}
        comparison = compared(before, {**before, ("c", "m"): [0]}, "gecko.counting", graders=(grader,))
        assert [item.name for item in comparison.by_type] == ["gecko.counting"]
        new = confirmation({key: [1, 1, 1] for key in before}, "gecko.counting")
        (result,) = check_gates(comparison, parse_fail_on(["gecko.counting:0.2"]), new)
        assert (result.state, result.message) == (
            "passed",
            "1 -> 0.5 (-0.5); over all samples, with 3 new samples of each case, -0.125, which decides",
        )


def fallen(cases: int, fallen_cases: int, metric: Metric = SCORE) -> Comparison:
    """Some cases fall from 5 to 2."""
    before: Values = {(f"c{number}", "m"): [5] for number in range(cases)}
    return compared(before, {key: [2 if n < fallen_cases else 5] for n, key in enumerate(before)}, metric=metric)


def confirmed(
    after: Mapping[str, Sequence[float]], others: int = 0, cases_of_others: int = 99, metric: Metric = SCORE
) -> tuple[GateResult, ...]:
    """The gate where each case has 5 in A, and in B the first of these, and the others as new samples."""
    metrics = {"fine": metric, **{f"other{n}": SCORE for n in range(others)}}

    def scores(value: float, number: int) -> dict[str, Score]:
        return {name: value if name == "fine" else 1 for name in metrics if name == "fine" or number < cases_of_others}

    def run(name: str, values: Sequence[float]) -> Side:
        of_cases = [
            Cell(case, "m", 0, Verdict.PASS, scores(value, number))
            for number, (case, value) in enumerate(zip(after, values, strict=True))
        ]
        return side(of_cases, name, metrics=metrics)

    comparison = compare(run("a", [5] * len(after)), run("b", [values[0] for values in after.values()]))
    new: dict[CaseKey, Any] = {
        (case, "m"): [scores(value, number) for value in values[1:]]
        for number, (case, values) in enumerate(after.items())
    }
    verdicts = {key: [Verdict.PASS] * len(rows) for key, rows in new.items()}
    planned = max(map(len, new.values()))
    return check_gates(comparison, parse_fail_on(["regressed"]), Confirmation(planned, verdicts, scores=new))


class TestDoubt:
    @pytest.mark.parametrize(
        ("cases", "fallen_cases", "is_in_doubt"),
        [
            (8, 0, False),
            (8, 1, False),  # p .49
            (8, 2, True),  # p .25
            (8, 6, True),  # p .0105
            (8, 7, False),  # p .003, which the first step fails
            (4, 4, True),  # p .06: too few for one step
            (2, 2, False),  # p .36
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

    @pytest.mark.parametrize(("others", "state"), [(0, "failed"), (1, "passed")])
    def test_metrics_are_counted_in_the_second_step(self, others: int, state: str) -> None:
        """3 of 8 cases fall in both samples of B: p 1/27, a mid-p of half of that, below .04 for a single metric.

        Another metric counts though it did not change, so that one step would not count it.
        """
        (result,) = confirmed({f"c{n}": [2, 2] if n < 3 else [5, 5] for n in range(8)}, others=others)
        assert result.state == state
        assert f"{'' if state == 'failed' else 'not '}below 0.04)" in result.message

    def test_a_metric_that_two_cases_have_does_not_count(self) -> None:
        """No first step leaves a doubt about so few, so that doubt and decision count the same metrics."""
        after = {f"c{n}": [2, 2] if n < 3 else [5, 5] for n in range(8)}
        (result,) = confirmed(after, others=1, cases_of_others=2)
        assert result.state == "failed"
        (result,) = confirmed(after, others=1, cases_of_others=3)
        assert result.state == "passed"

    @pytest.mark.parametrize(("others", "state"), [(4, "failed"), (9, "cannot_tell")])
    def test_too_few_samples_for_as_many_metrics_cannot_tell(self, others: int, state: str) -> None:
        """Five of five cases, which one step would fail, are at best p 1/243 with one new sample, a mid-p of .0041."""
        (result,) = confirmed({f"c{n}": [2, 2] for n in range(5)}, others=others)
        assert result.state == state
        assert ("too few cases and samples" in result.message) == (state == "cannot_tell")

    def test_what_one_step_passes_is_never_too_few(self) -> None:
        """Four cases and metrics, p .24: without new samples it passes, and with one that cannot show it, too."""
        (result,) = confirmed({f"c{n}": [2, 2] for n in range(4)}, others=3)
        assert result.state == "passed"
        assert "is not confirmed" in result.message

    @pytest.mark.parametrize(("better", "state"), [("higher", "passed"), ("lower", "failed")])
    def test_a_metric_of_which_less_is_better(self, better: Any, state: str) -> None:
        metric = SCORE.model_copy(update={"better": better})
        (result,) = confirmed({f"c{n}": [8] * 4 if n < 5 else [5] * 4 for n in range(8)}, metric=metric)
        assert result.state == state
        assert ("fine +1.88 was uncertain" in result.message) == (state == "failed")

    @pytest.mark.parametrize(("new", "state"), [([5] * 9, "passed"), ([2] * 9, "failed")])
    def test_a_metric_that_was_not_in_doubt_is_tested_by_all_samples(self, new: list[float], state: str) -> None:
        """The run's own samples show nothing. The value of the gate is worse only where all samples are."""
        after: dict[str, list[float]] = {f"c{n}": [5, *(new if n < 4 else [5] * 9)] for n in range(8)}
        (result,) = confirmed(after)
        assert result.state == state
        assert "uncertain" not in result.message
        if state == "failed":
            assert result.message.startswith("fine with 9 new samples of each case -1.35 (p 0.0")

    @pytest.mark.parametrize(("letter", "state"), [("P", "passed"), ("F", "failed")])
    def test_a_pass_rate_that_was_not_in_doubt_is_tested_by_all_samples(self, letter: str, state: str) -> None:
        before: Values = {(f"c{n}", "m"): [5] for n in range(8)}
        new = confirmation({key: [5] * 3 for key in before})
        verdict = {"P": Verdict.PASS, "F": Verdict.FAIL}[letter]
        new = replace(new, verdicts={key: [verdict] * 3 for key in before})
        (result,) = check_gates(compared(before, before), parse_fail_on(["regressed"]), new)
        assert result.state == state
        assert result.message.startswith("pass_rate with 3 new samples") == (state == "failed")

    def test_the_same_samples_always_have_the_same_result(self) -> None:
        after = {f"c{n}": [2, 5 - n % 3] for n in range(8)}
        assert confirmed(after) == confirmed(after)


class TestLacking:
    """8 cases x 3 new samples, 5 of them fallen."""

    @pytest.mark.parametrize(
        ("lost", "granted", "state"),
        [(1, 0, "failed"), (2, 0, "unmeasured"), (2, 0.1, "failed"), (3, 0.1, "unmeasured")],
    )
    @pytest.mark.parametrize("is_error", [False, True])
    def test_some_may_lack_the_score(self, lost: int, granted: float, state: str, is_error: bool) -> None:
        """5 % of 24 are one."""
        comparison = fallen(8, 5)
        new: dict[tuple[str, str], list[float | None]] = {(f"c{n}", "m"): [2 if n < 5 else 5] * 3 for n in range(8)}
        new["c7", "m"][:lost] = [None] * lost
        confirmed = confirmation(new)
        if is_error:
            scores = {
                key: [item for item in rows if item["fine"] is not None] for key, rows in confirmed.scores.items()
            }
            verdicts = {**confirmed.verdicts, ("c7", "m"): [Verdict.ERROR] * lost + [Verdict.PASS] * (3 - lost)}
            confirmed = replace(confirmed, scores=scores, verdicts=verdicts)
        for result in check_gates(comparison, parse_fail_on(["regressed", "fine:0.5"]), confirmed, granted):
            assert result.state == state, result.message
            assert (": c7 (--allow" in result.message) == (state == "unmeasured")
            assert f"{lost} of 24 new samples " in result.message

    def test_a_sample_to_which_the_metric_does_not_apply_lacks_nothing(self) -> None:
        comparison = fallen(8, 5)
        new = confirmation({(f"c{n}", "m"): [2 if n < 5 else 5] * 3 for n in range(8)})
        scores: dict[CaseKey, Any] = {**new.scores, ("c7", "m"): [{}, {}, {}], ("c6", "m"): [{}, {"fine": 5}, {}]}
        results = check_gates(comparison, parse_fail_on(["regressed", "fine:0.5"]), replace(new, scores=scores))
        assert [result.state for result in results] == ["failed", "failed"]

    def test_cases_that_never_have_the_metric_lack_nothing(self) -> None:
        comparison = fallen(8, 5)
        other = [Cell(f"d{n}", "m", 0, Verdict.PASS, {}) for n in range(4)]
        metrics = {"fine": SCORE}
        both = (tuple(pair.a for pair in comparison.pairs), tuple(pair.b for pair in comparison.pairs))
        a, b = ((*cells_of_side, *other) for cells_of_side in both)
        comparison = compare(side(a, metrics=metrics), side(b, "b", metrics=metrics))
        (result,) = check_gates(comparison, parse_fail_on(["fine:0.5"]), Confirmation(3, {}, "no key"))
        assert "8 cases could not be confirmed (no key)" in result.message


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

    @pytest.mark.parametrize("gate", ["fine:0.5", "pass_rate:0.1"])
    def test_flaky_cases_need_no_new_samples(self, gate: str) -> None:
        before: Values = {(f"c{n}", "m"): [5] for n in range(8)}
        after = {key: [2 if n < 5 else 5] for n, key in enumerate(before)}
        assert not needs_all_cases(compared(before, after, flaky=True), parse_fail_on([gate])[0])
        assert needs_all_cases(compared(before, after), parse_fail_on(["fine:0.5"])[0])

    @pytest.mark.parametrize(
        ("change", "text"), [(-0.0003, "-0.03 points"), (-0.0006, "-0.1 points"), (-0.125, "-12.5 points")]
    )
    def test_a_small_change_of_a_rate_is_no_zero(self, change: float, text: str) -> None:
        comparison = fallen(8, 0)
        rate = replace(comparison.pass_rate, difference=change, p=0.001)
        (result,) = check_gates(replace(comparison, pass_rate=rate), parse_fail_on(["regressed"]))
        assert result.message == f"pass_rate {text} (p 0.001)"

    def test_a_single_case_has_no_interval_and_is_in_doubt(self) -> None:
        assert needs_all_cases(fallen(1, 1), parse_fail_on(["fine:0.5"])[0])

    def test_which_gates_are_confirmed(self) -> None:
        check_confirm(3, parse_fail_on(["fine:1"]))
        with pytest.raises(UsageError, match="regressed, must_pass and METRIC:NUMBER"):
            check_confirm(3, parse_fail_on(["broken", "broken_same_output"]))
