"""Intervals over cases: of rates, also close to 0 or 1, of means and their differences, of quantiles and of weighted
means, with sources, without NumPy. Pure.

Cells of one case are not independent: samples of a prompt tend to pass or fail together, and so do the model runs that
generate it. So the case is the unit everywhere: a statistic enters with one sum and one count per case.

The interval of each number:

- pass rate, rate of a yes-or-no metric, questions by type: Wilson with the effective number of cells, from the
  variance between cases, and t quantiles. The correlation within cases is shrunk towards 1 as if four more cases had
  shown it
- mean of a number with a range: Wilson on the mean as a share of the range, with the effective number of cases and a
  pseudo-case
- mean of any other number, diversity: t over cases (linearized ratio)
- quantile: order statistics with the effective number of values; a limit that the cases cannot determine is left out
- value weighted by tag: the tags' intervals, combined by variance estimates recovery (Zou and Donner)
- separation of counter-examples: rates: both intervals combined (Newcombe; Zou and Donner); numbers: Welch's t over
  images, paired where all images are on both sides
- AUROC of counter-examples: variance of each image's placements (DeLong, Obuchowski), as a Wilson interval
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, comb, exp, floor, fsum, lgamma, log, log1p, sqrt
from statistics import NormalDist
from typing import Any

from visioneval.analysis.stats.basic import Interval, t_quantile, wilson_interval

CaseSums = Sequence[tuple[float, int]]
"""The sum of the values of each case, and their number, which is at least 1."""
Groups = Mapping[Any, Sequence[float]]
"""The values of each case, of which there is at least one. The same key on two sides is a case that both share."""
LEVEL = 0.975
"""The confidence of each bound of an interval at 95 %."""
_PRIOR_CASES = 4
"""Chosen by simulation: with fewer, rates near 1 of cases that fail as a whole are covered too seldom."""
_NOISE = 1e-24
"""Variances below this, relative to the squared mean, come from rounding."""
_ROUNDING = 1e-9


def auroc(above: Sequence[float], below: Sequence[float]) -> float:
    """The share of pairs in which a value of ``above`` exceeds one of ``below``, ties counting half. 0.5 is chance.

    Equals the area under the ROC curve, and the Mann-Whitney U divided by the number of pairs. Raises ``ValueError``
    if either is empty.

    Source: H. B. Mann and D. R. Whitney, "On a test of whether one of two random variables is stochastically larger
    than the other", Annals of Mathematical Statistics 18 (1947), with mid-ranks for ties; J. A. Hanley and
    B. J. McNeil, "The meaning and use of the area under a receiver operating characteristic (ROC) curve", Radiology
    143 (1982).
    """
    if not above or not below:
        raise ValueError("AUROC needs values on both sides")
    above_counts, below_counts = Counter(above), Counter(below)
    smaller = 0
    wins = 0.0
    for value in sorted({*above_counts, *below_counts}):
        wins += above_counts[value] * (smaller + below_counts[value] / 2)
        smaller += below_counts[value]
    return wins / (len(above) * len(below))


def rate_interval(cases: CaseSums, ties: int = 0, level: float = LEVEL) -> Interval | None:
    """The interval of a rate, the mean of values that are 0 or 1, or 0.5 for each of ``ties``.

    Wilson's interval with the effective number of cells, which follows from the variance between cases, and the t
    quantile of cases - 1 degrees of freedom; cases of unequal size count as fewer. The variance counts as at least that
    of independent cells. Where few cases have the rarer value, they hardly show how much the cells of a case have in
    common: the correlation within cases is shrunk towards 1, as if ``_PRIOR_CASES`` more cases had shown that. With one
    yes-or-no value per case that is Wilson's interval. A rate of exactly 0 or 1, or of a single case, shows no variance
    and counts each case once. ``None`` without cases.

    Source: N. Dean and M. Pagano, "Evaluating confidence interval methods for binomial proportions in clustered
    surveys", Journal of Survey Statistics and Methodology 3 (2015); E. B. Wilson, Journal of the American Statistical
    Association 22 (1927).
    """
    if not cases:
        return None
    cells = sum(count for _, count in cases)
    rate = min(1.0, max(0.0, fsum(total for total, _ in cases) / cells))
    effective = effective_number(cases, ties, level)
    return _wilson(rate, effective)


def effective_number(cases: CaseSums, ties: int = 0, level: float = LEVEL) -> float:
    """The number of independent cells that would show a rate as well as these cells do, as in ``rate_interval``.

    Counts fewer for the t quantile instead of the normal one, and for a higher level.
    """
    number, cells = len(cases), sum(count for _, count in cases)
    rate = min(1.0, max(0.0, fsum(total for total, _ in cases) / cells))
    if number == 1 or rate in (0, 1) or (cells == number and not ties):
        return _adjusted(float(number), NormalDist().inv_cdf(level))
    independent = (rate - ties / (4 * cells) - rate * rate) / cells
    whole_cases = independent * sum(count * count for _, count in cases) / cells
    measured = max(independent, _variance_of_ratio(cases, rate))
    rare = min(sum(total > 0 for total, _ in cases), sum(total < count for total, count in cases))
    shrunk = (rare * min(measured, whole_cases) + _PRIOR_CASES * whole_cases) / (rare + _PRIOR_CASES)
    variance = max(measured, shrunk) if cells > number else measured
    effective = rate * (1 - rate) / variance if variance > _NOISE else float(cells)
    return _adjusted(effective, t_quantile(level, _freedom(cases)))


def mean_interval(
    cases: CaseSums, bounds: tuple[float | None, float | None] = (None, None), level: float = LEVEL
) -> Interval | None:
    """The interval of the mean of all values, from the variance between cases.

    With both ``bounds``, Wilson's interval of the mean as a share of the range, with the effective number of cases and
    one pseudo-case, half of it at each end: an average over scores that are nearly all at one end does not show how
    often a case is at the other. Otherwise the t interval, which is ``None`` for fewer than two cases, or if all cases
    have the same mean: the variance is then unknown, not 0.

    Source: the linearized variance of a ratio of cluster totals, W. G. Cochran, "Sampling Techniques" (1977), section
    6.4, with cases - 1 degrees of freedom; for the pseudo-case A. Agresti and B. A. Coull, "Approximate is better than
    exact for interval estimation of binomial proportions", The American Statistician 52 (1998). Coverage: ``make
    calibration``.
    """
    low, high = bounds
    if low is not None and high is not None and low < high and cases:
        return _bounded_mean_interval(cases, low, high, level)
    if len(cases) < 2:
        return None
    mean = fsum(total for total, _ in cases) / sum(count for _, count in cases)
    variance = _variance_of_ratio(cases, mean)
    if variance <= _NOISE * mean * mean:
        return None
    half = t_quantile(level, _freedom(cases)) * sqrt(variance)
    return _clipped(mean, half, bounds)


def _bounded_mean_interval(cases: CaseSums, low: float, high: float, level: float) -> Interval:
    number, cells = equal_cases(cases), sum(count for _, count in cases)
    shares = [((total - low * count) / (high - low), count) for total, count in cases]
    pseudo = cells / number
    mean = (fsum(total for total, _ in shares) + pseudo / 2) / (cells + pseudo)
    squares = fsum((total - mean * count) ** 2 for total, count in shares)
    squares += pseudo**2 * (mean**2 + (1 - mean) ** 2) / 2
    variance = (number + 1) / number * squares / (cells + pseudo) ** 2
    share = min(1.0, max(0.0, fsum(total for total, _ in shares) / cells))
    quantile = t_quantile(level, _freedom(cases))
    interval = _wilson(mean, mean * (1 - mean) / variance, quantile)
    lowest, highest = min(interval.low, share), max(interval.high, share)
    return Interval(low + (high - low) * lowest, low + (high - low) * highest)


def rate_separation_interval(above: Groups, below: Groups) -> Interval | None:
    """The interval of the rate of ``above`` minus the rate of ``below``, the values of each case on both sides.

    Combines the intervals of both rates, so that a side on which everything passes is not taken as certain, and the
    correlation of the rates over the cases that are on both sides (``_variance_of_difference``). Few cases hardly show
    a correlation: a positive one, which makes the interval narrower, is shrunk towards 0 as if ``_PRIOR_CASES`` more
    cases had shown none. ``None`` for fewer than two cases on a side.

    Source: R. G. Newcombe, "Interval estimation for the difference between independent proportions", Statistics in
    Medicine 17 (1998), method 10, with ``rate_interval``; with a correlation G. Y. Zou and A. Donner, "Construction of
    confidence limits about effect measures: A general approach", Statistics in Medicine 27 (2008).
    """
    sums = case_sums(above), case_sums(below)
    high, low = (rate_interval(side) for side in sums)
    if high is None or low is None or len(above) < 2 or len(below) < 2:
        return None
    first, second = map(_ratio, sums)
    correlation = _variance_of_difference(above, below, first, second).correlation
    if correlation > 0:
        shared = len(above.keys() & below.keys())
        correlation *= shared / (shared + _PRIOR_CASES)

    def reach(a: float, b: float) -> float:
        return sqrt(max(0.0, a * a + b * b - 2 * correlation * a * b))

    down, up = reach(first - high.low, low.high - second), reach(high.high - first, second - low.low)
    return Interval(max(-1.0, first - second - down), min(1.0, first - second + up))


def separation_interval(
    above: Groups, below: Groups, bounds: tuple[float | None, float | None] = (None, None)
) -> Interval | None:
    """The interval of the mean of ``above`` minus the mean of ``below``, the values of each case on both sides.

    Welch's interval if no case is on both sides, the paired t interval if every case is, and between the two if some
    are (``_variance_of_difference``). ``None`` for fewer than two cases on a side, or without any variance. ``bounds``
    are those of the difference.

    Source: B. L. Welch, "The generalization of 'Student's' problem when several different population variances are
    involved", Biometrika 34 (1947), over cases; the degrees of freedom are rounded down.
    """
    if len(above) < 2 or len(below) < 2:
        return None
    first, second = _ratio(case_sums(above)), _ratio(case_sums(below))
    variance = _variance_of_difference(above, below, first, second)
    if variance.total <= _NOISE * max(first * first, second * second):
        return None
    half = t_quantile(0.975, variance.freedom) * sqrt(variance.total)
    return _clipped(first - second, half, bounds)


def auroc_interval(above: Groups, below: Groups) -> Interval | None:
    """The interval of the AUROC of the values of ``above`` against ``below``: the values of each case on both sides.

    The variance is that of the placements of each case, with one case more on each side that is placed at random, so
    that a side without variance is not certain. Cases on both sides are as in ``_variance_of_difference``. The interval
    is Wilson's with the number of cases that has this variance. ``None`` for fewer than two cases on a side.

    Source: N. A. Obuchowski, "Nonparametric analysis of clustered ROC curve data", Biometrics 53 (1997), where a
    cluster may have values on both sides; E. B. Wilson as in ``rate_interval``.
    """
    if len(above) < 2 or len(below) < 2:
        return None
    high, low = [sorted(value for case in side.values() for value in case) for side in (above, below)]
    wins, losses = _placements(above, low), _placements(below, high)
    rate = fsum(value for case in wins.values() for value in case) / len(high)
    smaller = min(len(above), len(below))
    quantile = t_quantile(0.975, smaller - 1)
    if rate in (0, 1):
        return _wilson(rate, smaller, quantile)
    added = rate * (1 - rate) * (1 / len(above) ** 2 + 1 / len(below) ** 2)
    variance = _variance_of_difference(wins, losses, rate, 1 - rate).total + added
    return _wilson(rate, rate * (1 - rate) / variance, quantile)


@dataclass(frozen=True, slots=True)
class _DifferenceVariance:
    """The variance of a difference of two means, its degrees of freedom, and the correlation of the means."""

    total: float
    freedom: int
    correlation: float


def _variance_of_difference(above: Groups, below: Groups, first: float, second: float) -> _DifferenceVariance:
    """The variance of the mean ``first`` of ``above`` minus the mean ``second`` of ``below``.

    A key on both sides is a case that both share. The variance is the sum of the linearized variances of both means,
    minus twice their covariance over the cases that are on both sides; the other cases add nothing to the covariance.
    With no shared case that is Welch's variance, with only shared ones the paired one. The degrees of freedom are
    Satterthwaite's, over the shared cases and those of each side alone.

    Source: E. R. DeLong, D. M. DeLong and D. L. Clarke-Pearson, "Comparing the areas under two or more correlated
    receiver operating characteristic curves", Biometrics 44 (1988), and Obuchowski as in ``auroc_interval``.
    """
    a, b = _deviations(above, first), _deviations(below, second)
    shared = a.keys() & b.keys()
    parts: list[tuple[float, int]] = []
    for cases, sides in ((a.keys() - shared, [above]), (b.keys() - shared, [below]), (shared, [above, below])):
        if cases:
            square = fsum((a.get(case, 0.0) - b.get(case, 0.0)) ** 2 for case in cases)
            freedom = min(_freedom([(0.0, len(side[case])) for case in cases]) for side in sides)
            parts.append((square, freedom))
    total = fsum(square for square, _ in parts)
    weight = fsum(square * square / freedom for square, freedom in parts)
    alone = sqrt(fsum(value * value for value in a.values()) * fsum(value * value for value in b.values()))
    return _DifferenceVariance(
        total=total,
        freedom=max(1, int(total * total / weight + _ROUNDING)) if weight else 1,
        correlation=fsum(a[case] * b[case] for case in shared) / alone if alone else 0.0,
    )


def _deviations(groups: Groups, ratio: float) -> dict[Any, float]:
    """What each case adds to the linearized mean, so that the sum of squares is its variance."""
    cases = case_sums(groups)
    number, cells = equal_cases(cases), sum(count for _, count in cases)
    scale = sqrt(number / (number - 1)) / cells
    return {case: scale * (total - ratio * count) for case, (total, count) in zip(groups, cases, strict=True)}


def _ratio(cases: CaseSums) -> float:
    return fsum(total for total, _ in cases) / sum(count for _, count in cases)


def case_sums(groups: Groups) -> list[tuple[float, int]]:
    """The sum and the number of the values of each case, independent of their order."""
    return [(fsum(values), len(values)) for values in groups.values()]


def _variance_of_ratio(cases: CaseSums, ratio: float) -> float:
    number, cells = equal_cases(cases), sum(count for _, count in cases)
    return number / (number - 1) * fsum((total - ratio * count) ** 2 for total, count in cases) / cells**2


def _freedom(cases: CaseSums) -> int:
    """Degrees of freedom of a variance between cases, at least 1."""
    return max(1, int(equal_cases(cases) - 1 + _ROUNDING))


def equal_cases(cases: CaseSums) -> float:
    """The number of cases of equal size that would count as much: L. Kish, "Survey Sampling" (1965), section 11.7."""
    return sum(count for _, count in cases) ** 2 / sum(count * count for _, count in cases)


def _wilson(rate: float, n: float, quantile: float | None = None) -> Interval:
    """``wilson_interval`` of a rate over an effective ``n``; a quantile that is not the normal one makes it smaller."""
    adjusted = n if quantile is None else _adjusted(n, quantile)
    return Interval(*wilson_interval(min(rate * adjusted, adjusted), adjusted))


def _adjusted(n: float, quantile: float) -> float:
    """The number of observations for which the normal quantile gives what another quantile gives for ``n``."""
    return n * (NormalDist().inv_cdf(0.975) / quantile) ** 2


def _placements(side: Groups, others: Sequence[float]) -> dict[Any, list[float]]:
    """For each value of a case, the share of ``others`` (sorted) below it, ties counting half."""
    share = {
        value: (bisect_left(others, value) + bisect_right(others, value)) / (2 * len(others))
        for case in side.values()
        for value in case
    }
    return {case: [share[value] for value in values] for case, values in side.items()}


def _clipped(value: float, half: float, bounds: tuple[float | None, float | None]) -> Interval:
    """The interval around a value, within bounds that contain the value."""
    lowest, highest = bounds
    low = value - half if lowest is None else max(value - half, min(lowest, value))
    high = value + half if highest is None else min(value + half, max(highest, value))
    return Interval(low, high)


FEW = 3
"""The most cases with an event for which the exact limit is used."""
Limits = tuple[float | None, float | None]
"""Both ends of an interval; ``None`` for an end that the cases cannot show."""


def rare_event_interval(cases: CaseSums, ties: int = 0) -> Interval | None:
    """``rate_interval`` at 95 %, with a wider bound where only one to three cases differ from the rest.

    Wilson's interval misses a rate of 0.01 or 0.99 in 9 % of samples of 50, because of the samples with two or three
    events. There, the bound on the side of 0 (or 1) becomes the rate at which so many events, or more, have a
    probability of 5 %. The other bound nearly always holds at such rates. ``None`` without cases.

    Source: the modified interval of L. D. Brown, T. T. Cai and A. DasGupta, "Interval estimation for a binomial
    proportion", Statistical Science 16 (2001), section 4.1.1, with the exact limit of C. J. Clopper and E. S. Pearson,
    "The use of confidence or fiducial limits illustrated in the case of the binomial", Biometrika 26 (1934), instead of
    its Poisson limit, and with the cases that have an event as events.
    """
    return _with_exact_limits(rate_interval(cases, ties), cases)


def whole_case_interval(cases: CaseSums) -> Interval | None:
    """The interval of a rate at 95 % that counts each case once, however many cells it has. ``None`` without cases.

    For rates that must reach a minimum: one more event never lowers its bounds, so that a perfect judge never does
    worse than an imperfect one. The variance between cases cannot promise that, as no error at all shows none. With
    cases of unequal size, as many count as cases of equal size would.

    Source: Wilson's interval with the number of cases.
    """
    if not cases:
        return None
    number = equal_cases(cases)
    rate = min(1.0, max(0.0, fsum(total for total, _ in cases) / sum(count for _, count in cases)))
    return _wilson(rate, number)


def cautious_interval(cases: CaseSums) -> Interval | None:
    """``whole_case_interval`` with the exact limits of ``rare_event_interval``. ``None`` without cases."""
    return _with_exact_limits(whole_case_interval(cases), cases)


def _with_exact_limits(interval: Interval | None, cases: CaseSums) -> Interval | None:
    if interval is None:
        return None
    rate = min(1.0, max(0.0, fsum(total for total, _ in cases) / sum(count for _, count in cases)))
    low = min(interval.low, rate * _shrink(sum(total > 0 for total, _ in cases), len(cases)))
    high = max(interval.high, 1 - (1 - rate) * _shrink(sum(total < count for total, count in cases), len(cases)))
    return Interval(low, high)


def _shrink(events: int, cases: int) -> float:
    """The exact limit as a share of the observed rate of events; 1 if there are none or many."""
    return exact_low(events, cases) * cases / events if 1 <= events <= FEW else 1.0


@lru_cache(maxsize=4096)
def exact_low(events: int, n: int) -> float:
    """The rate at which ``events`` or more of ``n`` have a probability of 5 %: the lower bound at 95 % on one side."""
    low, high = 0.0, 1.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        fewer = fsum(comb(n, k) * middle**k * (1 - middle) ** (n - k) for k in range(events))
        low, high = (middle, high) if fewer > 0.95 else (low, middle)
    return low


def quantile(values: Sequence[float], p: float) -> float:
    """The ``p`` quantile of values, linear between the two nearest of them. Raises ``ValueError`` without values.

    Source: definition 7 of R. J. Hyndman and Y. Fan, "Sample quantiles in statistical packages", The American
    Statistician 50 (1996).
    """
    if not values:
        raise ValueError("a quantile needs a value")
    ordered = sorted(values)
    position = (len(ordered) - 1) * p
    below = floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def quantile_interval(cases: Sequence[Sequence[float]], p: float) -> Limits:
    """The interval of the ``p`` quantile of all values, given by case: two of the values themselves.

    Of independent values, the number below the quantile is binomial, whatever their distribution. Values of one case
    count as fewer, by the variance between cases of the share of values up to the quantile. An end is ``None`` if not
    even the largest (or smallest) value is beyond the quantile with enough confidence: at 95 %, the 0.95 quantile has
    an upper limit from 72 cases on.

    Source: order statistics, H. A. David and H. N. Nagaraja, "Order Statistics" (2003), section 7.1; the effective
    number of values follows R. S. Woodruff, "Confidence intervals for medians and other position measures", Journal of
    the American Statistical Association 47 (1952). Coverage: ``make calibration``.
    """
    ordered = sorted(value for values in cases for value in values)
    estimate = quantile(ordered, p)
    shares = case_sums({number: [float(value <= estimate) for value in values] for number, values in enumerate(cases)})
    n = max(1, floor(effective_number(shares) + 1e-9))
    low, high = _ranks(n, p, 0.025)
    scale = len(ordered) / n
    return (
        None if low is None else ordered[max(1, floor(low * scale)) - 1],
        None if high is None else ordered[min(len(ordered), ceil(high * scale)) - 1],
    )


def _ranks(n: int, p: float, tail: float) -> tuple[int | None, int | None]:
    """The ranks from 1 to ``n`` of the values that are above, and below, the quantile with at most ``tail``."""
    low = high = None
    first = max(1, floor(n * p - 12 * sqrt(n * p * (1 - p))))  # below it, the probability is lost in rounding
    below = 0.0
    for rank in range(first, n + 1):
        count = rank - 1
        ways = lgamma(n + 1) - lgamma(count + 1) - lgamma(n - count + 1)
        below += exp(ways + count * log(p) + (n - count) * log1p(-p))  # the binomial probability of the count
        low = rank if below <= tail else low
        if 1 - below <= tail:
            high = rank
            break
    return low, high


def weighted_interval(parts: Sequence[tuple[float, float, Interval | None]]) -> Interval | None:
    """The interval of the sum of ``share * value`` over independent parts, each with the interval of its value.

    The shares are positive. Keeps the asymmetry of the parts' intervals, such as those of rates close to 1. ``None``
    if a part has no interval.

    Source: G. Y. Zou and A. Donner, "Construction of confidence limits about effect measures: a general approach",
    Statistics in Medicine 27 (2008), for sums; for two rates, it is Newcombe's interval.
    """
    value = fsum(share * part for share, part, _ in parts)
    down: list[float] = []
    up: list[float] = []
    for share, part, interval in parts:
        if interval is None:
            return None
        down.append((share * (part - interval.low)) ** 2)
        up.append((share * (interval.high - part)) ** 2)
    return Interval(value - sqrt(fsum(down)), value + sqrt(fsum(up)))
