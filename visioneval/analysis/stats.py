"""Statistics, pure, each with its source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist


def wilson_interval(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """The Wilson score interval of a rate, as ``(low, high)`` in 0..1. Raises ``ValueError`` for ``n < 1``.

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", Journal of the
    American Statistical Association 22 (1927). No continuity correction.
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"no rate: {successes} of {n}")
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    rate = successes / n
    middle = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    low = 0.0 if successes == 0 else max(0.0, middle - half)
    high = 1.0 if successes == n else min(1.0, middle + half)
    return low, high


def auroc(above: Sequence[float], below: Sequence[float]) -> float:
    """How often a value of ``above`` is larger than one of ``below``, ties counting half: 0 to 1, 0.5 by chance.

    That is the area under the ROC curve, and the Mann-Whitney U over the number of pairs. Raises ``ValueError``
    where either is empty.

    Source: H. B. Mann and D. R. Whitney, "On a test of whether one of two random variables is stochastically larger
    than the other", Annals of Mathematical Statistics 18 (1947), with mid-ranks for ties; J. A. Hanley and
    B. J. McNeil, "The meaning and use of the area under a receiver operating characteristic (ROC) curve", Radiology
    143 (1982).
    """
    if not above or not below:
        raise ValueError("no AUROC without values on both sides")
    ups, downs = Counter(above), Counter(below)
    beaten = 0
    wins = 0.0
    for value in sorted({*ups, *downs}):
        wins += ups[value] * (beaten + downs[value] / 2)
        beaten += downs[value]
    return wins / (len(above) * len(below))
