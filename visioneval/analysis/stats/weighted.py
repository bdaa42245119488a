"""The interval of a weighted mean of independent numbers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, sqrt

from visioneval.analysis.stats.basic import Interval


def weighted_interval(parts: Sequence[tuple[float, float, Interval | None]]) -> Interval | None:
    """The interval of the sum of ``share * value`` over independent parts, each with the interval of its value.

    The shares are positive. Keeps the asymmetry of the parts' intervals, such as those of rates close to 1. ``None``
    if a part has no interval.

    Source: G. Y. Zou and A. Donner, "Construction of confidence limits about effect measures: a general approach",
    Statistics in Medicine 27 (2008), for sums; for two rates, it is Newcombe's interval.
    """
    value = fsum(share * part for share, part, _ in parts)
    down: list[float] = []
    up: list[float] = []
    for share, part, interval in parts:
        if interval is None:
            return None
        down.append((share * (part - interval.low)) ** 2)
        up.append((share * (interval.high - part)) ** 2)
    level = min(interval.level for _, _, interval in parts if interval)
    return Interval(value - sqrt(fsum(down)), value + sqrt(fsum(up)), level)
