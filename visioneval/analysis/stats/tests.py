"""Tests of a difference between two runs, over cases and within them, with sources. Pure.

If nothing changed, the samples of a case are exchangeable: each of them could as well have been B's. For passes and
failures, given how many of all samples of a case passed, the number that passed in B is then hypergeometric, whatever
the rate of the case is. For scores, the samples of each case are dealt to A and B again, at random, as many to each as
they have. That holds however skewed the scores are and however unequal the numbers of samples, where a t test over
cases finds B worse too often.

The test of each number:

- B - A of the pass rate: mean over cases of the difference within the case; the conditional test within cases (Cox;
  McNemar with one sample), mid-p
- B - A of a metric: mean over cases of the mean difference; t with a pseudo-case
- a metric with new samples: in the second step, a permutation test that deals the samples of each case at random to A
  and B, so it holds its level for scores at their ceiling: one-sided mid-p of at least 9,999 permutations with a
  fixed seed (Good; Phipson and Smyth)
- a single case worse: Fisher's exact test of its samples, one-sided
- p Holm: Holm, without the cases or metrics whose samples could not have shown it (Tarone), in two families
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb, fsum, gcd, lcm, prod, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

from visioneval.analysis.stats.basic import Interval, t_quantile, t_two_sided_p
from visioneval.analysis.stats.variance import NO_NOISE, RunNoise

if TYPE_CHECKING:
    import numpy as np

    Floats = np.ndarray[Any, np.dtype[np.float64]]

_BESIDE_ZERO = 1e-12
"""The end of an interval that excludes 0 and nothing else on that side."""
_NORMAL_FROM = 500
"""With more cases than this in which samples differ, the sum of their differences is taken as normal."""
_LARGEST_BITS = 1000
_CELLS = 200_000
"""The most points of the grid on which the sum of differences with unequal weights is laid out."""
_LARGEST_WEIGHT = 1_000_000
"""A weight is the ratio of two numbers of samples, neither of which is larger."""
_PERMUTATIONS = 10_000
"""With these, 200 of them decide at .02, and at the .002 of ten tests 20. More tests get more of them."""
_TESTS = 10
_SEED = 0
"""Fixed, so that the same samples always have the same p-value."""
_ROUNDING = 1e-12
"""A difference below this, relative to the largest of the scores, comes from rounding."""


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusts p-values for multiple comparisons, controlling the family-wise error rate. Keeps their order.

    Source: S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6
    (1979).
    """
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


@dataclass(frozen=True, slots=True)
class PairedTest:
    """The interval of a mean difference and the two-sided ``p`` of the same test: p < 0.05 where it excludes 0."""

    interval: Interval
    p: float


def paired_test(
    differences: Sequence[float],
    scale: float | None = None,
    *,
    noise: RunNoise = NO_NOISE,
    p: float | None = None,
) -> PairedTest | None:
    """Tests the mean of one difference per case. ``None`` for fewer than two cases, or as below.

    A t test with one pseudo-case, half of it ``+s`` and half ``-s``. It keeps a few differing cases from looking like
    certainty, and hardly changes anything with many. ``p`` is that of no change: there ``s`` is the root mean square of
    the differences that are not 0. A change may sit in a few cases that the suite hardly has, so for every other
    difference ``s`` is ``scale``, the largest difference that a case can have, if it is given. Without it, and if all
    differences are 0, the result is ``None``. The interval has the differences that the test does not exclude.

    ``noise`` is what runs have in common. ``p`` is another two-sided test of no change, if it is given.

    Source: the pseudo-observations of D. G. Bonett and R. M. Price, "Adjusted Wald confidence interval for a difference
    of binomial proportions based on paired data", Journal of Educational and Behavioral Statistics 37 (2012), at half
    their weight. Size and coverage: ``make calibration``.
    """
    number = len(differences)
    square = fsum(value * value for value in differences)
    differing = sum(value * value > 0 for value in differences)
    if number < 2 or (not differing and scale is None):
        return None
    unchanged = square / differing if differing else (scale or 0.0) ** 2
    changed = unchanged if scale is None else max(unchanged, scale**2)
    mean = fsum(differences) / (number + 1)

    def error(pseudo: float) -> tuple[float, int]:
        """The standard error and its degrees of freedom."""
        variance = max(0.0, (square + pseudo) / (number + 1) - mean * mean) / (number + 1)
        return sqrt(variance + noise.of_difference), max(1, int(min(number - 1, noise.freedom_with(variance))))

    if p is None:
        size, freedom = error(unchanged)
        p = t_two_sided_p(mean / size, freedom)
    size, freedom = error(changed)
    half = t_quantile(0.975, freedom) * size
    low, high = mean - half, mean + half
    if p >= 0.05:  # the interval ends at 0, or is extended to it, so that it has 0 exactly where p does not exclude it
        low, high = min(low, 0.0), max(high, 0.0)
    elif mean < 0:
        high = min(high, -_BESIDE_ZERO)
    else:
        low = max(low, _BESIDE_ZERO)
    return PairedTest(Interval(low, high), p)


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

    steps = _whole_steps(cases)
    tables = Counter((case.a, case.b, case.passed, step) for case, step in zip(cases, steps, strict=True))
    sums = np.ones(1)
    for (a, b, passed, step), times in tables.items():
        numbers = range(max(0, passed - a), min(b, passed) + 1)
        chances = [comb(b, k) * comb(a, passed - k) / comb(a + b, passed) for k in numbers]
        for _ in range(times):
            longer = np.zeros(len(sums) + (len(chances) - 1) * step)
            for more, chance in enumerate(chances):
                longer[more * step : more * step + len(sums)] += chance * sums
            sums = longer
    at = sum((case.b_passed - case.fewest) * step for case, step in zip(cases, steps, strict=True))
    return float(sums[:at].sum() + sums[at] / 2)


