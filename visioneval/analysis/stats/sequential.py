"""Tests of a bounded mean that may be looked at after every sample: e-values, which hold their level at all looks
together, and the chance that further samples change an outcome; with sources. Pure.

What decides:

- a gate with ``--until-decided``: e-values of a bounded mean over all looks (Ville; Waudby-Smith and Ramdas), and the
  chance that further samples change the outcome (Lan, Simon and Halperin)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from math import exp, fsum, inf, log, log1p

from visioneval.analysis.stats.variance import counts_at_rate, failing_share

E_ALPHA = 0.015
"""The error rate of an e-value on one side, over all looks."""
MAX_CHANGE = 0.01
"""The chance of another outcome with all samples at which the others are not needed."""
_BETS = (0.03, 0.06, 0.12, 0.25, 0.5, 0.75, 0.95)
"""Shares of what can be bet. Small ones find a mean close to the limit, large ones a mean far from it."""


def is_above(values: Iterable[float], limit: float) -> bool:
    """Whether values show that their mean exceeds ``limit``, at ``E_ALPHA`` over all looks."""
    return log_evidence_above(values, limit) >= -log(E_ALPHA)


def log_evidence_above(values: Iterable[float], limit: float) -> float:
    """The logarithm of the e-value against "the mean is at most ``limit``", of independent values of at least 0.

    The values may have different distributions, such as the samples of several cases: only the mean of their means is
    tested. ``e`` is the mean over some fixed bets ``b`` of the products of ``1 + b * (value / limit - 1)``. The
    expectation of such a product is a product of ``1 + b * (mean / limit - 1)``, which by the inequality of arithmetic
    and geometric means is at most 1 if the means are at most ``limit`` on average. So if each look adds values whose
    means have that average, such as one sample of each case, the products are supermartingales: the probability that
    any look shows ``e >= 1 / alpha`` is at most ``alpha``. A limit of 0 is exceeded by any value above 0.

    Source: J. Ville, "Étude critique de la notion de collectif" (1939); I. Waudby-Smith and A. Ramdas, "Estimating
    means of bounded random variables by betting", Journal of the Royal Statistical Society B 86 (2024).
    """
    counted = Counter(values)
    if limit <= 0:
        return inf if any(value > 0 for value in counted) else 0.0
    logs = [fsum(count * log1p(bet * (value / limit - 1)) for value, count in counted.items()) for bet in _BETS]
    highest = max(logs)
    return highest + log(fsum(exp(value - highest) for value in logs) / len(logs))


def chance_of_change(
    total: float, seen: int, left: int, limit: float, within: float, outcome: Callable[[float], bool]
) -> float:
    """The probability that ``left`` more values change the ``outcome`` of the mean of ``seen`` values with this total.

    The mean of their means is at the ``limit``, where it is largest; ``within`` is the variance of a value around the
    mean of its case. Stopping where it is at most ``MAX_CHANGE`` gives another outcome than all values in at most this
    share of all such runs, however many looks there are: each stopped run has at most this chance. A score varies less
    than yes-or-no values of the same mean, and these less than independent ones of one rate.

    Source: K. K. G. Lan, R. Simon and M. Halperin, "Stochastically curtailed tests in long-term clinical trials",
    Sequential Analysis 1 (1982); W. Hoeffding, "On the distribution of the number of successes in independent trials",
    Annals of Mathematical Statistics 27 (1956). Checked by ``make calibration``.
    """
    now = outcome(total / seen)
    law = counts_at_rate(left, limit, within)
    return failing_share(law, lambda count: outcome((total + count) / (seen + left)) == now)
