"""Variance components of nested measurements: cases, samples of a case, votes about a sample. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum
from typing import NamedTuple


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
    within: float = 0.0


SampleVotes = tuple[int, float, float]
"""The number of votes about a sample, their mean, and the sum of their squared deviations from it."""


def case_of_values(values: Sequence[float]) -> CaseTable:
    """A case whose samples have one value each. Raises ``ZeroDivisionError`` without values."""
    number = len(values)
    if number == 1:
        return CaseTable(1, 1, 1, values[0], 0.0)
    mean = fsum(values) / number
    return CaseTable(number, number, number, mean, fsum((value - mean) ** 2 for value in values))


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
