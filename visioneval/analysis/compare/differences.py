"""Paired differences of the pass rate and of metrics, with intervals and significance tests. Pure.

Estimate, interval and p-value are about one quantity: the mean over cases of the mean difference within the case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum
from typing import TYPE_CHECKING, Any, NamedTuple

from visioneval.analysis.stats.basic import Interval
from visioneval.analysis.stats.tests import (
    Counts,
    holm,
    lowest_worse_p,
    paired_test,
    two_sided,
    within_variance,
    worse_p,
)
from visioneval.analysis.stats.variance import NO_NOISE, RunNoise, detectable_mean, detectable_rate, detectable_within
from visioneval.types import Metric

if TYPE_CHECKING:
    import numpy as np

    Numbers = np.ndarray[Any, np.dtype[Any]]
    PairScores = tuple[Numbers, Numbers, Numbers]
    """Of each pair: the number of its case, the score of A, and that of B."""

ALPHA = 0.05
CASE_ALPHA = 0.025
"""The one-sided level of all tests of single cases together. That of the pass rate is half of ``ALPHA``, so both
together are one family at 0.05."""
FEWEST_CASES = 5
"""With fewer cases, not even a change of all by the same amount is significant by ``paired_test``."""
PASS_RATE = "pass_rate"  # noqa: S105 - a rate, not a password
PASSED = Metric(type="bool", better="higher")
"""The metric of a pass rate."""
_NOISE = 1e-24
"""A variance below this, relative to the squared mean, comes from rounding."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of a metric or the pass rate over pairs in which both cells were measured.

    ``a`` and ``b`` are means over cases of case means, or such rates in 0..1 of a yes-or-no metric. ``difference`` is
    ``b - a`` with its 95 % ``interval``, which is ``None`` for a single case, and for an unbounded metric that differs
    in no case. ``p`` is two-sided and of the same test: below 0.05 exactly where the interval excludes 0.
    ``higher`` and ``lower`` count pairs in which B is higher or lower, ``changed_cases`` cases with another mean.
    ``p_holm`` is adjusted over its family, or ``None`` outside of them. ``lowest_p`` is the smallest ``p`` that changes
    of these sizes could have had. ``unmeasured`` counts excluded pairs: a score is ``null`` or a cell is an ``ERROR``.
    ``variance`` is that of the cases' differences, and ``within``, of a pass rate, that of one cell around the rate of
    its case. ``detectable`` is the smallest difference that they detect with 80 % power at the level that decides, or
    ``None`` if there is none. ``samples``, of a pass rate, are the mean numbers of samples of a case in A and in B,
    and ``noise`` is what the runs of a baseline A have in common.
    """

    name: str
    metric: Metric
    a: float | None = None
    b: float | None = None
    difference: float | None = None
    interval: Interval | None = None
    p: float | None = None
    p_holm: float | None = None
    n_pairs: int = 0
    n_cases: int = 0
    higher: int = 0
    lower: int = 0
    changed_cases: int = 0
    unmeasured: int = 0
    detectable: float | None = None
    lowest_p: float = 1.0
    variance: float | None = None
    within: float | None = None
    samples: tuple[float, float] = (0.0, 0.0)
    noise: RunNoise = NO_NOISE

    @property
    def worse_by(self) -> float | None:
        """How much worse B is (negative if better), or ``None`` if the metric has no direction."""
        if self.difference is None or self.metric.better == "none":
            return None
        return -self.difference if self.metric.better == "higher" else self.difference

    @property
    def significant(self) -> bool:
        """Whether the difference is significant after adjustment for all metrics."""
        return self.p_holm is not None and self.p_holm < ALPHA

    @property
    def is_evident(self) -> bool:
        """Whether ``p`` is below the level that decides: adjusted in a family of metrics, else as it is."""
        p = self.p if self.p_holm is None else self.p_holm
        return p is not None and p < ALPHA

    @property
    def is_testable(self) -> bool:
        """Whether these cases and samples could show that something changed, if all had changed."""
        return self.n_cases >= FEWEST_CASES if self.within is None else self.lowest_p < ALPHA

    def detectable_at(self, alpha: float) -> float | None:
        """The smallest difference that these cases detect with 80 % power at a level, or ``None`` if there is none."""
        if self.within is not None and self.a is not None:
            return detectable_within(self.n_cases, self.a, self.within, self.samples, noise=self.noise, alpha=alpha)
        if self.variance is None or self.a is None:
            return None
        if self.metric.type == "bool":
            return detectable_rate(self.n_cases, self.a, self.variance, self.n_pairs / self.n_cases, alpha=alpha)
        size, widest = detectable_mean(self.n_cases, self.variance, alpha=alpha), widest_difference(self.metric)
        return None if size is not None and widest is not None and size > widest else size


def one_sided(rate: Difference) -> float:
    """The one-sided p that the pass rate of B is worse."""
    if rate.p is None or rate.difference is None:
        return 1.0
    return rate.p / 2 if rate.difference < 0 else 1 - rate.p / 2


def adjusted(pass_rate: Difference, metrics: Sequence[Difference]) -> tuple[Difference, list[Difference]]:
    """Adjusts p-values for multiple comparisons, in two families at 0.05 each, and sets what they can detect.

    The pass rate is a family of its own. The other metrics are adjusted by Holm's procedure. Metrics that could not be
    significant even if all their cases had changed in one direction do not count in the adjustment of the others, as
    they cannot be false alarms. Source: R. E. Tarone, "A modified Bonferroni method for discrete data", Biometrics 46
    (1990).
    """
    tested = {metric.name: metric.p for metric in metrics if metric.p is not None}
    can_be_significant = {metric.name for metric in metrics if metric.lowest_p < ALPHA}
    testable = {name: p for name, p in tested.items() if name in can_be_significant}
    p_holm = dict(zip(tested, holm(list(tested.values())), strict=True))
    p_holm |= dict(zip(testable, holm(list(testable.values())), strict=True))
    family = max(1, len(testable))
    return _decided(pass_rate, pass_rate.p, ALPHA), [
        _decided(metric, p_holm.get(metric.name), ALPHA / family) for metric in metrics
    ]


def _decided(difference: Difference, p_holm: float | None, alpha: float) -> Difference:
    return replace(difference, p_holm=p_holm, detectable=difference.detectable_at(alpha))


class PairCounts(NamedTuple):
    """The pairs in which B is higher or lower, and those that lack a score."""

    higher: int
    lower: int
    unmeasured: int


class CaseSums(NamedTuple):
    """The number of pairs of a case, the sum of the scores of A, and that of B's differences from A."""

    pairs: int
    before: float
    change: float


