"""Coverage of the 95 % intervals of rates, means, separations and AUROCs.

python -m tests.calibration.intervals [REPETITIONS]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import erf
from typing import Any

import numpy as np

from tests.calibration.designs import Row, odds, repetitions, show
from visioneval.analysis.stats.basic import Interval
from visioneval.analysis.stats.clusters import auroc_interval, mean_interval, rate_interval, separation_interval

CASES, SAMPLES, CORRELATIONS, RATES = (20, 50, 200, 1000), (1, 3, 8), (0.0, 0.3, 0.8), (0.5, 0.8, 0.95)
SIZES = (6, 20, 50)


def rates(times: int) -> Iterator[Row]:
    """The pass rate of cases with several samples."""
    for cases in CASES:
        for samples in SAMPLES:
            for correlation in CORRELATIONS:
                for rate in RATES:
                    random = np.random.default_rng([cases, samples, int(10 * correlation), int(100 * rate)])
                    passed = random.binomial(samples, odds(rate, correlation, (times, cases), random)).tolist()
                    shares = _coverage(rate, (rate_interval([(n, samples) for n in run]) for run in passed))
                    yield Row(_design(cases, samples, correlation, f"rate {rate}"), "coverage", shares, times)


def means(times: int) -> Iterator[Row]:
    """The mean of a score from 0 to 5: skewed between cases, with noise within them."""
    levels, weights = np.array([2.0, 4.0, 5.0]), [0.2, 0.5, 0.3]
    expected = sum(
        weight * np.mean(np.clip(level + np.array([-1, 0, 1]), 0, 5))
        for level, weight in zip(levels, weights, strict=True)
    )
    for cases in SIZES:
        for samples in SAMPLES:
            random = np.random.default_rng([cases, samples])
            scores = random.choice(levels, p=weights, size=(times, cases, 1)) + random.integers(
                -1, 2, (times, cases, samples)
            )
            sums = np.clip(scores, 0, 5).sum(axis=2).tolist()
            intervals = (mean_interval([(total, samples) for total in run], (0, 5)) for run in sums)
            yield Row(f"{cases} cases x {samples}", "coverage", _coverage(float(expected), intervals), times)


def separations(times: int) -> Iterator[Row]:
    """Aligned cells against counter-examples, normal scores, half of the variance between cases."""
    for cases in SIZES:
        for samples in (1, 3):
            for gap in (0.0, 1.0, 2.0):
                random = np.random.default_rng([cases, samples, int(gap)])

                def side(mean: float, size: int = cases, count: int = samples, random: Any = random) -> Any:
                    between = random.normal(0, np.sqrt(0.5), (size, 1))
                    return mean + between + random.normal(0, np.sqrt(0.5), (size, count))

                runs = [(side(gap), side(0.0)) for _ in range(times)]
                differences = (separation_interval(_sums(above), _sums(below)) for above, below in runs)
                areas = (auroc_interval(above.tolist(), below.tolist()) for above, below in runs)
                design = f"{cases} + {cases} cases x {samples}, gap {gap}"
                yield Row(design, "separation", _coverage(gap, differences), times)
                yield Row(design, "AUROC", _coverage((1 + erf(gap / 2)) / 2, areas), times)


def _sums(values: Any) -> list[tuple[float, int]]:
    return [(float(row.sum()), len(row)) for row in values]


def _coverage(expected: float, intervals: Iterator[Interval | None]) -> float:
    """The share of intervals that contain the expected value; no interval does not."""
    inside: Sequence[bool] = [
        interval is not None and interval.low <= expected <= interval.high for interval in intervals
    ]
    return float(np.mean(inside))


def _design(cases: int, samples: int, correlation: float, rest: str) -> str:
    return f"{cases} cases x {samples}, correlation {correlation}, {rest}"


TABLES: dict[str, tuple[Callable[[int], Iterator[Row]], int]] = {
    "Pass rate": (rates, 2000),
    "Mean of a score from 0 to 5": (means, 4000),
    "Separation and AUROC": (separations, 1000),
}

if __name__ == "__main__":
    for title, (simulate, default) in TABLES.items():
        show(title, simulate(repetitions(default)))
