"""The Bradley-Terry model of paired comparisons: who can be ranked, and their strengths. Pure.

- strengths and ranks (``rank``): Bradley-Terry, variance between cases, all differences tested together

The chance that ``i`` wins against ``j`` is ``1 / (1 + exp(s_j - s_i))`` for the strengths ``s``, in log-odds. Points
are what ``i`` took from ``j``: 1 for a win, a half for a tie.

Source: R. A. Bradley and M. E. Terry, "Rank analysis of incomplete block designs: I. The method of paired
comparisons", Biometrika 39 (1952).

Intervals of Bradley-Terry strengths and of ranks. Whole cases are the independent units. Pure, seeded.

A case contributes its score times the inverse information to the strengths. The spread of the contributions is the
variance of the strengths, whatever depends on what within a case. Two corrections keep it right with few cases:

- Student's t with the effective number of cases behind a difference. It is small where few cases decide a difference.
- One more case, with the variance that the model expects. Equal cases, such as ties only, have no spread of their own.

Rank intervals need the joint distribution of all differences: that of the contributions with random normal weights. A
bootstrap that fits each resample again is no alternative: its percentiles are too narrow, and where few comparisons
connect two model runs, many resamples have no finite strengths. ``tests/calibration/ranking.py`` measures the coverage.

Sources: K.-Y. Liang and S. L. Zeger, "Longitudinal data analysis using generalized linear models", Biometrika 73
(1986), for the variance between cases; A. V. Carter, K. T. Schnepel and D. G. Steigerwald, "Asymptotic behavior of a
t-test robust to cluster heterogeneity", Review of Economics and Statistics 99 (2017), for the effective number;
P. Kline and A. Santos, "A score based approach to wild bootstrap inference", Journal of Econometric Methods 1 (2012),
for random weights; M. Mogstad, J. P. Romano, A. M. Shaikh and D. Wilhelm, "Inference for ranks with applications to
mobility across neighbourhoods and academic achievement across countries", Review of Economic Studies 91 (2024).
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visioneval.analysis.stats.basic import t_quantile, t_two_sided_p

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Members = list[int]
_MAX_STEPS = 200
_PRECISION = 1e-11
MIN_CASES = 6
"""The fewest cases for an interval of a strength or a rank."""
RESAMPLES = 4000
ALPHA = 0.05
_EQUAL = 1e-9
"""Strengths within this distance are equal."""
Ints = NDArray[np.int_]


def groups(points: Floats) -> list[Members]:
    """The groups whose members met, directly or through others. ``points`` has shape ``(n, n)``."""
    return _classes(reachable((points + points.T) > 0))


def tiers(points: Floats) -> list[Members]:
    """Splits a group into tiers, best first. Only within a tier are strengths finite, relative to each other.

    Between two tiers, the higher one took every point. Tiers that no comparison orders follow each other.

    Source: L. R. Ford, "Solution of a ranking problem from binary comparisons", American Mathematical Monthly 64
    (1957): the likelihood has a finite maximum if and only if there is one tier.
    """
    beats = reachable(points > 0)
    return sorted(_classes(beats & beats.T), key=lambda members: -int(beats[members[0]].sum()))


def reachable(edges: Bools) -> Bools:
    """The nodes that a path leads to, for every node of a graph of shape ``(n, n)``. Every node reaches itself."""
    reach = np.asarray(edges | np.eye(len(edges), dtype=bool))
    while True:
        further = (reach.astype(float) @ reach.astype(float)) > 0
        if (further == reach).all():
            return reach
        reach = further


def _classes(same: Bools) -> list[Members]:
    """The classes of an equivalence relation, in order of their first members."""
    firsts = dict.fromkeys(int(row.argmax()) for row in same)
    return [[int(member) for member in np.flatnonzero(same[first])] for first in firsts]


def strengths(points: Floats) -> Floats:
    """The maximum likelihood strengths of one tier, with mean 0. ``points`` has shape ``(n, n)``.

    Raises ``ValueError`` if there is more than one tier, as a strength is then not finite.

    Source: D. R. Hunter, "MM algorithms for generalized Bradley-Terry models", Annals of Statistics 32 (2004): the
    likelihood is concave in the strengths. Maximized by Newton's method with halved steps, which needs few steps where
    few comparisons connect the members.
    """
    if len(tiers(points)) != 1:
        raise ValueError("strengths are finite only within one tier")
    games, current = points + points.T, np.zeros(len(points))
    for _ in range(_MAX_STEPS):
        chances = chances_of(current)
        step = inverse_information(games, chances) @ (points - games * chances).sum(axis=1)
        size, before = 1.0, _log_likelihood(points, current)
        while size > _PRECISION and _log_likelihood(points, current + size * step) < before - _PRECISION * abs(before):
            size /= 2
        current = current + size * step
        if np.abs(step).max() < _PRECISION:
            break
    return np.asarray(current - current.mean())


def chances_of(values: Floats) -> Floats:
    """The chance that each row wins against each column, shape ``(n, n)``, from strengths of shape ``(n,)``."""
    return np.asarray(0.5 + 0.5 * np.tanh((values[:, None] - values[None, :]) / 2))


def inverse_information(games: Floats, chances: Floats) -> Floats:
    """The pseudoinverse of the information about the strengths, as equal shifts of all strengths change nothing.

    ``games`` and ``chances`` have shape ``(n, n)``.
    """
    n = len(games)
    return np.asarray(np.linalg.inv(laplacian(games * chances * chances.T) + 1 / n) - 1 / n)


def laplacian(weights: Floats) -> Floats:
    """The information matrix of comparisons with these weights, shape ``(n, n)``."""
    return np.asarray(np.diag(weights.sum(axis=1)) - weights)


def _log_likelihood(points: Floats, values: Floats) -> float:
    return -float((points * np.logaddexp(0, values[None, :] - values[:, None])).sum())


@dataclass(frozen=True, slots=True)
class Standings:
    """The ranks and strengths of the ``n`` members of a group.

    ``tier`` counts from 0, best first. ``rank`` counts from 1; equal strengths share the best one. ``low_rank`` and
    ``high_rank`` are its interval, ``None`` with fewer than ``MIN_CASES`` cases. ``strength`` is in log-odds from
    the mean of the tier, and NaN for a member that is alone in its tier. ``reach`` is half the width of its interval.

    ``difference`` and ``difference_reach``, shape ``(n, n)``, are those of the strength of the row minus that of the
    column. A reach is NaN if too few cases are behind it. ``is_ordered``, shape ``(n, n)``, is true where points lead
    from the row to the column or back, at least in steps: only then can their order be estimated.
    """

    tier: Ints
    rank: Ints
    low_rank: Ints | None
    high_rank: Ints | None
    strength: Floats
    reach: Floats
    difference: Floats
    difference_reach: Floats
    is_ordered: Bools


def rank_group(points: Floats) -> Standings:
    """Ranks the members of one group (``groups``) by their points in each case, shape ``(cases, n, n)``.

    Each interval holds at 95 %. That of a rank contains every rank that the differences from all
    other members allow, tested together. Cases without points do not count.
    """
    points = points[points.any(axis=(1, 2))]
    total = points.sum(axis=0)
    n, beats = len(total), reachable(total > 0)
    is_above = beats & ~beats.T
    met = ((points + points.transpose(0, 2, 1)) > 0).sum(axis=0)
    # between two tiers: whether they met in enough cases for an exact sign test
    is_distinct = np.asarray((is_above | is_above.T) & (2.0 * 0.5**met <= ALPHA / (n - 1)))
    tier, strength, reach = np.zeros(n, dtype=int), np.full(n, np.nan), np.full(n, np.nan)
    difference, difference_reach = np.full((n, n), np.nan), np.full((n, n), np.nan)
    has_intervals = len(points) >= MIN_CASES
    for number, members in enumerate(tiers(total)):
        tier[members] = number
        if len(members) == 1:
            continue
        square = np.ix_(members, members)
        fit = _fit(points[:, square[0], square[1]])
        strength[members] = fit.strengths
        difference[square] = np.subtract.outer(fit.strengths, fit.strengths)
        is_above[square] = difference[square] > _EQUAL
        if has_intervals:
            reach[members], difference_reach[square] = fit.reaches()
            is_distinct[square] = fit.is_distinct(ALPHA * (len(members) - 1) / (n - 1))
    return Standings(
        tier=tier,
        rank=1 + is_above.sum(axis=0),
        low_rank=1 + (is_distinct & is_above.T).sum(axis=1) if has_intervals else None,
        high_rank=n - (is_distinct & is_above).sum(axis=1) if has_intervals else None,
        strength=strength,
        reach=reach,
        difference=difference,
        difference_reach=difference_reach,
        is_ordered=np.asarray(beats | beats.T),
    )


@dataclass(frozen=True, slots=True)
class _Fit:
    """The strengths of the ``m`` members of one tier, with standard errors and degrees of freedom, 0 without an error.

    ``error`` and ``freedom`` have shape ``(m,)``; those of differences and the ``covariance`` have shape ``(m, m)``.
    """

    strengths: Floats
    covariance: Floats
    error: Floats
    freedom: Ints
    difference_error: Floats
    difference_freedom: Ints

    def reaches(self) -> tuple[Floats, Floats]:
        """Half the widths of the intervals of the strengths and of the differences."""
        return self.error * _factors(self.freedom), self.difference_error * _factors(self.difference_freedom)

    def is_distinct(self, level: float) -> Bools:
        """Whether each row differs from each column, with the error rate ``level`` for all columns of a row together.

        Shape ``(m, m)``.
        """
        values = np.abs(np.subtract.outer(self.strengths, self.strengths))
        with np.errstate(divide="ignore", invalid="ignore"):
            tests = zip((values / self.difference_error).flat, self.difference_freedom.flat, strict=True)
        p_values = [t_two_sided_p(float(t), int(df)) if df > 0 else 1.0 for t, df in tests]
        return np.asarray(np.reshape(p_values, values.shape) <= self._joint_levels(level)[:, None])

    def _joint_levels(self, level: float) -> Floats:
        """The level for each difference of a member that gives ``level`` for all of its differences, shape ``(m,)``.

        It lies between ``level / (m - 1)``, as for unrelated differences, and ``level``.
        """
        m = len(self.strengths)
        values, vectors = np.linalg.eigh(self.covariance)
        normal = np.random.default_rng(0).standard_normal((RESAMPLES, m))
        resampled = normal @ (vectors * np.sqrt(np.maximum(values, 0))).T
        variances = np.diag(self.covariance)
        spread = np.sqrt(np.maximum(variances[:, None] + variances[None, :] - 2 * self.covariance, 0)) + np.eye(m)
        largest = [
            np.quantile(np.abs((resampled - resampled[:, [row]]) / spread[row]).max(axis=1), 1 - level)
            for row in range(m)
        ]
        joint = [2 * (1 - NormalDist().cdf(float(quantile))) for quantile in largest]
        return np.clip(joint, level / (m - 1), level)


def _factors(freedom: Ints) -> Floats:
    """The factor of a standard error in a 95 % interval."""
    factors = [t_quantile(1 - ALPHA / 2, max(1, int(df))) for df in freedom.flat]
    return np.reshape(factors, freedom.shape)


def _fit(points: Floats) -> _Fit:
    """Fits one tier to the points of its members, shape ``(cases, m, m)``.

    The sum of squares of the contributions of the cases is the variance ``between`` them. ``one_case`` is what the
    model expects of it if all answers about a pair within a case are alike.
    """
    points = points[points.any(axis=(1, 2))]
    values = strengths(points.sum(axis=0))
    chances, games = chances_of(values), points + points.transpose(0, 2, 1)
    inverse = inverse_information(games.sum(axis=0), chances)
    contributions = (points - games * chances).sum(axis=2) @ inverse
    variances = chances * chances.T
    between = contributions.T @ contributions
    one_case = inverse @ laplacian(np.square(games).sum(axis=0) * variances) @ inverse

    m = len(values)
    first, second = np.triu_indices(m, 1)
    contrasts = np.concatenate([np.eye(m) - 1 / m, np.eye(m)[first] - np.eye(m)[second]])
    information = games[:, first, second] * variances[first, second]
    effects = contrasts @ inverse  # what a point of each member changes
    shares = np.square(effects[:, first] - effects[:, second]) @ information.T
    cases = np.square(shares.sum(axis=1)) / np.square(shares).sum(axis=1)  # fewer if a few cases contribute most
    freedom = np.asarray(np.floor(cases + _EQUAL), dtype=int) - 1
    spread = _quadratic(contrasts, between) * cases / np.maximum(cases - 1, _EQUAL)
    variance = (cases * spread + _quadratic(contrasts, one_case)) / (cases + 1)
    error = np.where(freedom > 0, np.sqrt(variance), np.nan)
    return _Fit(
        strengths=values,
        covariance=(len(points) * between + one_case) / (len(points) + 1),
        error=error[:m],
        freedom=freedom[:m],
        difference_error=_square(error[m:], m),
        difference_freedom=_square(freedom[m:], m).astype(int),
    )


def _quadratic(rows: Floats, matrix: Floats) -> Floats:
    """``row @ matrix @ row`` for each row."""
    return np.asarray(((rows @ matrix) * rows).sum(axis=1))


def _square(by_pair: NDArray[Any], m: int) -> Floats:
    """Values of all pairs as a symmetric table with zeros on the diagonal."""
    square = np.zeros((m, m))
    square[np.triu_indices(m, 1)] = by_pair
    return np.asarray(square + square.T)
