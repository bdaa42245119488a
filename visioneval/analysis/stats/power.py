"""The smallest differences that tests detect, and how often a gate fails a run of the same quality. Pure.

For a gate, cases are fixed: a repeated run has the same ones. So only the variance of samples within their cases counts
there, and not that between cases, which belongs to the interval of what the cases stand for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from math import floor, fsum, lgamma, log, sqrt
from typing import NamedTuple

from visioneval.analysis.stats.basic import MANY, t_quantile, t_two_sided_p
from visioneval.analysis.stats.variance import NO_NOISE, RunNoise

POWER = 0.8
_STEPS = 40
_PRIOR_CASES = 2
"""So many cases count as if all variance were noise. Chosen by simulation: a failure is rarely understated."""
_NEGLIGIBLE = 1e-15
_ROUNDING = 1e-9
Chances = Iterable[tuple[int, float]]
"""Numbers of cells, each with its probability."""


def detectable_mean(cases: int, variance: float, *, alpha: float = 0.05) -> float | None:
    """The smallest mean difference detected with 80 % power at level ``alpha``, in the unit of the differences.

    ``variance`` is that of one case's difference. ``None`` for too few cases, or if ``variance`` is 0: it is unknown.

    Source: the approximation of the power of the t test, J. Cohen, "Statistical Power Analysis for the Behavioral
    Sciences" (1988), chapter 2, with t quantiles and the pseudo-case of ``paired_test``.
    """
    if cases < 2 or variance <= 0:
        return None
    reach = _reach(cases, alpha)
    shrunk = (cases / (cases + 1)) ** 2
    slack = shrunk * (1 + reach) - reach
    return sqrt(reach * variance / slack) if slack > 0 else None


def detectable_rate(cases: int, rate: float, variance: float, samples: float, *, alpha: float = 0.05) -> float | None:
    """The smallest difference from a pass rate of ``rate`` that is detected with 80 % power, in 0..1.

    ``variance`` is that of one case's difference between equal runs, where each case has ``samples`` cells. A worse run
    is modeled as failing the same share of what passed in every case, which makes its results vary more. ``None`` for
    fewer than two cases, or if no difference can be detected.
    """
    if cases < 2:
        return None
    rate = max(rate, 1 - rate)
    within = min(rate * (1 - rate), samples * variance / 2)
    between = rate * (1 - rate) - within
    reach = _reach(cases, alpha)

    def is_detectable(difference: float) -> bool:
        lost = min(1.0, difference / rate)
        changed = (1 - lost) * rate - (1 - lost) ** 2 * (rate * rate + between)
        square = lost * lost * between + (within + changed) / samples + difference * difference
        pseudo = square / min(1.0, samples * square)
        shrunk = (cases * difference / (cases + 1)) ** 2
        return shrunk >= reach * ((cases * square + pseudo) / (cases + 1) - shrunk)

    return _smallest(is_detectable, rate)


def detectable_within(
    cases: int,
    rate: float,
    within: float,
    samples: tuple[float, float],
    *,
    change: float = 0.0,
    noise: RunNoise = NO_NOISE,
    alpha: float = 0.05,
) -> float | None:
    """The smallest fall of a pass rate that the test within cases detects with 80 % power, in 0..1.

    ``within`` is the variance of one sample around the rate of its case, ``samples`` are the numbers of samples per
    case in A and B, ``change`` is the variance of the cases' differences beyond their samples', and ``noise`` is what
    runs have in common. A worse run is modeled as failing the same share of what passed
    in every case. ``alpha`` is two-sided. ``None`` if no fall can be detected.

    Source: the power of a score test, with the variance of its null hypothesis and that of the alternative, J. L.
    Fleiss, B. Levin and M. C. Paik, "Statistical Methods for Rates and Proportions" (2003), section 4.2. Checked by
    ``make calibration``.
    """
    a, b = samples
    rate = max(rate, 1 - rate)
    square = rate - min(within, rate * (1 - rate))  # the mean of the squared rates of cases

    def is_detectable(fall: float) -> bool:
        left = 1 - fall / rate
        pooled = (a + b * left) / (a + b)
        unchanged = (pooled * rate - pooled**2 * square) * (1 / a + 1 / b)
        changed = (rate - square) / a + (left * rate - left**2 * square) / b + change
        variances = [noise.dispersion * max(0.0, variance) / cases for variance in (unchanged, changed)]
        freedom = max(1, round(min(noise.freedom, noise.freedom_with(variances[0]), MANY)))
        factors = (t_quantile(level, freedom) for level in (1 - alpha / 2, POWER))
        errors = (sqrt(variance + noise.of_difference) for variance in variances)
        return fall >= sum(factor * error for factor, error in zip(factors, errors, strict=True))

    log_ways = lgamma(a + b + 1) - lgamma(b + 1) - lgamma(a + 1)  # to choose B's samples, whose numbers may be means
    if log(0.5) - cases * log_ways >= log(alpha / 2):
        return None  # not even the loss of everything
    return _smallest(is_detectable, rate)


def _reach(cases: int, alpha: float) -> float:
    """The square of the mean that is significant with that power, in variances of the cases' differences."""
    return (t_quantile(1 - alpha / 2, cases - 1) + t_quantile(POWER, cases - 1)) ** 2 / (cases + 1)


def _smallest(is_detectable: Callable[[float], bool], largest: float) -> float | None:
    low, high = 0.0, largest
    if not is_detectable(high):
        return None
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if is_detectable(middle) else (middle, high)
    return high


