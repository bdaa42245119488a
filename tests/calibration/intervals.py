"""Coverage of the 95 % intervals of rates, means, separations and AUROCs.

python -m tests.calibration.intervals [REPETITIONS]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import erf
from statistics import NormalDist

import numpy as np

from tests.calibration.designs import Row, odds, repetitions, show
from visioneval.analysis.stats.basic import Interval
from visioneval.analysis.stats.clusters import (
    auroc_interval,
    mean_interval,
    rate_interval,
    rate_separation_interval,
    separation_interval,
)

CASES, SAMPLES, CORRELATIONS, RATES = (20, 50, 200, 1000), (1, 3, 8), (0.0, 0.3, 0.8), (0.5, 0.8, 0.95)
SIZES = (6, 20, 50)
Side = dict[int, list[float]]
"""The values of each image."""


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
    """Aligned cells against counter-examples, normal scores, half of the variance between cases.

    ``shared`` is the share of images that have an aligned case and a counter-example, with the same effect on both.
    """
    for cases in SIZES:
        for samples in (1, 3):
            for gap, shared in product((0.0, 1.0, 2.0), (0.0, 0.5, 1.0)):
                random = np.random.default_rng([cases, samples, int(gap), int(2 * shared)])
                runs = [_two_sides(cases, samples, gap, shared, random) for _ in range(times)]
                differences = (separation_interval(above, below) for above, below in runs)
                areas = (auroc_interval(above, below) for above, below in runs)
                design = f"{cases} + {cases} cases x {samples}, gap {gap}, shared {shared}"
                yield Row(design, "separation", _coverage(gap, differences), times)
                yield Row(design, "AUROC", _coverage((1 + erf(gap / 2)) / 2, areas), times)


def _two_sides(cases: int, samples: int, gap: float, shared: float, random: np.random.Generator) -> tuple[Side, Side]:
    """The scores of each image on both sides. The counter-examples of shared images have the same numbers."""
    images = random.normal(0, np.sqrt(0.5), (2, cases, 1))
    same = int(shared * cases)
    images[1, :same] = images[0, cases - same :]
    scores = images + random.normal(0, np.sqrt(0.5), (2, cases, samples))
    return dict(enumerate((scores[0] + gap).tolist())), dict(enumerate(scores[1].tolist(), cases - same))


def rate_separations(times: int) -> Iterator[Row]:
    """A yes-or-no metric of aligned cells and of counter-examples that share their images, all or half of them."""
    for cases in SIZES:
        for samples, correlation, shared in product((1, 3), (0.3, 0.8), (0.0, 0.5, 1.0)):
            for high, low in ((0.8, 0.5), (0.95, 0.2)):
                random = np.random.default_rng(
                    [cases, samples, int(10 * correlation), int(2 * shared), int(100 * high)]
                )
                runs = (_two_rates((high, low), cases, samples, (correlation, shared), random) for _ in range(times))
                share = _coverage(high - low, (rate_separation_interval(above, below) for above, below in runs))
                design = f"{_design(cases, samples, correlation, f'{high} - {low}')}, shared {shared}"
                yield Row(design, "separation", share, times)


def _two_rates(
    rates: tuple[float, float], cases: int, samples: int, within: tuple[float, float], random: np.random.Generator
) -> tuple[Side, Side]:
    """The passes of each image on both sides: a normal effect of the image, cut so that both rates hold."""
    correlation, shared = within
    same = int(shared * cases)
    images = random.normal(0, np.sqrt(correlation), (2, cases, 1))
    images[1, :same] = images[0, cases - same :]
    latent = images + random.normal(0, np.sqrt(1 - correlation), (2, cases, samples))
    above, below = (
        (side < NormalDist().inv_cdf(rate)).astype(float).tolist() for side, rate in zip(latent, rates, strict=True)
    )
    return dict(enumerate(above)), dict(enumerate(below, cases - same))


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
    "Separation of rates": (rate_separations, 1000),
}

if __name__ == "__main__":
    for title, (simulate, default) in TABLES.items():
        show(title, simulate(repetitions(default)))
