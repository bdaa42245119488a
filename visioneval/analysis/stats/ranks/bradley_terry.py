"""The Bradley-Terry model of paired comparisons: who can be ranked, and their strengths. Pure.

The chance that ``i`` wins against ``j`` is ``1 / (1 + exp(s_j - s_i))`` for the strengths ``s``, in log-odds. Points
are what ``i`` took from ``j``: 1 for a win, a half for a tie.

Source: R. A. Bradley and M. E. Terry, "Rank analysis of incomplete block designs: I. The method of paired
comparisons", Biometrika 39 (1952).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Members = list[int]
_MAX_STEPS = 200
_PRECISION = 1e-11


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
