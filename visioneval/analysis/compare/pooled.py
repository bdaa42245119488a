"""B's samples and the new ones of a confirmation, taken together. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from operator import truediv
from typing import Literal, NamedTuple

from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.differences import Difference, PairCounts, cases_difference
from visioneval.analysis.compare.doubt import chain_key
from visioneval.analysis.compare.must_pass import CaseKey, Confirmation
from visioneval.analysis.compare.paired_scores import PairedScores, PairedSums
from visioneval.analysis.compare.sampled import sampled_cases, single_cases
from visioneval.analysis.compare.tallies.metrics import MetricTally
from visioneval.analysis.scores import SampleNumbers
from visioneval.analysis.stats.within_cases import Counts
from visioneval.counted import count_of
from visioneval.suite.turns import chain_of

_ROUNDING = 1e-12
"""A difference below this, relative to the sums, comes from rounding."""


@dataclass(frozen=True, slots=True)
class PooledPasses:
    """The passes of each case on each model run, with the new samples. ``lacking`` have too few of these."""

    counts: Mapping[CaseKey, Counts]
    lacking: tuple[CaseKey, ...]

    @property
    def change(self) -> float:
        """By how much the pass rate of B is higher, in -1..1: the mean over cases."""
        total = fsum(case.weight for case in self.counts.values())
        return fsum(case.weight * case.difference for case in self.counts.values()) / total


@dataclass(frozen=True, slots=True)
class PooledMetric:
    """The difference of a metric, with the new samples. ``lacking`` are cases with too few of these that have it.

    ``change_of_new`` is the difference of the new samples alone, of the cases that have any.
    """

    difference: Difference
    change_of_new: float
    lacking: tuple[CaseKey, ...]

    @property
    def is_new_worse(self) -> bool:
        """Whether the new samples alone are worse than A."""
        return self.change_of_new < 0 if self.difference.metric.better == "higher" else self.change_of_new > 0


def pooled_passes(comparison: Comparison, confirmation: Confirmation) -> PooledPasses:
    """The passes of B's samples and the new ones."""
    sampled, counts, lacking = single_cases(comparison, confirmation), dict[CaseKey, Counts](), []
    for case in comparison.cases:
        key, before = (case.test_id, case.model_label), case.counts
        new = sampled[key].new
        counts[key] = before._replace(b_passed=before.b_passed + new.passed, b=before.b + new.measured)
        if new.measured < sampled[key].planned:
            lacking.append(key)
    return PooledPasses(counts, tuple(lacking))


def pooled_metrics(
    comparison: Comparison, confirmation: Confirmation, differences: Collection[Difference]
) -> list[PooledMetric]:
    """The differences of some metrics over B's samples and the new ones. Reads the pairs of the comparison again."""
    if not any(confirmation.scores.values()):
        lacking = tuple(dict.fromkeys(chain_key(case.key) for case in sampled_cases(comparison)))
        return [PooledMetric(item, 0.0, lacking) for item in differences]
    tally = MetricTally(
        {item.name: comparison.metric_tags[item.name] for item in differences}, comparison.counter_examples
    )
    numbers = SampleNumbers()
    for pair in comparison.stable_pairs:
        tally.add(numbers[pair.b.test_id, pair.b.model_label], pair)
    scores, keys = tally.scores(), list(numbers)
    return [_with_new(item, scores[item.name], keys, confirmation) for item in differences]


class _Stratum(NamedTuple):
    """The pairs of a case on a model run, and for as many samples the sums of A, of all of B, and of the new ones."""

    pairs: int
    a: float
    b: float
    new: float


def _with_new(
    difference: Difference, scores: PairedScores, keys: Sequence[CaseKey], confirmation: Confirmation
) -> PooledMetric:
    """Adds the new samples of each case on each model run to its own, whose share of the case stays the same."""
    strata, lacking = dict[str, list[_Stratum]](), dict[CaseKey, None]()
    for number, n_pairs, sum_a, sum_change in zip(scores.numbers(), *scores.by_case(), strict=True):
        key = keys[number]
        found = (sample.get(difference.name) for sample in confirmation.scores.get(key, ()))
        new = [value for value in found if value is not None]
        if len(new) < confirmation.planned(key):
            lacking[chain_key(key)] = None
        sum_b = fsum((sum_a, sum_change, *new)) * n_pairs / (n_pairs + len(new))
        sum_of_new = fsum(new) * n_pairs / len(new) if new else sum_a
        strata.setdefault(chain_of(key[0]), []).append(_Stratum(n_pairs, sum_a, sum_b, sum_of_new))
    cases = strata.values()
    pairs = [sum(stratum.pairs for stratum in case) for case in cases]
    before = [fsum(stratum.a for stratum in case) for case in cases]
    changes = [_change([stratum.a for stratum in case], [stratum.b for stratum in case]) for case in cases]
    of_new = [_change([stratum.a for stratum in case], [stratum.new for stratum in case]) for case in cases]
    sums = PairedSums(pairs, before, changes)
    counts = PairCounts(difference.higher, difference.lower, difference.unmeasured)
    pooled = cases_difference(difference.name, difference.metric, sums, counts, noise=difference.noise)
    change_of_new = fsum(map(truediv, of_new, pairs)) / max(1, len(pairs))
    return PooledMetric(pooled, change_of_new, tuple(lacking))


def _change(before: Sequence[float], after: Sequence[float]) -> float:
    """The difference of the sums of a case; 0 where it comes from rounding, so that the case did not change."""
    change = fsum((*after, *(-value for value in before)))
    return 0.0 if abs(change) <= _ROUNDING * fsum(map(abs, (*before, *after))) else change


def without_samples(
    confirmation: Confirmation, lacking: Sequence[CaseKey]
) -> tuple[Literal["unmeasured", "cannot_tell"], str]:
    """The state of a gate that is in doubt and lacks new samples of these cases, and why, after its numbers."""
    cases = count_of(len(lacking), "case")
    if confirmation.stopped:
        return "unmeasured", f", and {cases} could not be confirmed ({confirmation.stopped})"
    if confirmation.failed:
        failed = " and ".join(confirmation.failed)
        return "cannot_tell", f"; only new samples of all cases can decide, and {failed} failed without them"
    return "unmeasured", f", and new samples of {cases} lack it"
