"""How often gates really fail, beside what is stated: by ``plan --gate``, and by a run about its repetition.

    python -m tests.calibration.gates [REPETITIONS]

A suite is a set of cases with rates of their own, and does not change between its runs. For plans, its mean rate is the
true one. For runs, suites of many qualities have two equal runs each; the first states how often the second fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import numpy as np

from tests.calibration.designs import Floats, Row, odds, repetitions, show
from visioneval.analysis.planning import gate_rates, parse_detect, stated_noise
from visioneval.analysis.summary.gates import repeat_fails
from visioneval.rules import gate_passes, parse_gate

SIZES = ((10, 1), (30, 1), (30, 3), (100, 1), (20, 8))
CORRELATIONS = (0.0, 0.5, 0.8)
TRUE_RATES = (0.85, 0.9, 0.92, 0.95)
STATED = (0.0, 0.02, 0.1, 0.3, 0.6, 1.0)
"""The bounds of the groups in which stated probabilities are compared with what happens."""
GATE = parse_gate("pass_rate >= 0.9")
MEAN_GATE = parse_gate("mean(score) >= 4")


def suites_of(times: int, cases: int, rate: float, correlation: float, random: np.random.Generator) -> Floats:
    """Suites of cases whose mean rate is nearly ``rate``."""
    suites = np.empty((0, cases))
    while len(suites) < times:
        drawn = odds(rate, correlation, (20 * times, cases), random)
        suites = np.concatenate([suites, drawn[np.abs(drawn.mean(axis=1) - rate) < 0.15 / cases]])
    return suites[:times]


def plans(times: int) -> Iterator[Row]:
    """The stated probability that a gate fails at a true rate, and how often it does."""
    for cases, samples in SIZES:
        for correlation in CORRELATIONS:
            noise = stated_noise(parse_detect(5, {}, []), None, correlation)
            stated = {row.rate: row.fails[0] for row in gate_rates(GATE, cases * samples, noise).rows}
            for rate in TRUE_RATES:
                random = np.random.default_rng([cases, samples, int(10 * correlation), int(100 * rate)])
                passed = random.binomial(samples, suites_of(times, cases, rate, correlation, random)).sum(axis=1)
                fails = [not gate_passes(GATE, count / (cases * samples)) for count in passed.tolist()]
                design = f"{cases} cases x {samples}, correlation {correlation}, true {rate}"
                yield Row(design, "stated", stated[rate])
                yield Row(design, "fails", float(np.mean(fails)), times)


def repeats(times: int) -> Iterator[Row]:
    """The mean of the stated probabilities in each group, and how often the second run fails there."""
    for cases, samples in SIZES:
        for correlation in CORRELATIONS:
            random = np.random.default_rng([cases, samples, int(10 * correlation)])
            rates = random.uniform(0.75, 0.999, times)
            suites = np.array([odds(rate, correlation, (cases,), random) for rate in rates])
            runs = random.random((2, samples, times, cases)) < suites
            yield from _stated(f"{cases} cases x {samples}, correlation {correlation}", runs.astype(float), GATE)


def means(times: int) -> Iterator[Row]:
    """The same for the mean of a score: normal around the means of the cases, whose variance has the correlation."""
    for cases, samples in SIZES:
        for correlation in CORRELATIONS:
            random = np.random.default_rng([cases, samples, int(10 * correlation), 1])
            quality = random.uniform(3.5, 4.5, (times, 1))
            suites = random.normal(quality, correlation**0.5, (times, cases))
            runs = random.normal(suites, (1 - correlation) ** 0.5, (2, samples, times, cases))
            design = f"mean, {cases} cases x {samples}, correlation {correlation}"
            yield from _stated(design, runs, MEAN_GATE)


def _stated(design: str, runs: Floats, gate: object) -> Iterator[Row]:
    gate = GATE if gate is GATE else MEAN_GATE
    first = np.moveaxis(runs[0], 0, -1)
    is_rate = gate is GATE
    stated = np.array(
        [repeat_fails(gate, float(run.mean()), [(1.0, run.tolist())], is_rate=is_rate) for run in first], dtype=float
    )
    fails = np.array([not gate_passes(gate, value) for value in runs[1].mean(axis=(0, 2)).tolist()])
    for low, high in pairwise(STATED):
        group = (stated >= low) & (stated < high)
        if (number := int(group.sum())) >= 50:
            name = f"{design}, {low:g} to {high:g}"
            yield Row(name, "stated", float(stated[group].mean()))
            yield Row(name, "fails", float(fails[group].mean()), number)


if __name__ == "__main__":
    number = repetitions(2000)
    for title, rows in (
        ("How often a gate fails at a true rate", partial(plans, number)),
        ("How often a repeated run fails a gate over a rate", partial(repeats, number)),
        ("How often a repeated run fails a gate over a mean", partial(means, number)),
    ):
        show(title, rows())