def _whole_steps(cases: Sequence[Counts]) -> list[int]:
    """The steps of the cases as multiples of one unit.

    They are exact where all sums fit a grid of ``_CELLS`` points. Else they are rounded to such a grid, and sums that
    are equal may differ by a point.
    """
    exact = [
        Fraction(case.weight).limit_denominator(_LARGEST_WEIGHT) * Fraction(case.a + case.b, case.a * case.b)
        for case in cases
    ]
    common = lcm(*(step.denominator for step in exact))
    whole = [step.numerator * (common // step.denominator) for step in exact]
    divisor = gcd(*whole)
    if sum(case.b * step for case, step in zip(cases, whole, strict=True)) // divisor <= _CELLS:
        return [step // divisor for step in whole]
    unit = max(case.step for case in cases) / max(1, _CELLS // sum(case.b for case in cases))
    return [round(case.step / unit) for case in cases]


class Samples(NamedTuple):
    """The samples of a case on a model run, of which there is at least one on each side.

    A sample has a score for each turn, NaN where it has none. ``weights`` are what the difference of each turn counts
    in the mean over cases. Samples are dealt as a whole, as their turns are not independent.
    """

    a: Sequence[Sequence[float]]
    b: Sequence[Sequence[float]]
    weights: Sequence[float]


def mean_change(cases: Sequence[Samples]) -> float:
    """The mean over cases of B's mean minus A's; 0 where it comes from rounding."""
    changes, largest = [], 0.0
    for case in cases:
        scores, is_b = _scores(case)
        changes += _changes(scores, is_b[None], case.weights).tolist()
        largest = max(largest, _largest(scores))
    change = fsum(changes)
    return 0.0 if abs(change) <= _ROUNDING * largest else change


class Permuted(NamedTuple):
    """The one-sided p-value that B's mean is lower only by chance, and the variance of its difference by chance."""

    p: float
    variance: float


def permutation_test(cases: Sequence[Samples], tests: int = 1) -> Permuted:
    """Tests whether ``mean_change`` is lower than 0, as one of some tests.

    The samples of a case must be exchangeable, and may have any distribution. The p-value is the share of permutations
    with a lower difference, and half of those with the same one (a mid-p, as in ``worse_p``), of those that were drawn
    and the observed one. A turn that no sample of a side has does not count in that permutation.

    Source: P. Good, "Permutation Tests" (2000), with the samples of each case as a stratum; for counting the observed
    one B. Phipson and G. K. Smyth, "Permutation p-values should never be zero", Statistical Applications in Genetics
    and Molecular Biology 9 (2010). Size: ``make calibration``.
    """
    import numpy as np

    random, number = np.random.default_rng(_SEED), _PERMUTATIONS * -(-tests // _TESTS) - 1
    drawn, largest = np.zeros(number), 0.0
    for case in cases:
        scores, is_b = _scores(case)
        largest = max(largest, _largest(scores))
        if (np.nanmax(scores, axis=0) > np.nanmin(scores, axis=0)).any():
            drawn += _changes(scores, random.permuted(np.tile(is_b, (number, 1)), axis=1), case.weights)
    observed, nearly = mean_change(cases), _ROUNDING * largest
    lower, same = (drawn < observed - nearly).sum(), (abs(drawn - observed) <= nearly).sum()
    return Permuted(float(lower + (1 + same) / 2) / (1 + number), float(drawn.var()))


def lowest_p(cases: Sequence[Samples]) -> float:
    """The lowest p-value that ``permutation_test`` could have with these numbers of samples, however they lie."""
    return prod((1 / comb(len(case.a) + len(case.b), len(case.a)) for case in cases), start=0.5)


def _scores(case: Samples) -> tuple[Floats, Floats]:
    """The scores of all samples (rows) by turn, and for each sample 1 if it is B's and else 0."""
    import numpy as np

    return np.array([*case.a, *case.b], dtype=float), np.repeat([0.0, 1.0], [len(case.a), len(case.b)])


def _largest(scores: Floats) -> float:
    import numpy as np

    return float(np.nanmax(np.abs(scores)))


def _changes(scores: Floats, is_b: Floats, weights: Sequence[float]) -> Floats:
    """The weighted differences of the means, for each way to deal the samples (a row of ``is_b``)."""
    import numpy as np

    has_score = ~np.isnan(scores)
    filled = np.where(has_score, scores, 0.0)
    of_b, sums_of_b = is_b @ has_score, is_b @ filled
    of_a, sums_of_a = has_score.sum(axis=0) - of_b, filled.sum(axis=0) - sums_of_b
    is_on_both = (of_a > 0) & (of_b > 0)
    changes = sums_of_b / np.maximum(of_b, 1) - sums_of_a / np.maximum(of_a, 1)
    weighted: Floats = np.where(is_on_both, changes, 0.0) @ np.asarray(weights)
    return weighted
