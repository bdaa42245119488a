"""The interval of a chance-corrected agreement on categories: kappa, Fleiss' kappa, nominal alpha. Pure."""

from __future__ import annotations

from math import exp, fsum, log, sqrt

import numpy as np
from numpy.typing import NDArray

from visioneval.analysis.stats.basic import Interval
from visioneval.analysis.stats.clusters import CaseSums
from visioneval.analysis.stats.rare_events import rare_event_interval
from visioneval.analysis.stats.student import t_quantile

Floats = NDArray[np.float64]


def chance_corrected_interval(
    disagreement: CaseSums, first: Floats, second: Floats, correction: float = 1.0
) -> Interval | None:
    """The 95 % interval of ``1 - D / E``, the observed disagreement over that expected by chance, within -1..1.

    ``disagreement`` are the sums and numbers of the disagreements (0..1) of each case, ``first`` and ``second`` the
    counts of the categories on each side, shape ``(cases, categories)``; the same twice for interchangeable raters.
    ``correction`` multiplies E. Combines the interval of D, a rate, with that of E, a jackknife over cases on the logit
    scale, as if both were independent; as D raises E, that is on the safe side. Complete agreement has an interval too.
    ``None`` if E is 0 or 1 without one of the cases.

    Source: A. Donner and G. Y. Zou, "Closed-form confidence intervals for functions of the normal mean and standard
    deviation", Statistical Methods in Medical Research 21 (2012), for a ratio. Coverage:
    ``tests/calibration/agreement.py``.
    """
    observed = rare_event_interval(disagreement)
    chance = _chance_interval(first, second)
    if observed is None or chance is None:
        return None
    rate = fsum(total for total, _ in disagreement) / sum(count for _, count in disagreement)
    expected = float(_by_chance(first.sum(axis=0), second.sum(axis=0))) * correction
    low, high = _ratio_interval(rate, expected, observed, (chance.low * correction, chance.high * correction))
    return Interval(max(-1.0, 1 - high), 1 - low)


def _by_chance(first: Floats, second: Floats) -> Floats:
    """The share of different categories if both sides choose independently, along the last axis."""
    shares = [side / side.sum(axis=-1, keepdims=True) for side in (first, second)]
    return np.asarray(1 - (shares[0] * shares[1]).sum(axis=-1), dtype=float)


def _chance_interval(first: Floats, second: Floats) -> Interval | None:
    number = len(first)
    totals = first.sum(axis=0), second.sum(axis=0)
    rest = totals[0] - first, totals[1] - second
    if number < 2 or min(side.sum(axis=1).min() for side in rest) <= 0:
        return None
    value, values = float(_by_chance(*totals)), _by_chance(*rest)
    if not 0 < value < 1 or not bool(((values > 1e-12) & (values < 1 - 1e-12)).all()):
        return None
    logits = np.log(values / (1 - values))
    half = t_quantile(0.975, number - 1) * sqrt((number - 1) * float(np.var(logits)))
    middle = log(value / (1 - value))
    return Interval(1 / (1 + exp(half - middle)), 1 / (1 + exp(-half - middle)))


def _ratio_interval(d: float, e: float, observed: Interval, chance: tuple[float, float]) -> tuple[float, float]:
    """The interval of ``d / e`` from those of both. The lower bound is written without a difference of roots."""
    low, high = chance
    square = (d * e) ** 2
    upper_root = sqrt(max(0.0, square - observed.high * low * (2 * d - observed.high) * (2 * e - low)))
    upper = (d * e + upper_root) / (low * (2 * e - low))
    if d == 0:
        return 0.0, upper
    least = observed.low * (2 * d - observed.low)
    return max(0.0, least / (d * e + sqrt(max(0.0, square - least * high * (2 * e - high))))), upper
