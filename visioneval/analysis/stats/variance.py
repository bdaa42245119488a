"""Where results vary: between runs of the same suite, cases, samples of a case, and votes about a sample. Pure.

The runs of a baseline show what varies between runs: another hour, or another version behind the same name, moves many
samples of a run together. A comparison that takes samples as independent would then find a difference between equal
runs too often.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum, inf, sqrt
from statistics import NormalDist
from typing import NamedTuple

from visioneval.analysis.stats.basic import t_two_sided_p

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
    ``freedom`` degrees of freedom.
    """

    runs: int = 1
    shared: float = 0.0
    dispersion: float = 1.0
    freedom: float = inf

    @property
    def of_difference(self) -> float:
        """The shared variance of the mean of a new run minus the mean of these runs."""
        return self.shared * (1 + 1 / self.runs)

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
    tables = [_table(cases) for cases in strata if cases]
    total = [fsum(column) for column in zip(*tables, strict=True)] if tables else [0.0] * 9
    votes_ss, votes_df, samples_ss, samples_df, samples_own, cases_ss, cases_df, cases_samples, cases_own = total
    vote = votes_ss / votes_df if votes_df else None
    noise = vote or 0.0
    sample = (samples_ss - samples_df * noise) / samples_own if samples_df else None
    between = cases_ss - cases_df * noise - cases_samples * (sample or 0.0)
    case = between / cases_own if cases_df else None
    return VarianceComponents(*(None if value is None else max(0.0, value) for value in (case, sample, vote)))


def _table(cases: Sequence[CaseTable]) -> tuple[float, ...]:
    """Sums of squares, their degrees of freedom and the coefficients of the components that they estimate."""
    samples, votes = sum(case.samples for case in cases), sum(case.votes for case in cases)
    mean = fsum(case.votes * case.mean for case in cases) / votes
    shares = fsum(case.squared_votes / case.votes for case in cases)
    return (
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
