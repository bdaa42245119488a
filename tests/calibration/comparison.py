"""Size, coverage and detectable differences of ``compare``, and the power of its two families.

python -m tests.calibration.comparison [REPETITIONS]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median

import numpy as np

from tests.calibration.designs import Floats, Row, odds, repetitions, show
from tests.calibration.intervals import CASES, CORRELATIONS, RATES, SAMPLES
from visioneval.analysis.stats.basic import holm
from visioneval.analysis.stats.clusters import paired_test
from visioneval.analysis.stats.power import detectable_rate
from visioneval.analysis.stats.student import t_quantile

DROP = 0.1
ESTIMATES = 100
"""Comparisons from which a detectable difference is estimated."""


def differences(times: int) -> Iterator[Row]:
    """How often equal runs differ significantly, and how often the interval covers a drop of ten points."""
    for cases in CASES:
        for samples in SAMPLES:
            for correlation in CORRELATIONS:
                for rate in RATES:
                    random = np.random.default_rng([cases, samples, int(10 * correlation), int(100 * rate)])
                    ability = odds(rate, correlation, (times, cases), random)
                    equal = _changes(ability, ability, samples, random)
                    worse = _changes(ability, ability * (1 - DROP / rate), samples, random)
                    design = f"{cases} cases x {samples}, correlation {correlation}, rate {rate}"
                    design += f", {np.mean(equal != 0) * cases:.1f} differ"
                    yield Row(design, "size", _significant(equal), times)
                    yield Row(design, "coverage", _covers(worse, -DROP), times)


def detectable(times: int) -> Iterator[Row]:
    """The stated detectable difference, as a multiple of the one that is really detected in 80 % of comparisons."""
    for cases in (20, 50, 200):
        for samples in SAMPLES:
            for correlation in CORRELATIONS:
                for rate in RATES[:2]:
                    random = np.random.default_rng([cases, samples, int(10 * correlation), int(100 * rate), 1])
                    real = _simulated_point(cases, samples, correlation, rate, times, random)
                    ability = odds(rate, correlation, (ESTIMATES, cases), random)
                    before = random.binomial(samples, ability) / samples
                    changes = random.binomial(samples, ability) / samples - before
                    stated = [
                        detectable_rate(cases, float(passed), float(variance), samples) or 1.0
                        for passed, variance in zip(before.mean(axis=1), changes.var(axis=1, ddof=1), strict=True)
                    ]
                    design = f"{cases} cases x {samples}, correlation {correlation}, rate {rate}"
                    yield Row(design, "detected", real)
                    yield Row(design, "ratio", median(stated) / real)


def families(times: int) -> Iterator[Row]:
    """The power to see ten points of pass rate with 25 metrics, in one family and in a family of its own."""
    random = np.random.default_rng(9)
    for cases in (200, 500):
        ability = odds(0.85, 0.5, (times, cases), random)
        worse = _changes(ability, ability * (1 - DROP / 0.85), 1, random)
        noise = [_changes(ability, ability, 1, random) for _ in range(24)]
        p_values = [[_p(row[at]) for row in (worse, *noise)] for at in range(times)]
        yield Row(f"{cases} cases, pass rate alone", "power", float(np.mean([p[0] < 0.05 for p in p_values])), times)
        together = float(np.mean([holm(p)[0] < 0.05 for p in p_values]))
        yield Row(f"{cases} cases, by Holm over 25 metrics", "power", together, times)


def _changes(before: Floats, after: Floats, samples: int, random: np.random.Generator) -> Floats:
    changes: Floats = (random.binomial(samples, after) - random.binomial(samples, before)) / samples
    return changes


def _p(changes: Floats) -> float:
    test = paired_test(changes.tolist(), 1.0)
    return 1.0 if test is None else test.p


def _significant(changes: Floats) -> float:
    return float(np.mean([_p(run) < 0.05 for run in changes]))


def _covers(changes: Floats, expected: float) -> float:
    tests = (paired_test(run, 1.0) for run in changes.tolist())
    return float(np.mean([test is not None and test.interval.low <= expected <= test.interval.high for test in tests]))


def _simulated_point(
    cases: int, samples: int, correlation: float, rate: float, times: int, random: np.random.Generator
) -> float:
    """The drop that is significant in 80 % of simulated comparisons; ``paired_test`` written out with NumPy."""
    low, high, quantile = 0.0, rate, t_quantile(0.975, cases - 1)
    for _ in range(8):
        middle = (low + high) / 2
        ability = odds(rate, correlation, (times, cases), random)
        changes = _changes(ability, ability * (1 - middle / rate), samples, random)
        squares, differing = np.square(changes).sum(axis=1), np.maximum(1, (changes != 0).sum(axis=1))
        mean = changes.sum(axis=1) / (cases + 1)
        error = np.sqrt(((squares + squares / differing) / (cases + 1) - mean**2) / (cases + 1))
        power = np.mean(mean + quantile * error < 0)
        low, high = (low, middle) if power >= 0.8 else (middle, high)
    return high


TABLES: dict[str, tuple[Callable[[int], Iterator[Row]], int]] = {
    "Differences of pass rates": (differences, 2000),
    "Detectable differences of pass rates": (detectable, 2000),
    "Two families of tests": (families, 500),
}

if __name__ == "__main__":
    for title, (simulate, default) in TABLES.items():
        show(title, simulate(repetitions(default)))
