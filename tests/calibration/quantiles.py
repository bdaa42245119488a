"""Coverage of the 95 % intervals of quantiles, and of means and rates that are weighted by tag.

python -m tests.calibration.quantiles [REPETITIONS]
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import NormalDist
from typing import Any

import numpy as np

from tests.calibration.designs import Row, odds, repetitions, show
from visioneval.analysis.stats.intervals import (
    Limits,
    mean_interval,
    quantile_interval,
    rate_interval,
    weighted_interval,
)

QUANTILES, CASES, SAMPLES = (0.5, 0.9, 0.95), (20, 50, 100, 200), ((1, 0.0), (3, 0.3), (8, 0.3), (8, 0.8))
SHARES = (2 / 3, 1 / 3)


def quantiles(times: int) -> Iterator[Row]:
    """Log-normal values, such as seconds, with this correlation of their logarithms within cases."""
    for p in QUANTILES:
        expected = float(np.exp(NormalDist().inv_cdf(p)))
        for cases in CASES:
            for samples, correlation in SAMPLES:
                random = np.random.default_rng([cases, samples, int(10 * correlation), int(100 * p)])
                found = [quantile_interval(_values(cases, samples, correlation, random), p) for _ in range(times)]
                design = f"quantile {p}, {cases} cases x {samples}, correlation {correlation}"
                yield Row(design, "coverage", float(np.mean([_contains(limits, expected) for limits in found])), times)
                yield Row(design, "no limit", float(np.mean([high is None for _, high in found])), times)


def _values(cases: int, samples: int, correlation: float, random: np.random.Generator) -> Any:
    between = random.normal(0, np.sqrt(correlation), (cases, 1))
    return np.exp(between + random.normal(0, np.sqrt(1 - correlation), (cases, samples))).tolist()


def _contains(limits: Limits, value: float) -> bool:
    low, high = limits
    return (low is None or low <= value) and (high is None or value <= high)


def weighted(times: int) -> Iterator[Row]:
    """Two tags with 2 : 1 as weights, one with a quarter of the cases of the other."""
    for cases in (20, 50, 200):
        for samples, correlation in SAMPLES:
            for rate in (0.5, 0.8, 0.95):
                random = np.random.default_rng([cases, samples, int(10 * correlation), int(100 * rate)])
                rates = _rate_runs(cases, samples, correlation, rate, times, random)
                design = f"{cases} + {cases // 4} cases x {samples}, correlation {correlation}"
                yield Row(design, f"rate {rate}", float(np.mean(list(rates))), times)
            random = np.random.default_rng([cases, samples, int(10 * correlation)])
            means = (_mean_run(cases, samples, correlation, random) for _ in range(times))
            yield Row(f"{cases} + {cases // 4} cases x {samples}", "mean", float(np.mean(list(means))), times)


def _rate_runs(
    cases: int, samples: int, correlation: float, rate: float, times: int, random: np.random.Generator
) -> Iterator[bool]:
    for _ in range(times):
        parts = []
        for share, count in zip(SHARES, (cases, cases // 4), strict=True):
            passed = random.binomial(samples, odds(rate, correlation, (count,), random)).tolist()
            sums = [(float(number), samples) for number in passed]
            parts.append((share, sum(passed) / (count * samples), rate_interval(sums)))
        interval = weighted_interval(parts)
        yield interval is not None and interval.low <= rate <= interval.high


def _mean_run(cases: int, samples: int, correlation: float, random: np.random.Generator) -> bool:
    parts = []
    for share, count in zip(SHARES, (cases, cases // 4), strict=True):
        between = random.normal(0, np.sqrt(correlation), (count, 1))
        values = between + random.normal(0, np.sqrt(1 - correlation), (count, samples))
        sums = [(float(row.sum()), samples) for row in values]
        parts.append((share, float(values.mean()), mean_interval(sums)))
    interval = weighted_interval(parts)
    return interval is not None and interval.low <= 0 <= interval.high


if __name__ == "__main__":
    show("Quantiles", quantiles(repetitions(1000)))
    show("Weighted by tag", weighted(repetitions(1000)))
