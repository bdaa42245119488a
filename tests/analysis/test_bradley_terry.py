"""Bradley-Terry strengths and rank intervals, compared with statsmodels and with simulations."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from calibration.ranking import Design, coverage
from hypothesis import given, settings
from hypothesis import strategies as st

from visioneval.analysis.stats.basic import t_quantile
from visioneval.analysis.stats.ranks import Floats, Standings, groups, rank_group, strengths, tiers

pytestmark = pytest.mark.slow


def points_of(cases: int, n: int, seed: int, pairs: list[tuple[int, int]] | None = None, ties: float = 0.3) -> Floats:
    """Random points of shape ``(cases, n, n)``, with one answer per pair."""
    chance = np.random.default_rng(seed)
    points = np.zeros((cases, n, n))
    for i, j in pairs or combinations(range(n), 2):
        scores = np.where(chance.random(cases) < ties, 0.5, chance.random(cases) < 0.5 + 0.3 * (j - i) / n)
        points[:, i, j], points[:, j, i] = scores, 1 - scores
    return points


def by_statsmodels(points: Floats, **fit: object) -> tuple[Floats, Floats, Floats]:
    """Strengths with mean 0, and their covariance by a binomial model, as fitted and without robustness."""

    import statsmodels.api as sm

    cases, n, _ = points.shape
    rows = [(case, i, j) for case in range(cases) for i, j in combinations(range(n), 2)]
    rows = [(case, i, j) for case, i, j in rows if points[case, i, j] + points[case, j, i] > 0]
    games = np.array([points[case, i, j] + points[case, j, i] for case, i, j in rows])
    shares = np.array([points[case, i, j] for case, i, j in rows]) / games
    design = np.zeros((len(rows), n))
    for row, (_, i, j) in enumerate(rows):
        design[row, [i, j]] = 1, -1
    if fit:
        fit = {"cov_type": "cluster", "cov_kwds": {"groups": [row[0] for row in rows], "use_correction": False}}
    weights = None if fit else games
    model = sm.GLM(shares, design[:, 1:], family=sm.families.Binomial(), var_weights=weights)
    result = model.fit(tol=1e-14, maxiter=200, **fit)
    center = np.eye(n)[:, 1:] - 1 / n
    return (
        center @ result.params,
        center @ result.cov_params() @ center.T,
        center @ result.normalized_cov_params @ center.T,
    )


@pytest.mark.filterwarnings("ignore:Perfect separation", "ignore:invalid value encountered in scalar divide")
@given(st.integers(2, 6), st.integers(1, 25), st.integers(0, 10_000))
@settings(max_examples=25)
def test_strengths_match_a_binomial_model(n: int, cases: int, seed: int) -> None:
    points = points_of(cases, n, seed)
    total = points.sum(axis=0)
    if len(tiers(total)) > 1:
        with pytest.raises(ValueError, match="finite only within one tier"):
            strengths(total)
        return
    assert strengths(total) == pytest.approx(by_statsmodels(points)[0], abs=1e-6)


def test_lopsided_results_have_finite_strengths() -> None:
    total = np.array([[0, 99_999.5, 0], [0.5, 0, 1e6], [0, 1, 0]])
    assert -np.diff(strengths(total)) == pytest.approx([np.log(199_999), np.log(1e6)], abs=1e-6)


@pytest.mark.parametrize(
    ("wins", "expected_groups", "expected_tiers"),
    [
        ([(0, 1), (1, 0)], [[0, 1]], [[0, 1]]),
        ([(0, 1)], [[0, 1]], [[0], [1]]),
        ([(2, 1), (1, 0)], [[0, 1, 2]], [[2], [1], [0]]),
        ([(0, 1), (1, 2), (2, 0)], [[0, 1, 2]], [[0, 1, 2]]),
        ([(2, 0), (2, 1), (0, 1), (1, 0)], [[0, 1, 2]], [[2], [0, 1]]),
        ([(0, 1), (0, 2)], [[0, 1, 2]], [[0], [1], [2]]),
        ([(0, 2), (1, 3), (3, 1)], [[0, 2], [1, 3]], None),
    ],
)
def test_groups_and_tiers(
    wins: list[tuple[int, int]], expected_groups: list[list[int]], expected_tiers: list[list[int]] | None
) -> None:
    n = 1 + max(max(pair) for pair in wins)
    points = np.zeros((n, n))
    for winner, loser in wins:
        points[winner, loser] = 1
    assert groups(points) == expected_groups
    if expected_tiers is not None:
        assert tiers(points) == expected_tiers


@pytest.mark.parametrize("seed", range(2))
def test_errors_match_cluster_robust_ones(seed: int) -> None:
    """With equal designs of all cases, up to the weight of one more case with the model's variance."""
    cases, n = 40, 4
    points = points_of(cases, n, seed)
    standings = rank_group(points)
    _, robust, plain = by_statsmodels(points, cluster=True)
    covariance = (cases * robust * cases / (cases - 1) + plain) / (cases + 1)
    factor = t_quantile(0.975, cases - 1)
    assert standings.reach == pytest.approx(factor * np.sqrt(np.diag(covariance)), rel=1e-6)
    variance = covariance[0, 0] + covariance[2, 2] - 2 * covariance[0, 2]
    assert standings.difference_reach[0, 2] == pytest.approx(factor * np.sqrt(variance), rel=1e-6)
    assert standings.difference_reach[2, 0] == standings.difference_reach[0, 2]


