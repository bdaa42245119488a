"""Where results vary (between runs of the same suite, cases, samples of a case, and votes about a sample), the smallest
differences that tests detect, and how often a gate fails a run of the same quality. Pure.

The runs of a baseline show what varies between runs: another hour, or another version behind the same name, moves many
samples of a run together. A comparison that takes samples as independent would then find a difference between equal
runs too often.

For a gate, cases are fixed: a repeated run has the same ones. So only the variance of samples within their cases counts
there, and not that between cases, which belongs to the interval of what the cases stand for.

What is estimated, and how:

- noise of runs (a baseline of several): the variance of the pass rate between runs that all cases share, and a case's
  passes as a multiple of independent ones; both widen the tests
- detectable difference: with 80 % power, from the variance at hand, at the level that decides
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import floor, fsum, inf, lgamma, log, sqrt
from statistics import NormalDist
from typing import NamedTuple

from visioneval.analysis.stats.basic import MANY, t_quantile, t_two_sided_p

Passes = tuple[int, int]
"""The samples of a case in one run that passed, and all of its measured samples."""
_LOWEST, _HIGHEST = 1e-300, 1 - 1e-16
_MANY = 1_000_000
SampleVotes = tuple[int, float, float]
"""The number of votes about a sample, their mean, and the sum of their squared deviations from it."""


@dataclass(frozen=True, slots=True)
class RunNoise:
    """What varies between equal runs. With fewer than two ``runs`` it is unknown, and taken as nothing.

    ``shared`` is the variance of a run's mean that all its cases share, in squared units. ``dispersion`` is the
    variance of the passes of a case in a run, as a multiple, 1 or more, of that of independent samples, known with
    ``freedom`` degrees of freedom. ``new_runs`` are those that are compared with them together.
    """

    runs: int = 1
    shared: float = 0.0
    dispersion: float = 1.0
    freedom: float = inf
    new_runs: int = 1

    @property
    def of_difference(self) -> float:
        """The shared variance of the mean of new runs minus the mean of these runs."""
        return self.shared * (1 / self.new_runs + 1 / self.runs)

    def widened(self, p: float, variance: float) -> float:
        """A one-sided p-value of a difference of means that allows for this noise.

        ``variance`` is that of the difference if samples are independent. The standard error grows, and Student's t
        takes the place of the normal distribution. Its degrees of freedom are runs - 1 where the shared part is nearly
        everything, and many where it is little: only that part is an estimate from so few runs. Size: ``make
        calibration``.
        """
        of_samples = self.dispersion * variance
        freedom = min(self.freedom, self.freedom_with(of_samples))
        return _widened(p, (of_samples + self.of_difference) / variance, freedom)

    def freedom_with(self, variance: float) -> float:
        """Degrees of freedom of a variance to which the shared one of a difference is added."""
        added = self.of_difference
        return (self.runs - 1) * (variance + added) / added if added else inf

    def widened_of_case(self, p: float) -> float:
        """A one-sided p-value of a single case that allows for the dispersion."""
        return _widened(p, self.dispersion, self.freedom)


NO_NOISE = RunNoise()


def run_noise(cases: Sequence[Sequence[Passes]]) -> RunNoise:
    """The noise between runs: for each case that all runs measured, its passes in each of them.

    The dispersion is pooled over the cases; cases with one sample per run say nothing about it.

    Source: Pearson's statistic over its degrees of freedom, D. A. Williams, "Extra-binomial variation in logistic
    linear models", Journal of the Royal Statistical Society C 31 (1982).
    """
    runs = len(cases[0]) if cases else 1
    if len(cases) < 2 or runs < 2:
        return NO_NOISE
    shared = shared_variance([[passed / samples for passed, samples in row] for row in cases])
    statistic, freedom = 0.0, 0
    for row in cases:
        passed, samples = sum(count for count, _ in row), sum(count for _, count in row)
        if 0 < passed < samples and samples > runs:
            rate = passed / samples
            squares = fsum((count - n * rate) ** 2 / (n * rate * (1 - rate)) for count, n in row)
            statistic += squares * (1 - 1 / samples)
            freedom += runs - 1
    if statistic <= freedom:
        return RunNoise(runs, shared)
    return RunNoise(runs, shared, statistic / freedom, freedom)


def shared_variance(cases: Sequence[Sequence[float]]) -> float:
    """The variance of a run's mean that its cases share, given the value of each case in each run. 0 or more.

    Needs two cases or more, and two runs or more.

    Source: the two-way random model (cases and runs, one value each) of S. R. Searle, G. Casella and C. E. McCulloch,
    "Variance Components" (1992), section 4.3, with a negative estimate set to 0.
    """
    number, runs = len(cases), len(cases[0])
    means = [fsum(column) / number for column in zip(*cases, strict=True)]
    middle = fsum(means) / runs
    of_runs = number * fsum((mean - middle) ** 2 for mean in means) / (runs - 1)
    rest = fsum(
        (value - case + middle - mean) ** 2
        for row, case in ((row, fsum(row) / runs) for row in cases)
        for value, mean in zip(row, means, strict=True)
    )
    return max(0.0, of_runs - rest / ((number - 1) * (runs - 1))) / number


def _widened(p: float, factor: float, freedom: float) -> float:
    if factor <= 1:
        return p
    z = NormalDist().inv_cdf(min(max(p, _LOWEST), _HIGHEST)) / sqrt(factor)
    tail = t_two_sided_p(z, max(1, round(min(freedom, _MANY)))) / 2
    return tail if z < 0 else 1 - tail


class CaseTable(NamedTuple):
    """The sums of one case: of its ``votes`` about its ``samples``, each with one vote or more.

    ``squared_votes`` is the sum over samples of the square of their number of votes. ``between`` is the sum of squared
    deviations of the samples' means from the ``mean`` of all votes, weighted by votes, and ``within`` that of the votes
    from the mean of their sample.
    """

    samples: int
    votes: int
    squared_votes: int
    mean: float
    between: float
    within: float


def case_of_values(values: Sequence[float]) -> CaseTable:
    """A case whose samples have one value each. Raises ``ZeroDivisionError`` without values."""
    return case_of_votes([(1, value, 0.0) for value in values])


def case_of_votes(samples: Sequence[SampleVotes]) -> CaseTable:
    """A case whose samples have several votes. Raises ``ZeroDivisionError`` without samples."""
    number = sum(votes for votes, _, _ in samples)
    mean = fsum(votes * value for votes, value, _ in samples) / number
    return CaseTable(
        len(samples),
        number,
        sum(votes**2 for votes, _, _ in samples),
        mean,
        fsum(votes * (value - mean) ** 2 for votes, value, _ in samples),
        fsum(squares for _, _, squares in samples),
    )


@dataclass(frozen=True, slots=True)
class VarianceComponents:
    """Variances of a single vote, in squared units, each 0 or more.

    ``case`` is the variance between cases, ``sample`` between samples of a case, ``vote`` between votes about a sample.
    ``None`` cannot be separated: the noise of votes is then a part of ``sample``, and that of samples a part of
    ``case``. ``case`` is ``None`` if no model run has two cases.
    """

    case: float | None
    sample: float | None
    vote: float | None


def components(strata: Iterable[Sequence[CaseTable]]) -> VarianceComponents:
    """Splits the variance within strata, the model runs, which may differ in their means.

    The estimators are unbiased before negative ones are set to 0.

    Source: S. R. Searle, G. Casella and C. E. McCulloch, "Variance Components" (1992), sections 3.6 and 5.3: the
    analysis of variance of unbalanced nested data, with expected mean squares; sums of squares are pooled over strata.
    """
    tables = []
    for cases in strata:
        if not cases:
            continue
        samples, votes = sum(case.samples for case in cases), sum(case.votes for case in cases)
        mean = fsum(case.votes * case.mean for case in cases) / votes
        shares = fsum(case.squared_votes / case.votes for case in cases)
        # sums of squares, their degrees of freedom and the coefficients of the components that they estimate
        table = (
            fsum(case.within for case in cases),
            votes - samples,
            fsum(case.between for case in cases),
            samples - len(cases),
            votes - shares,
            fsum(case.votes * (case.mean - mean) ** 2 for case in cases),
            len(cases) - 1,
            shares - sum(case.squared_votes for case in cases) / votes,
            votes - sum(case.votes**2 for case in cases) / votes,
        )
        tables.append(table)
    total = [fsum(column) for column in zip(*tables, strict=True)] if tables else [0.0] * 9
    votes_ss, votes_df, samples_ss, samples_df, samples_own, cases_ss, cases_df, cases_samples, cases_own = total
    vote = votes_ss / votes_df if votes_df else None
    noise = vote or 0.0
    sample = (samples_ss - samples_df * noise) / samples_own if samples_df else None
    between = cases_ss - cases_df * noise - cases_samples * (sample or 0.0)
    case = between / cases_own if cases_df else None
    return VarianceComponents(*(None if value is None else max(0.0, value) for value in (case, sample, vote)))


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
