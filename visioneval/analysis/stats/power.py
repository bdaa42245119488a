"""The smallest differences that ``paired_test`` and the test within cases detect. Pure."""

from __future__ import annotations

from collections.abc import Callable
from math import lgamma, log, sqrt

from visioneval.analysis.stats.between_runs import NO_NOISE, RunNoise
from visioneval.analysis.stats.student import MANY, t_quantile

POWER = 0.8
_STEPS = 40


def detectable_mean(cases: int, variance: float, *, alpha: float = 0.05, power: float = POWER) -> float | None:
    """The smallest mean difference detected with ``power`` at level ``alpha``, in the unit of the differences.

    ``variance`` is that of one case's difference. ``None`` for too few cases, or if ``variance`` is 0: it is unknown.

    Source: the approximation of the power of the t test, J. Cohen, "Statistical Power Analysis for the Behavioral
    Sciences" (1988), chapter 2, with t quantiles and the pseudo-case of ``paired_test``.
    """
    if cases < 2 or variance <= 0:
        return None
    reach = _reach(cases, alpha, power)
    shrunk = (cases / (cases + 1)) ** 2
    slack = shrunk * (1 + reach) - reach
    return sqrt(reach * variance / slack) if slack > 0 else None


def detectable_rate(
    cases: int, rate: float, variance: float, samples: float, *, alpha: float = 0.05, power: float = POWER
) -> float | None:
    """The smallest difference from a pass rate of ``rate`` that is detected with ``power``, in 0..1.

    ``variance`` is that of one case's difference between equal runs, where each case has ``samples`` cells. A worse run
    is modeled as failing the same share of what passed in every case, which makes its results vary more. ``None`` for
    fewer than two cases, or if no difference can be detected.
    """
    if cases < 2:
        return None
    rate = max(rate, 1 - rate)
    within = min(rate * (1 - rate), samples * variance / 2)
    between = rate * (1 - rate) - within
    reach = _reach(cases, alpha, power)

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
    power: float = POWER,
) -> float | None:
    """The smallest fall of a pass rate that the test within cases detects with ``power``, in 0..1.

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
        factors = (t_quantile(level, freedom) for level in (1 - alpha / 2, power))
        errors = (sqrt(variance + noise.of_difference) for variance in variances)
        return fall >= sum(factor * error for factor, error in zip(factors, errors, strict=True))

    if log(0.5) - cases * _log_ways(a + b, b) >= log(alpha / 2):
        return None  # not even the loss of everything
    return _smallest(is_detectable, rate)


def _log_ways(total: float, chosen: float) -> float:
    """The logarithm of the number of ways to choose ``chosen`` of ``total``, which may be means."""
    return lgamma(total + 1) - lgamma(chosen + 1) - lgamma(total - chosen + 1)


def _reach(cases: int, alpha: float, power: float) -> float:
    """The square of the mean that is significant with ``power``, in variances of the cases' differences."""
    return (t_quantile(1 - alpha / 2, cases - 1) + t_quantile(power, cases - 1)) ** 2 / (cases + 1)


def _smallest(is_detectable: Callable[[float], bool], largest: float) -> float | None:
    low, high = 0.0, largest
    if not is_detectable(high):
        return None
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if is_detectable(middle) else (middle, high)
    return high
