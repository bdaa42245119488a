"""Wilson's interval, Holm's adjustment and the AUROC, with sources, without NumPy. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval in the unit of its statistic. ``level`` is in 0..1."""

    low: float
    high: float
    level: float = 0.95


def wilson_interval(successes: float, n: float, confidence: float = 0.95) -> tuple[float, float]:
    """The Wilson score interval of a rate as ``(low, high)`` in 0..1. A tie is half a success.

    ``n`` may be an effective number of observations. Raises ``ValueError`` for ``n <= 0``, or if ``successes`` is not
    in 0..``n``.

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", Journal of the
    American Statistical Association 22 (1927). No continuity correction.
    """
    if n <= 0 or not 0 <= successes <= n:
        raise ValueError(f"not a rate: {successes} of {n}")
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    rate = successes / n
    middle = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    low = 0.0 if successes == 0 else max(0.0, middle - half)
    high = 1.0 if successes == n else min(1.0, middle + half)
    return low, high


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusts p-values for multiple comparisons, controlling the family-wise error rate. Keeps their order.

    Source: S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6
    (1979).
    """
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def auroc(above: Sequence[float], below: Sequence[float]) -> float:
    """The share of pairs in which a value of ``above`` exceeds one of ``below``, ties counting half. 0.5 is chance.

    Equals the area under the ROC curve, and the Mann-Whitney U divided by the number of pairs. Raises ``ValueError``
    if either is empty.

    Source: H. B. Mann and D. R. Whitney, "On a test of whether one of two random variables is stochastically larger
    than the other", Annals of Mathematical Statistics 18 (1947), with mid-ranks for ties; J. A. Hanley and
    B. J. McNeil, "The meaning and use of the area under a receiver operating characteristic (ROC) curve", Radiology
    143 (1982).
    """
    if not above or not below:
        raise ValueError("AUROC needs values on both sides")
    above_counts, below_counts = Counter(above), Counter(below)
    smaller = 0
    wins = 0.0
    for value in sorted({*above_counts, *below_counts}):
        wins += above_counts[value] * (smaller + below_counts[value] / 2)
        smaller += below_counts[value]
    return wins / (len(above) * len(below))
