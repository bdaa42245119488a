"""Coverage of the 95 % intervals of rates, means, separations and AUROCs.

python -m tests.calibration.intervals [REPETITIONS]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import erf
from statistics import NormalDist

import numpy as np

from tests.calibration.designs import Floats, Row, odds, repetitions, show
from visioneval.analysis.stats.basic import Interval
from visioneval.analysis.stats.intervals import (
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
BROKEN, QUESTIONS = 0.05, 6


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


def broken_rates(times: int) -> Iterator[Row]:
    """Pass rates near 1: a few cases that always fail among good ones, or cases that mostly fail as a whole."""
    for cases in (20, 50, 200):
        for other in (0.97, 1.0):
            random = np.random.default_rng([cases, int(100 * other), 2])
            ability = np.where(random.random((times, cases)) < BROKEN, 0.0, other)
            design = f"{cases} cases x 8, {BROKEN:.0%} always fail, others {other}"
            yield Row(design, "coverage", _covers_rate((1 - BROKEN) * other, 8, ability, random), times)
    random = np.random.default_rng(3)
    ability = odds(0.99, 0.8, (times, 200), random)
    yield Row(_design(200, 8, 0.8, "rate 0.99"), "coverage", _covers_rate(0.99, 8, ability, random), times)


def _covers_rate(expected: float, samples: int, ability: Floats, random: np.random.Generator) -> float:
    passed = random.binomial(samples, ability).tolist()
    return _coverage(expected, (rate_interval([(n, samples) for n in run]) for run in passed))


def errors(times: int) -> Iterator[Row]:
    """A pass rate whose samples are ERROR in 3 % of what passes and in 30 % of what fails."""
    for cases in (50, 200):
        random = np.random.default_rng([cases, 4])
        passed = random.random((times, cases)) < 0.8
        measured = random.random((times, cases)) >= np.where(passed, 0.03, 0.3)
        runs = zip(passed.astype(float).tolist(), measured.tolist(), strict=True)
        intervals = (
            rate_interval([(value, 1) for value, is_known in zip(values, known, strict=True) if is_known])
            for values, known in runs
        )
        yield Row(f"{cases} cases x 1, rate 0.8, ERROR 3 % and 30 %", "coverage", _coverage(0.8, intervals), times)


def skewed_means(times: int) -> Iterator[Row]:
    """Means of scores that are nearly all at the top: 97 % fives, and the share of right answers of Gecko."""
    for cases in (20, 50):
        random = np.random.default_rng([cases, 5])
        is_top = random.random((times, cases)) < 0.97
        scores = np.where(is_top, 5, random.integers(0, 5, (times, cases))).astype(float).tolist()
        intervals = (mean_interval([(value, 1) for value in run], (0, 5)) for run in scores)
        yield Row(
            f"{cases} cases x 1, 0 to 5, 97 % fives", "coverage", _coverage(0.97 * 5 + 0.03 * 2, intervals), times
        )
    for correlation in (0.0, 0.5):
        random = np.random.default_rng([int(10 * correlation), 6])
        ability = odds(0.98, correlation, (times, 20), random)
        right = random.binomial(3 * QUESTIONS, ability) / QUESTIONS
        intervals = (mean_interval([(total, 3) for total in run], (0, 1)) for run in right.tolist())
        design = f"20 cases x 3, {QUESTIONS} questions each, rate 0.98, correlation {correlation}"
        yield Row(design, "coverage", _coverage(0.98, intervals), times)


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
    "Pass rate near 1": (broken_rates, 2000),
    "Pass rate where errors hit failures more": (errors, 2000),
    "Mean of a score from 0 to 5": (means, 4000),
    "Mean of scores at the top": (skewed_means, 4000),
    "Separation and AUROC": (separations, 1000),
    "Separation of rates": (rate_separations, 1000),
}

if __name__ == "__main__":
    for title, (simulate, default) in TABLES.items():
        show(title, simulate(repetitions(default)))