def scores_difference(name: str, metric: Metric, scores: PairScores, noise: RunNoise = NO_NOISE) -> Difference:
    """The difference of the scores of a metric, nan where a pair lacks it.

    The sums of each case are rounded once, so that they do not depend on the order of the pairs.
    """
    import numpy as np

    case, a, b = scores
    measured = ~(np.isnan(a) | np.isnan(b))
    counts = PairCounts(int((b > a).sum()), int((b < a).sum()), len(case) - int(measured.sum()))
    by_case: dict[int, tuple[list[float], list[float]]] = {}
    for number, score_a, score_b in zip(*(column[measured].tolist() for column in scores), strict=True):
        of_a, of_b = by_case.setdefault(number, ([], []))
        of_a.append(score_a)
        of_b.append(score_b)
    sums = [
        CaseSums(len(of_a), fsum(of_a), fsum([*of_b, *(-score for score in of_a)])) for of_a, of_b in by_case.values()
    ]
    return cases_difference(name, metric, sums, counts, noise=noise)


def cases_difference(
    name: str,
    metric: Metric,
    cases: Sequence[CaseSums],
    counts: PairCounts,
    strata: Sequence[Counts] = (),
    noise: RunNoise = NO_NOISE,
) -> Difference:
    """Compares one number per case, so that cases count the same and their cells are not taken as independent.

    The turns of a case are one case, as they are not independent. With ``strata``, the passes of each case on each
    model run, the p-value is that of their test within cases.
    """
    number = len(cases)
    if not number:
        return Difference(name, metric, unmeasured=counts.unmeasured)
    changes = [case.change / case.pairs for case in cases]
    widest = widest_difference(metric)
    worse = worse_p(strata, noise)
    p = None if worse is None else two_sided(worse)
    test = paired_test(changes, widest, noise=noise, p=p)
    # if every case that changed had changed in the same direction
    most = None if strata else paired_test([abs(change) for change in changes])
    lowest_p = 2 * lowest_worse_p(strata, noise) if strata else 1.0 if most is None else most.p
    mean_a, change = fsum(case.before / case.pairs for case in cases) / number, fsum(changes) / number
    interval = None if test is None else test.interval
    if interval is not None and widest is not None:
        interval = Interval(max(-widest, interval.low), min(widest, interval.high))
    variance = fsum((value - change) ** 2 for value in changes) / (number - 1) if number > 1 else None
    if variance is not None and variance <= _NOISE * change * change:
        variance = 0.0  # it comes from rounding
    return Difference(
        name,
        metric,
        a=mean_a,
        b=mean_a + change,
        difference=change,
        interval=interval,
        p=test.p if p is None and test is not None else p,
        lowest_p=lowest_p,
        n_pairs=sum(case.pairs for case in cases),
        n_cases=number,
        higher=counts.higher,
        lower=counts.lower,
        changed_cases=sum(value != 0 for value in changes),
        unmeasured=counts.unmeasured,
        variance=variance,
        within=within_variance(strata) if strata else None,
        noise=noise,
        samples=(sum(case.a for case in strata) / number, sum(case.b for case in strata) / number),
    )


def widest_difference(metric: Metric) -> float | None:
    """The largest difference that a case can have, or ``None`` if the metric has no bounds."""
    low, high = (0.0, 1.0) if metric.type == "bool" else metric.range or (None, None)
    return None if low is None or high is None or high <= low else float(high - low)


def points_text(change: float) -> str:
    """A change of a rate with a decimal, or with enough of them to show its sign."""
    points = 100 * change
    return f"{points:+.1f} points" if abs(points) >= 0.05 or not points else f"{points:+.1g} points"


def missed_text(detectable: float | None) -> str:
    """Which drops of the pass rate would be missed more than one time in five."""
    if detectable is None:
        return "any drop can be missed"
    points = 100 * detectable
    size = f"{points:.0f}" if points >= 10 else f"{points:.2g}"
    return f"a drop below {size} points can be missed"
