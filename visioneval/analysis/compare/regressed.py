"""The gate ``regressed``: whether B is worse than A by more than chance, in all cases together or in one of them. Pure.

Tests are one-sided. The pass rate and the single cases share 5 %, half for each; the other metrics share 5 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Literal

from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.differences import ALPHA, CASE_ALPHA, Difference
from visioneval.analysis.compare.tallies.verdicts import CasePasses
from visioneval.analysis.stats.within_cases import Counts, lowest_case_p, lowest_worse_p
from visioneval.counted import count_of
from visioneval.defaults import MAX_CONFIRM

State = Literal["passed", "failed", "unmeasured", "cannot_tell"]
_MAX_NAMES = 5


@dataclass(frozen=True, slots=True)
class Regression:
    """The state of the gate and why."""

    state: State
    message: str


def check_regressed(comparison: Comparison) -> Regression:
    """Fails where a test shows that B is worse. Where B is worse and no test could show it, it cannot tell."""
    rate = comparison.pass_rate
    if not rate.n_pairs:
        return Regression("unmeasured", "no pair with both cells measured")
    tested = [difference for difference in (rate, *comparison.metrics) if difference.n_pairs]
    worse = [f"{item.name} {_size(item)} (p {item.p_holm:.2g})" for item in tested if _is_worse(item)]
    cases = [case for case in comparison.cases if case.p < CASE_ALPHA]
    worse += [f"{count_of(len(cases), 'case')}: {_named(cases, comparison)}"] if cases else []
    if worse:
        return Regression("failed", ", ".join(worse))
    if why := undecided(comparison):
        return Regression("cannot_tell", why)
    missed = "any drop can be missed" if rate.detectable is None else f"a drop below {_points(rate)} can be missed"
    return Regression("passed", f"no regression found over {count_of(rate.n_cases, 'case')}; {missed}")


def undecided(comparison: Comparison) -> str:
    """Why a comparison in which cells broke cannot tell whether that is chance; empty if it can, or if nothing broke.

    That is so where no outcome of these cases and samples could have shown a regression, and where more than half of
    what passed broke.
    """
    rate = comparison.pass_rate
    broken = comparison.marks.breaks(same_output=False).broken
    if not broken or rate.a is None or rate.b is None or rate.b >= rate.a:
        return ""
    can_show = rate.lowest_p < ALPHA or any(_lowest(case) <= CASE_ALPHA for case in comparison.cases)
    if can_show and rate.b >= rate.a / 2:
        return ""
    samples = f"{count_of(rate.n_cases, 'case')} x {count_of(round(rate.samples[1]), 'sample')}"
    what = f"{broken:,} of {count_of(rate.n_pairs, 'cell')} broke"
    needed = _samples_to_decide(comparison)
    cure = f"--confirm {needed} would" if needed else "more cases would"
    if can_show:
        return f"{what}, more than half of those that passed; {samples} leave room for chance at 5 %: {cure} decide"
    return f"{what}; {samples} cannot show it at 5 %: {cure}"


def can_show_regression(samples: Sequence[int]) -> bool:
    """Whether two runs with these numbers of samples, of each case on each model run, could show a regression at all:
    if everything passed in A and nothing in B.
    """
    counts = [Counts(number, number, 0, number) for number in samples]
    return 2 * lowest_worse_p(counts) < ALPHA or any(lowest_case_p(case) <= CASE_ALPHA for case in counts)


def _samples_to_decide(comparison: Comparison) -> int | None:
    """The fewest new samples of each case with which the loss of everything would show; ``None`` if none do."""
    for new in range(1, MAX_CONFIRM + 1):
        p = 1.0
        for case in comparison.cases:
            p /= comb(case.counts.a + case.counts.b + new, case.counts.b + new)
        if p < ALPHA:
            return new
    return None


def _lowest(case: CasePasses) -> float:
    return 1 / comb(case.counts.a + case.counts.b, case.counts.b)


def _is_worse(difference: Difference) -> bool:
    return difference.significant and (difference.worse_by or 0) > 0


def _named(cases: list[CasePasses], comparison: Comparison) -> str:
    is_run_named = len(comparison.labels) > 1
    names = [
        f"{case.test_id}{f' on {case.model_label}' if is_run_named else ''}"
        f" ({case.counts.a_passed} of {case.counts.a} -> {case.counts.b_passed} of {case.counts.b}, p {case.p:.2g})"
        for case in cases[:_MAX_NAMES]
    ]
    more = len(cases) - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more else "")


def _size(difference: Difference) -> str:
    value = difference.difference or 0.0
    return f"{value * 100:+.1f} points" if difference.metric.type == "bool" else f"{value:+.3g}"


def _points(difference: Difference) -> str:
    points = 100 * (difference.detectable or 0.0)
    return f"{points:.0f} points" if points >= 10 else f"{points:.2g} points"
