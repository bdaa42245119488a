"""Variance components of nested measurements: cases, samples of a case, votes about a sample. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum


@dataclass(frozen=True, slots=True)
class SampleVotes:
    """The votes about one sample: their number (1 or more), mean, and sum of squared deviations from the mean."""

    votes: int
    mean: float
    squares: float = 0.0


Stratum = Mapping[object, Sequence[SampleVotes]]
"""The samples of each case of one model run."""


@dataclass(frozen=True, slots=True)
class Components:
    """Variances of a single vote, in squared units, each 0 or more.

    ``case`` is the variance between cases, ``sample`` between samples of a case, ``vote`` between votes about a sample.
    ``None`` cannot be separated: the noise of votes is then a part of ``sample``, and that of samples a part of
    ``case``. ``case`` is ``None`` if no model run has two cases.
    """

    case: float | None
    sample: float | None
    vote: float | None


def components(strata: Iterable[Stratum]) -> Components:
    """Splits the variance within strata, which may differ in their means. No case may be without samples.

    The estimators are unbiased before negative ones are set to 0.

    Source: S. R. Searle, G. Casella and C. E. McCulloch, "Variance Components" (1992), sections 3.6 and 5.3: the
    analysis of variance of unbalanced nested data, with expected mean squares; sums of squares are pooled over strata.
    """
    tables = [_table(stratum) for stratum in strata if stratum]
    total = [fsum(column) for column in zip(*tables, strict=True)] if tables else [0.0] * 9
    votes_ss, votes_df, samples_ss, samples_df, samples_own, cases_ss, cases_df, cases_samples, cases_own = total
    vote = votes_ss / votes_df if votes_df else None
    noise = vote or 0.0
    sample = (samples_ss - samples_df * noise) / samples_own if samples_df else None
    between = cases_ss - cases_df * noise - cases_samples * (sample or 0.0)
    case = between / cases_own if cases_df else None
    return Components(*(None if value is None else max(0.0, value) for value in (case, sample, vote)))


def _table(stratum: Stratum) -> tuple[float, ...]:
    """Sums of squares, their degrees of freedom and the coefficients of the components that they estimate."""
    cases = list(stratum.values())
    sizes = [sum(sample.votes for sample in case) for case in cases]
    samples, total = sum(map(len, cases)), sum(sizes)
    means = [
        fsum(sample.votes * sample.mean for sample in case) / size for case, size in zip(cases, sizes, strict=True)
    ]
    mean = fsum(size * value for size, value in zip(sizes, means, strict=True)) / total
    shares = fsum(
        sum(sample.votes**2 for sample in case) / size for case, size in zip(cases, sizes, strict=True)
    )  # of each sample in its case
    return (
        fsum(sample.squares for case in cases for sample in case),
        total - samples,
        fsum(
            sample.votes * (sample.mean - value) ** 2
            for case, value in zip(cases, means, strict=True)
            for sample in case
        ),
        samples - len(cases),
        total - shares,
        fsum(size * (value - mean) ** 2 for size, value in zip(sizes, means, strict=True)),
        len(cases) - 1,
        shares - sum(sample.votes**2 for case in cases for sample in case) / total,
        total - sum(size**2 for size in sizes) / total,
    )