class Cells(NamedTuple):
    """The values of cells: their number, mean and ``variance``, of which ``within`` is that within cases."""

    number: int
    mean: float
    variance: float
    within: float


def cells_of(cases: Sequence[Sequence[float]], *, is_rate: bool) -> Cells:
    """The variance of cells, given the samples of each case on each model run. Needs at least one value.

    ``within`` is the pooled variance of the cases with several samples. As far as few of them show it, all variance
    counts as noise: with one sample per case, nothing tells a case that always fails from one that failed by chance, so
    a repeated run varies less than stated. For a rate, only cases with the rarer value show it, and half a cell more of
    that value counts, so that a rate of 0 or 1 is not taken as certain.
    """
    values = [value for case in cases for value in case]
    number, mean = len(values), fsum(values) / len(values)
    if is_rate:
        added = (fsum(values) + 0.5) / (number + 1)
        variance = added * (1 - added)
    else:
        variance = fsum((value - mean) ** 2 for value in values) / max(1, number - 1)
    repeated = [case for case in cases if len(case) > 1]
    freedom = sum(len(case) - 1 for case in repeated)
    squares = fsum((value - fsum(case) / len(case)) ** 2 for case in repeated for value in case)
    rarer = float(mean < 0.5)
    informative = sum(rarer in case for case in repeated) if is_rate else len(repeated)
    measured = min(variance, squares / freedom) if freedom else variance
    within = (informative * measured + _PRIOR_CASES * variance) / (informative + _PRIOR_CASES)
    return Cells(number, mean, variance, within)


def counts_at_rate(cells: int, rate: float, within: float) -> Chances:
    """The number of cells that pass in a run, if the rate of the suite is ``rate``.

    ``within`` is the variance of a cell around the rate of its case, at most ``rate * (1 - rate)``. The binomial number
    of equal cells, contracted around its mean to the standard deviation of cells whose cases differ: exact if they do
    not.

    Checked by ``make calibration``.
    """
    variance = rate * (1 - rate)
    if not variance:
        return [(round(cells * rate), 1.0)]
    law = _law(cells, cells * rate, lambda count: (cells - count) / (count + 1) * rate / (1 - rate))
    return _contracted(law, cells, cells * rate, within / variance)


def repeated_counts(observed: Cells) -> Chances:
    """The number of cells that pass if a run is repeated, given what this run ``observed``.

    Both runs vary around the true rate, so a repeated run differs from this one by more than a run does from the truth.
    Beta-binomial with the prior of Jeffreys, contracted as in ``counts_at_rate``.

    Source: the predictive distribution of a binomial number, A. Gelman and others, "Bayesian Data Analysis" (2013),
    section 2.4. Checked by ``make calibration``.
    """
    cells, passed = observed.number, round(observed.number * observed.mean)
    a, b = passed + 0.5, cells - passed + 0.5
    mean = cells * a / (a + b)
    law = _law(cells, mean, lambda count: (cells - count) * (a + count) / ((count + 1) * (b + cells - count - 1)))
    return _contracted(law, cells, mean, observed.within / observed.variance)


def failing_share(chances: Chances, passes: Callable[[int], bool]) -> float:
    """The probability of the numbers of cells with which a gate fails."""
    return min(1.0, fsum(chance for count, chance in chances if not passes(count)))


def repeated_above(value: float, threshold: float, parts: Sequence[tuple[float, Cells]]) -> float | None:
    """The probability that the sum of ``share * mean`` exceeds a threshold if a run is repeated.

    ``parts`` are independent, each with its share. ``None`` if no value varies: nothing is then known of the noise. It
    is a t test of the difference of two equal runs, read the other way round.

    Source: the prediction interval of a new mean, G. J. Hahn and W. Q. Meeker, "Statistical Intervals" (1991), chapter
    4.
    """
    variance = fsum(share * share * part.within / part.number for share, part in parts)
    if variance <= 0:
        return None
    freedom = max(1, sum(part.number for _, part in parts) - len(parts))
    t = (value - threshold) / sqrt(2 * variance)
    tail = t_two_sided_p(t, freedom) / 2
    return 1 - tail if t > 0 else tail


def _law(cells: int, mean: float, ratio: Callable[[int], float]) -> list[tuple[int, float]]:
    """The probabilities of the numbers around the ``mean``; ``ratio`` is that of a number's successor to its own."""
    middle = min(cells, int(mean))
    weights = {middle: 1.0}
    weight = 1.0
    for count in range(middle, cells):
        weight *= ratio(count)
        if weight < _NEGLIGIBLE:
            break
        weights[count + 1] = weight
    weight = 1.0
    for count in range(middle, 0, -1):
        weight /= ratio(count - 1)
        if weight < _NEGLIGIBLE:
            break
        weights[count - 1] = weight
    total = fsum(weights.values())
    return [(count, weight / total) for count, weight in weights.items()]


def _contracted(law: Chances, cells: int, mean: float, share: float) -> Chances:
    """The law with this ``share`` of its variance: a number is the interval of one around it, which is drawn to the
    mean and then divided among the numbers that it reaches.
    """
    scale = sqrt(share)
    if scale >= 1:
        return law
    chances: defaultdict[int, float] = defaultdict(float)
    for count, chance in law:
        low = mean + (count - 0.5 - mean) * scale
        first = floor(low + 0.5 + _ROUNDING)
        inside = min(1.0, max(0.0, (first + 0.5 - low) / scale)) if scale else 1.0
        chances[min(cells, max(0, first))] += chance * inside
        chances[min(cells, max(0, first + 1))] += chance * (1 - inside)
    return chances.items()
