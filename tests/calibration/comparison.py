"""Size, coverage and detectable differences of the pass rate in ``compare``, and the power of its two families.

    python -m tests.calibration.comparison [REPETITIONS]

The test is the one within cases, one-sided at 2.5 %. ``tests.calibration.regression`` has the alarms of the whole gate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product
from statistics import median

import numpy as np

from tests.calibration.designs import Floats, Row, odds, repetitions, show
from tests.calibration.intervals import CASES, CORRELATIONS, RATES, SAMPLES
from visioneval.analysis.compare.differences import ALPHA
from visioneval.analysis.stats.tests import Counts, PairedTest, holm, paired_test, within_variance, worse_p
from visioneval.analysis.stats.variance import detectable_within

DROP, LEVEL = 0.1, ALPHA / 2
ESTIMATES = 100
"""Comparisons from which a detectable difference is estimated."""


def differences(times: int) -> Iterator[Row]:
    """How often equal runs are worse, and how often the interval covers a drop of ten points."""
    for cases in CASES:
        for samples in SAMPLES:
            for correlation in CORRELATIONS:
                for rate in RATES:
                    random = np.random.default_rng([cases, samples, int(10 * correlation), int(100 * rate)])
                    ability = odds(rate, correlation, (times, cases), random)
                    equal = _runs(ability, ability, samples, random)
                    worse = _runs(ability, ability * (1 - DROP / rate), samples, random)
                    differing = np.mean([sum(case.difference != 0 for case in run) for run in equal])
                    design = f"{cases} cases x {samples}, correlation {correlation}, rate {rate}"
                    design += f", {differing:.1f} differ"
                    yield Row(design, "size", float(np.mean([_is_worse(run) for run in equal])), times)
                    yield Row(design, "coverage", _covers(worse, -DROP), times)


def whole_cases(times: int) -> Iterator[Row]:
    """How often the interval covers a drop where a few cases break entirely."""
    for cases, samples, rate in product((20, 50), (1, 8), (0.9, 1.0)):
        for share in (0.05, 0.1):
            random = np.random.default_rng([cases, samples, int(100 * share), int(100 * rate)])
            ability = odds(rate, 0.5 if rate < 1 else 0.0, (times, cases), random)
            after = np.where(random.random(ability.shape) < share, 0.0, ability)
            design = f"{cases} cases x {samples}, rate {rate}, {share:.0%} of cases break"
            yield Row(design, "coverage", _covers(_runs(ability, after, samples, random), -rate * share), times)


def collapsed_scores(times: int) -> Iterator[Row]:
    """How often the interval covers the difference of scores that are mostly 5, of which 5 % of the cases fall to 0."""
    for cases in (20, 50):
        random = np.random.default_rng([cases, 8])
        before, after = (5.0 - (random.random((times, cases, 3)) < 0.1) for _ in range(2))
        after = np.where(random.random((times, cases, 1)) < 0.05, 0.0, after)
        tests = (paired_test(run, 5.0) for run in (after - before).mean(axis=2).tolist())
        yield Row(f"{cases} cases x 3, 5 % collapse", "coverage", _share_that_covers(tests, -0.05 * 4.9), times)


def detectable(times: int) -> Iterator[Row]:
    """The stated detectable difference, as a multiple of the one that is really detected in 80 % of comparisons."""
    for cases in (20, 50, 200):
        for samples in SAMPLES:
            for correlation in CORRELATIONS:
                for rate in RATES[:2]:
                    random = np.random.default_rng([cases, samples, int(10 * correlation), int(100 * rate), 1])
                    real = _simulated_point(cases, samples, correlation, rate, times, random)
                    ability = odds(rate, correlation, (ESTIMATES, cases), random)
                    stated = [_stated(run, samples) for run in _runs(ability, ability, samples, random)]
                    design = f"{cases} cases x {samples}, correlation {correlation}, rate {rate}"
                    yield Row(design, "detected", real)
                    yield Row(design, "ratio", median(stated) / real)


def detected_whole_cases(times: int) -> Iterator[Row]:
    """How often the stated detectable difference is found if whole cases break instead of all in proportion."""
    for cases, samples, correlation in product((20, 50, 200), (3, 8), (0.3, 0.8)):
        random = np.random.default_rng([cases, samples, int(10 * correlation), 10])
        ability = odds(0.8, correlation, (times, cases), random)
        stated = median(_stated(run, samples) for run in _runs(ability, ability, samples, random)[:ESTIMATES])
        after = np.where(random.random(ability.shape) < stated / 0.8, 0.0, ability)
        found = float(np.mean([_is_worse(run) for run in _runs(ability, after, samples, random)]))
        yield Row(
            f"{cases} cases x {samples}, correlation {correlation}, {100 * stated:.0f} points", "power", found, times
        )


def families(times: int) -> Iterator[Row]:
    """The power to see ten points of pass rate with 25 metrics, in one family and in a family of its own."""
    random = np.random.default_rng(9)
    for cases in (200, 500):
        ability = odds(0.85, 0.5, (times, cases), random)
        worse = _runs(ability, ability * (1 - DROP / 0.85), 1, random)
        noise = [_runs(ability, ability, 1, random) for _ in range(24)]
        p_values = [[_two_sided(run) for run in runs] for runs in zip(worse, *noise, strict=True)]
        yield Row(f"{cases} cases, pass rate alone", "power", float(np.mean([p[0] < ALPHA for p in p_values])), times)
        together = float(np.mean([holm(p)[0] < ALPHA for p in p_values]))
        yield Row(f"{cases} cases, by Holm over 25 metrics", "power", together, times)


def _runs(before: Floats, after: Floats, samples: int, random: np.random.Generator) -> list[list[Counts]]:
    """The passes of each case in simulated comparisons."""
    passes = random.binomial(samples, before).tolist(), random.binomial(samples, after).tolist()
    return [[Counts(a, samples, b, samples) for a, b in zip(*run, strict=True)] for run in zip(*passes, strict=True)]


def _is_worse(run: list[Counts]) -> bool:
    p = worse_p(run)
    return p is not None and p < LEVEL


def _two_sided(run: list[Counts]) -> float:
    p = worse_p(run)
    return 1.0 if p is None else min(1.0, 2 * min(p, 1 - p))


def _covers(runs: list[list[Counts]], expected: float) -> float:
    tests = (paired_test([case.difference for case in run], 1.0, p=_two_sided(run)) for run in runs)
    return _share_that_covers(tests, expected)


def _share_that_covers(tests: Iterable[PairedTest | None], expected: float) -> float:
    return float(np.mean([test is not None and test.interval.low <= expected <= test.interval.high for test in tests]))


def _stated(run: list[Counts], samples: int) -> float:
    rate = sum(case.a_passed for case in run) / (samples * len(run))
    return detectable_within(len(run), rate, within_variance(run) or 0.0, (samples, samples)) or 1.0


def _simulated_point(
    cases: int, samples: int, correlation: float, rate: float, times: int, random: np.random.Generator
) -> float:
    """The drop that is found in 80 % of simulated comparisons."""
    low, high = 0.0, rate
    for _ in range(8):
        middle = (low + high) / 2
        ability = odds(rate, correlation, (times, cases), random)
        runs = _runs(ability, ability * (1 - middle / rate), samples, random)
        power = np.mean([_is_worse(run) for run in runs])
        low, high = (low, middle) if power >= 0.8 else (middle, high)
    return high


TABLES: dict[str, tuple[Callable[[int], Iterator[Row]], int]] = {
    "Differences of pass rates": (differences, 500),
    "Differences where whole cases break": (whole_cases, 1000),
    "Differences of scores at the top": (collapsed_scores, 2000),
    "Detectable differences of pass rates": (detectable, 200),
    "The stated difference by whole cases": (detected_whole_cases, 500),
    "Two families of tests": (families, 500),
}

if __name__ == "__main__":
    for title, (simulate, default) in TABLES.items():
        show(title, simulate(repetitions(default)))