def test_copies_of_a_pair_within_cases_change_nothing() -> None:
    points = points_of(30, 3, 5)
    once, thrice = rank_group(points), rank_group(3 * points)
    assert thrice.strength == pytest.approx(once.strength)
    assert thrice.reach == pytest.approx(once.reach)
    assert (thrice.low_rank == once.low_rank).all()


def test_a_difference_that_few_cases_decide_has_few_degrees_of_freedom() -> None:
    points = points_of(60, 3, 1)
    wide = rank_group(points).difference_reach
    points[3:, 2, :] = points[3:, :, 2] = 0
    points[:3, 2, 0], points[:3, 0, 2] = (0, 1, 0.5), (1, 0, 0.5)
    few = rank_group(points).difference_reach
    assert few[0, 1] < 1.3 * wide[0, 1]
    assert few[0, 2] > 3.5 * wide[0, 2]
    points[1:3, 2, :] = points[1:3, :, 2] = 0
    points[0, 0, 2] = points[0, 2, 0] = 0.5
    only = rank_group(points)
    assert np.isnan(only.difference_reach[0, 2])
    assert (only.low_rank[2], only.high_rank[2]) == (1, 3)


def ranks(standings: Standings) -> list[tuple[int, int, int]]:
    return list(zip(standings.rank.tolist(), standings.low_rank.tolist(), standings.high_rank.tolist(), strict=True))


def always(cases: int, *pairs: tuple[int, int], n: int = 3) -> Floats:
    """Cases in which the first of each pair wins."""
    points = np.zeros((cases, n, n))
    for winner, loser in pairs:
        points[:, winner, loser] = 1
    return points


def test_a_winner_of_everything_is_first_only_after_enough_cases() -> None:
    assert ranks(rank_group(always(6, (0, 1), n=2))) == [(1, 1, 1), (2, 2, 2)]
    few = rank_group(always(5, (0, 1), n=2))
    assert (few.low_rank, few.high_rank, few.rank.tolist()) == (None, None, [1, 2])
    assert np.isnan(rank_group(always(50, (0, 1), n=2)).strength).all()
    assert ranks(rank_group(always(6, (0, 1), (0, 2), (1, 2)))) == [(1, 1, 3), (2, 1, 3), (3, 1, 3)]
    assert ranks(rank_group(always(7, (0, 1), (0, 2), (1, 2)))) == [(1, 1, 1), (2, 2, 2), (3, 3, 3)]


def test_members_that_nothing_orders_share_a_rank() -> None:
    standings = rank_group(always(20, (0, 1), (0, 2)))
    assert ranks(standings) == [(1, 1, 1), (2, 2, 3), (2, 2, 3)]
    assert not standings.is_ordered[1, 2]
    assert standings.is_ordered[0].all()


def test_tiers_keep_their_own_strengths() -> None:
    points = always(30, (0, 1), (0, 2))
    points[:, 1:, 1:] = points_of(30, 2, 3)
    standings = rank_group(points)
    inner = rank_group(points[:, 1:, 1:])
    assert standings.tier.tolist() == [0, 1, 1]
    assert np.isnan(standings.strength[0])
    assert standings.strength[1:] == pytest.approx(inner.strength)
    assert ranks(standings)[0] == (1, 1, 1)
    assert all(low >= 2 for _, low, _ in ranks(standings)[1:])


@pytest.mark.parametrize("cycle", [(), ((0, 1), (1, 2), (2, 0))])
def test_equal_cases_have_intervals_that_narrow_with_their_number(cycle: tuple[tuple[int, int], ...]) -> None:
    """All ties, or the same cycle in every case, show no spread between cases."""

    def of(cases: int) -> Standings:
        ties = np.full((cases, 3, 3), 0.5) * (1 - np.eye(3))
        return rank_group(always(cases, *cycle) if cycle else ties)

    for standings in (of(6), of(100)):
        assert standings.strength == pytest.approx([0, 0, 0], abs=1e-9)
        assert ranks(standings) == [(1, 1, 3)] * 3
    assert 0.1 < of(6).reach[0] < 1
    assert 0 < of(100).reach[0] < of(6).reach[0] / 10


def test_cases_without_points_do_not_count() -> None:
    points = points_of(5, 3, 0)
    assert rank_group(np.concatenate([points, np.zeros((5, 3, 3))])).low_rank is None


@pytest.mark.parametrize("design", [Design("all", 20), Design("chain", 50), Design("few", 50)], ids=str)
def test_intervals_cover_the_truth(design: Design) -> None:
    """Bounds leave three standard errors of 120 repetitions; the seed is fixed."""
    result = coverage(design, 60)
    assert np.nanmean(result.differences) >= 0.925
    assert np.nanmean(result.strengths) >= 0.925
    assert result.ranks.mean(axis=0).min() >= 0.89
