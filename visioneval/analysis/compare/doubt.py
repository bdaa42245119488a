"""What the first of two steps of ``regressed`` leaves in doubt, so that new samples must decide. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.differences import ALPHA, CASE_ALPHA, Difference
from visioneval.analysis.compare.must_pass import CaseKey
from visioneval.analysis.compare.new_samples import can_be_sampled
from visioneval.analysis.compare.sampled import ConfirmedCase, SingleCase, sampled_cases
from visioneval.analysis.compare.tallies.verdicts import CasePasses
from visioneval.analysis.stats.tests import Counts, lowest_case_p, lowest_worse_p
from visioneval.analysis.stats.variance import NO_NOISE, RunNoise
from visioneval.errors import count_of
from visioneval.settings import MAX_CONFIRM
from visioneval.suite.turns import chain_of

FIRST_STEP, SECOND_STEP = 0.005, 0.02
"""One-sided levels with new samples of the pass rate: together half of ``ALPHA``. A single case that is worse at
``FIRST_STEP`` fails without any, and new samples may clear one that is worse only at ``CASE_ALPHA``."""
METRICS_FIRST_STEP, METRICS_SECOND_STEP = 0.01, 0.04
"""Two-sided levels with new samples, of all metrics together: together ``ALPHA``. Only half of each can fail a gate."""
DOUBT = 0.3
"""The pass rate is in doubt up to this one-sided p, and a metric up to this adjusted p. Three in ten equal runs are by
their pass rate, and seven need no new samples."""
_FEWEST_CASES = 3
"""With fewer cases, no metric has an adjusted p up to ``DOUBT``."""


def cases_in_doubt(comparison: Comparison) -> tuple[CasePasses, ...]:
    """The single cases that are worse at their level, and not so surely that new samples cannot clear them."""
    return tuple(case for case in comparison.cases if FIRST_STEP <= case.p < CASE_ALPHA)


def samples_in_doubt(comparison: Comparison) -> tuple[ConfirmedCase, ...]:
    """What decides about the single cases in doubt. A case with turns needs all new samples of each of them."""
    doubtful = {(case.test_id, case.model_label) for case in cases_in_doubt(comparison)}
    return tuple(
        SingleCase(*case.key) if case.key in doubtful else case
        for case in sampled_cases(comparison)
        if chain_key(case.key) in doubtful
    )


def is_in_doubt(comparison: Comparison) -> bool:
    """Whether only new samples of all cases can tell if the pass rate or a metric is worse."""
    return is_rate_in_doubt(comparison) or bool(metrics_in_doubt(comparison))


def is_rate_in_doubt(comparison: Comparison) -> bool:
    """Whether only new samples of all cases can tell if the pass rate is worse."""
    return FIRST_STEP <= one_sided(comparison.pass_rate) <= DOUBT or bool(undecided(comparison))


def metrics_in_doubt(comparison: Comparison) -> list[Difference]:
    """The metrics that are worse, and not yet surely so. Each is one of those ``tested_again``."""
    return [
        item
        for item in tested_again(comparison)
        if (item.worse_by or 0) > 0 and item.p_holm is not None and METRICS_FIRST_STEP <= item.p_holm <= DOUBT
    ]


def tested_again(comparison: Comparison) -> list[Difference]:
    """The metrics that the second step tests, among which it shares its level: those that new samples could show to be
    worse. Which these are depends on no score.
    """
    return [item for item in comparison.metrics if item.metric.better != "none" and item.n_cases >= _FEWEST_CASES]


def undecided(comparison: Comparison) -> str:
    """Why a comparison in which cells broke cannot tell whether that is chance; empty if it can, or if nothing broke.

    That is so where no outcome of these cases and samples could have shown a regression, and where more than half of
    what passed broke.
    """
    rate = comparison.pass_rate
    broken = comparison.marks.breaks(same_output=False).broken
    if not broken or rate.a is None or rate.b is None or rate.b >= rate.a:
        return ""
    can_show = _can_show([case.counts for case in comparison.cases], comparison.noise)
    if can_show and rate.b >= rate.a / 2:
        return ""
    samples = f"{count_of(rate.n_cases, 'case')} x {count_of(round(rate.samples[1]), 'sample')}"
    what = f"{broken:,} of {count_of(rate.n_pairs, 'cell')} broke"
    needed = _samples_to_decide(comparison) if can_be_sampled(comparison) else None
    cure = f"--confirm {needed} would" if needed else "more cases would"
    if can_show:
        return f"{what}, more than half of those that passed; {samples} leave room for chance at 5 %: {cure} decide"
    return f"{what}; {samples} cannot show it at 5 %: {cure}"


def can_show_regression(samples: Sequence[int]) -> bool:
    """Whether two runs with these numbers of samples, of each case on each model run, could show a regression."""
    return _can_show([Counts(number, number, 0, number) for number in samples])


def _can_show(cases: Sequence[Counts], noise: RunNoise = NO_NOISE) -> bool:
    """Whether these numbers of samples could show a regression at all: if everything passed in A and nothing in B."""
    lost = (case._replace(a_passed=case.a, b_passed=0) for case in cases)
    return 2 * lowest_worse_p(cases, noise) < ALPHA or any(lowest_case_p(case) <= CASE_ALPHA for case in lost)


def one_sided(rate: Difference) -> float:
    """The one-sided p that the pass rate of B is worse."""
    if rate.p is None or rate.difference is None:
        return 1.0
    return rate.p / 2 if rate.difference < 0 else 1 - rate.p / 2


def chain_key(key: CaseKey) -> CaseKey:
    """The case whose turn this is, or the case itself, on its model run."""
    return chain_of(key[0]), key[1]


def _samples_to_decide(comparison: Comparison) -> int | None:
    """The fewest new samples of each case with which the loss of everything would show; ``None`` if none do."""
    for new in range(1, MAX_CONFIRM + 1):
        counts = [case.counts._replace(b=case.counts.b + new) for case in comparison.cases]
        if lowest_worse_p(counts, comparison.noise) < SECOND_STEP:
            return new
    return None
