"""Variance components, compared with a balanced analysis of variance, with statsmodels and with simulation."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from visioneval.analysis.stats.variance import CaseTable, case_of_values, case_of_votes, components


def stratum(table: NDArray[np.float64]) -> list[CaseTable]:
    """A table of shape ``(cases, samples, votes)``; NaN is a missing vote."""
    cases = []
    for samples in table:
        given = [votes[~np.isnan(votes)] for votes in samples]
        rows = [(len(votes), float(votes.mean()), float(np.square(votes - votes.mean()).sum()))
                for votes in given if len(votes)]  # fmt: skip
        if rows:
            cases.append(case_of_votes(rows))
    return cases


def test_one_vote_per_sample_is_one_value_per_sample() -> None:
    assert case_of_values([1.0, 2.0, 6.0]) == case_of_votes([(1, 1.0, 0.0), (1, 2.0, 0.0), (1, 6.0, 0.0)])


def nested(shape: tuple[int, int, int], deviations: tuple[float, float, float], seed: int = 0) -> NDArray[np.float64]:
    random, (cases, samples, votes) = np.random.default_rng(seed), shape
    case, sample, vote = deviations
    table: NDArray[np.float64] = (
        random.normal(0, case, (cases, 1, 1))
        + random.normal(0, sample, (cases, samples, 1))
        + random.normal(0, vote, (cases, samples, votes))
    )
    return table


def test_balanced_data_give_the_mean_squares_of_the_textbook_table() -> None:
    cases, samples, votes = 6, 4, 3
    table = nested((cases, samples, votes), (2, 1, 0.5))
    by_sample, by_case = table.mean(axis=2), table.mean(axis=(1, 2))
    votes_ms = np.square(table - by_sample[..., None]).sum() / (cases * samples * (votes - 1))
    samples_ms = votes * np.square(by_sample - by_case[:, None]).sum() / (cases * (samples - 1))
    cases_ms = votes * samples * np.square(by_case - table.mean()).sum() / (cases - 1)
    result = components([stratum(table)])
    assert result.vote == pytest.approx(votes_ms)
    assert result.sample == pytest.approx((samples_ms - votes_ms) / votes)
    assert result.case == pytest.approx((cases_ms - samples_ms) / (votes * samples))


def test_balanced_data_agree_with_restricted_maximum_likelihood() -> None:
    import statsmodels.api as sm

    table = nested((30, 4, 1), (2, 1, 0))[..., 0]
    fitted = sm.MixedLM(table.ravel(), np.ones(table.size), groups=np.repeat(np.arange(30), 4)).fit(reml=True)
    result = components([stratum(table[..., None])])
    assert result.case == pytest.approx(float(fitted.cov_re[0, 0]), rel=1e-3)
    assert result.sample == pytest.approx(float(fitted.scale), rel=1e-3)


@pytest.mark.slow
def test_estimates_from_unbalanced_data_are_unbiased() -> None:
    estimates = []
    for seed in range(300):
        table = nested((12, 5, 4), (1.5, 1, 2), seed)
        random = np.random.default_rng([seed, 1])
        table[random.random(table.shape) < 0.4] = np.nan
        result = components([stratum(table), stratum(nested((4, 2, 1), (1.5, 1, 2), seed + 1000) + 40)])
        estimates.append([result.case or 0.0, result.sample or 0.0, result.vote or 0.0])
    assert np.mean(estimates, axis=0) == pytest.approx([2.25, 1, 4], rel=0.1)


def test_strata_pool_their_cases_but_not_their_means() -> None:
    table = nested((10, 3, 2), (1, 1, 1))
    apart = components([stratum(table), stratum(table + 1000)])
    together = components([stratum(table), stratum(table)])
    assert [apart.case, apart.sample, apart.vote] == pytest.approx([together.case, together.sample, together.vote])


def test_what_cannot_be_separated_is_part_of_the_level_above() -> None:
    table = nested((10, 1, 1), (1, 1, 1))
    single = components([stratum(table)])
    assert (single.sample, single.vote) == (None, None)
    assert single.case == pytest.approx(float(table.var(ddof=1)))
    several_votes = nested((10, 1, 5), (1, 1, 1))
    result = components([stratum(several_votes)])
    assert result.sample is None
    assert result.vote == pytest.approx(float(several_votes.var(axis=2, ddof=1).mean()))
    assert result.case == pytest.approx(float(several_votes.mean(axis=2).var(ddof=1)) - (result.vote or 0) / 5)
    several_samples = nested((1, 6, 1), (1, 1, 1))
    result = components([stratum(several_samples)])
    assert (result.case, result.vote) == (None, None)
    assert result.sample == pytest.approx(float(several_samples.var(ddof=1)))
    nothing = components([])
    assert (nothing.case, nothing.sample, nothing.vote) == (None, None, None)


def test_negative_components_are_0() -> None:
    table = np.array([[[0.0], [4.0]], [[4.0], [0.0]], [[0.1], [3.9]]])
    assert components([stratum(table)]).case == 0
