"""Tests of passes and failures within cases: B's samples of a case against A's samples of the same case. Pure.

If nothing changed, the samples of a case are exchangeable: each of them could as well have been B's. Given how many of
all samples of a case passed, the number that passed in B is then hypergeometric, whatever the rate of the case is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from math import comb, fsum, sqrt
from statistics import NormalDist
from typing import NamedTuple

from visioneval.analysis.stats.basic import holm
from visioneval.analysis.stats.between_runs import NO_NOISE, RunNoise

_NORMAL_FROM = 500
"""With more cases than this in which samples differ, the sum of their differences is taken as normal."""
_LARGEST_BITS = 1000
_CELLS = 200_000
"""The most points of the grid on which the sum of differences with unequal weights is laid out."""


class Counts(NamedTuple):
    """The samples of a case on one model run: of ``a`` samples ``a_passed`` passed in A, and likewise in B.

    ``weight`` is what the difference of the rates counts in the mean over cases.
    """

    a_passed: int
    a: int
    b_passed: int
    b: int
    weight: float = 1.0

    @property
    def difference(self) -> float:
        """B's rate minus A's, in -1..1."""
        return self.b_passed / self.b - self.a_passed / self.a

    @property
    def passed(self) -> int:
        """The samples that passed on both sides together."""
        return self.a_passed + self.b_passed

    @property
    def fewest(self) -> int:
        """The fewest passes that B could have, given all passes."""
        return max(0, self.passed - self.a)

    @property
    def step(self) -> float:
        """By how much one more pass in B, and so one less in A, raises the weighted difference."""
        return self.weight * (1 / self.a + 1 / self.b)

    @property
    def variance(self) -> float:
        """The variance of the difference if the samples are exchangeable, given how many passed."""
        return self.sample_variance * (1 / self.a + 1 / self.b)

    @property
    def sample_variance(self) -> float:
        """The variance of one sample, unbiased if all samples are exchangeable."""
        total = self.a + self.b
        return self.passed * (total - self.passed) / (total * (total - 1))


def worse_p(cases: Sequence[Counts], noise: RunNoise = NO_NOISE) -> float | None:
    """The one-sided mid-p that B's mean rate over cases is lower than A's only by chance; ``None`` without cases.

    Half of the probability of the observed outcome counts. One minus it is that of the other side.

    Source: the conditional test of stratified 2 x 2 tables, D. R. Cox, "The regression analysis of binary sequences",
    Journal of the Royal Statistical Society B 20 (1958), in which a case with one sample on each side is a pair of
    Q. McNemar's test; the mid-p after M. W. Fagerland, S. Lydersen and P. Laake, "The McNemar test for binary
    matched-pairs data", BMC Medical Research Methodology 13 (2013). Size: ``make calibration``.
    """
    if not cases:
        return None
    differing = [case for case in cases if 0 < case.passed < case.a + case.b]
    if not differing:
        return 0.5
    total = fsum(case.weight for case in cases)
    variance = fsum(case.weight**2 * case.variance for case in differing)
    if len(differing) <= _NORMAL_FROM:
        p = _mid_p(differing)
    else:
        p = NormalDist().cdf(fsum(case.weight * case.difference for case in differing) / sqrt(variance))
    return noise.widened(p, variance / total**2)


def two_sided(worse: float) -> float:
    """The two-sided p-value of a test, given its one-sided p that B is worse."""
    return min(1.0, 2 * min(worse, 1 - worse))


def lowest_worse_p(cases: Sequence[Counts], noise: RunNoise = NO_NOISE) -> float:
    """The lowest ``worse_p`` of any outcome with these numbers of samples: all of A's pass, and none of B's."""
    p, variance = 0.5, 0.0
    for case in cases:
        ways = comb(case.a + case.b, case.b)
        p = p / ways if ways.bit_length() < _LARGEST_BITS else 0.0
        variance += case.weight**2 * case._replace(a_passed=case.a, b_passed=0).variance
    return noise.widened(p, variance / fsum(case.weight for case in cases) ** 2) if cases else p


def within_variance(cases: Sequence[Counts]) -> float | None:
    """The variance of one sample around the rate of its case, in 0..0.25, unbiased; ``None`` without cases.

    Assumes that nothing changed. Each case counts by its weight.
    """
    total = fsum(case.weight for case in cases)
    return fsum(case.weight * case.sample_variance for case in cases) / total if total else None


def case_p(case: Counts) -> float:
    """The exact one-sided p-value that B's samples of this case fail more often only by chance.

    Source: R. A. Fisher's exact test, "The logic of inductive inference", Journal of the Royal Statistical Society 98
    (1935).
    """
    numbers = range(case.fewest, case.b_passed + 1)
    ways = sum(comb(case.b, k) * comb(case.a, case.passed - k) for k in numbers)
    return ways / comb(case.a + case.b, case.passed)


def lowest_case_p(case: Counts) -> float:
    """The lowest ``case_p`` that a case with as many passes and failures could have."""
    ways = comb(case.b, case.fewest) * comb(case.a, case.passed - case.fewest)
    return ways / comb(case.a + case.b, case.passed)


def adjusted_case_ps(cases: Sequence[Counts], level: float, noise: RunNoise = NO_NOISE) -> list[float]:
    """``case_p`` of each case, adjusted for all of them: below ``level`` where a case is worse.

    Cases that could not be worse at the level left to them, however their passes lay, are 1 and do not count in the
    adjustment of the others.

    Source: S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6
    (1979), over the tests that R. E. Tarone, "A modified Bonferroni method for discrete data", Biometrics 46 (1990),
    selects.
    """
    lowest = [lowest_case_p(case) for case in cases]
    in_order = sorted(lowest)
    tests = next(k for k in range(1, len(lowest) + 2) if bisect_right(in_order, level / k) <= k)
    testable = [at for at, p in enumerate(lowest) if p <= level / tests]
    adjusted = [1.0] * len(cases)
    p_values = holm([noise.widened_of_case(case_p(cases[at])) for at in testable])
    for at, p in zip(testable, p_values, strict=True):
        adjusted[at] = p
    return adjusted


def _mid_p(cases: Sequence[Counts]) -> float:
    """The probability of a lower sum of differences than the observed one, and half of that of the same sum."""
    import numpy as np

    unit = _grid(cases)
    tables = Counter((case.a, case.b, case.passed, round(case.step / unit)) for case in cases)
    sums = np.ones(1)
    for (a, b, passed, step), times in tables.items():
        numbers = range(max(0, passed - a), min(b, passed) + 1)
        chances = [comb(b, k) * comb(a, passed - k) / comb(a + b, passed) for k in numbers]
        for _ in range(times):
            longer = np.zeros(len(sums) + (len(chances) - 1) * step)
            for more, chance in enumerate(chances):
                longer[more * step : more * step + len(sums)] += chance * sums
            sums = longer
    at = sum((case.b_passed - case.fewest) * round(case.step / unit) for case in cases)
    return float(sums[:at].sum() + sums[at] / 2)


def _grid(cases: Sequence[Counts]) -> float:
    """The unit in which the steps of all cases are whole numbers: exactly if they are equal, else nearly."""
    steps = [case.step for case in cases]
    if max(steps) - min(steps) <= 1e-12 * max(steps):
        return max(steps)
    return max(steps) / max(1, _CELLS // sum(case.b for case in cases))
