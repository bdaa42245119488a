"""How often the intervals of ``agreement --correct`` contain the truth, over many simulated runs.

    python -m tests.calibration.correction [REPETITIONS]

Each design generates the human answers and the judge's of 500 cells, draws the cells to label, and asks for the 95 %
interval of the human mean of all cells that could have been generated.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from visioneval.analysis.stats.basic import Interval
from visioneval.analysis.stats.prediction_powered import (
    Codes,
    Floats,
    LabeledSample,
    corrected_mean,
    difference,
    judge_mean,
    labeled_mean,
)

CELLS = 500
STEPS = np.arange(1.0, 6.0)
"""The answers on the scale."""
CHANGE = 0.05
"""How much lower the rate of the second run of a difference is."""


@dataclass(frozen=True, slots=True)
class Design:
    """What is simulated.

    ``rate`` is the share of yes; on a scale, answers are higher the higher it is. ``correlation`` is that of two cells
    of a case, for people's answers as for the judge's errors.
    """

    labels: int
    cells_per_case: int
    accuracy: float
    rate: float
    correlation: float
    draw: Literal["random", "stratified"]
    kind: Literal["yes_no", "scale", "difference"] = "yes_no"


@dataclass(frozen=True, slots=True)
class Row:
    """The coverage of the corrected interval with its standard error, that of the labels alone, and of all answers.

    ``all_coverage`` is that of the interval of a judge that is always right. ``width`` and ``labels_width`` are mean widths of the intervals.
    """

    design: Design
    coverage: float
    standard_error: float
    labels_coverage: float
    all_coverage: float
    width: float
    labels_width: float

    @property
    def required(self) -> float:
        """The least coverage: lower for 20 labels of which one is expected to be no, or of a skewed scale."""
        if self.design.labels > 20:
            return 0.93
        return 0.88 if self.design.rate == 0.95 else 0.91 if self.design.kind == "scale" else 0.93


def designs(labels: Sequence[int] = (20, 50, 200)) -> Iterator[Design]:
    """All designs: without cases, with five independent or correlated cells per case; yes or no, scales, differences."""
    for count, (size, correlation), accuracy, rate, draw in product(
        labels, ((1, 0.0), (5, 0.0), (5, 0.5)), (0.8, 0.9, 0.99), (0.5, 0.8, 0.95), ("random", "stratified")
    ):
        yield Design(count, size, accuracy, rate, correlation, draw)
    for kind, count, draw in product(("scale", "difference"), labels, ("random", "stratified")):
        yield Design(count, 1, 0.8, 0.8, 0.0, draw, kind)
        yield Design(count, 5, 0.8, 0.8, 0.5, draw, kind)


def coverage(design: Design, repetitions: int, seed: int = 0) -> Row:
    """Simulates one design."""
    random = np.random.default_rng(seed)
    truth = _truth(design)
    hits, widths = np.zeros(3), np.zeros(3)
    for _ in range(repetitions):
        intervals = _difference(design, random) if design.kind == "difference" else _figures(design, random)
        hits += [interval.low - 1e-9 <= truth <= interval.high + 1e-9 for interval in intervals]
        widths += [interval.high - interval.low for interval in intervals]
    share = hits / repetitions
    error = float(np.sqrt(share[0] * (1 - share[0]) / repetitions))
    return Row(design, share[0], error, share[1], share[2], widths[0] / repetitions, widths[1] / repetitions)


def _figures(design: Design, random: np.random.Generator) -> tuple[Interval, Interval, Interval]:
    """The intervals of the corrected figure, of the labels alone, and of a judge that is always right."""
    cases, people, judge = _run(design, random, design.rate, int(random.integers(2**31)))
    sample = _draw(design, random, people, judge)
    step = None if design.kind == "yes_no" else 1.0
    return (
        corrected_mean(judge, cases, sample, step).interval(),
        labeled_mean(cases, sample, step).interval(),
        judge_mean(people, cases, step).interval(),
    )


def _difference(design: Design, random: np.random.Generator) -> tuple[Interval, Interval, Interval]:
    """The intervals of the difference of two runs of the same cases: corrected, of the labels, and of people's answers."""
    first, second = (
        _run(design, random, rate, seed)
        for seed in [int(random.integers(2**31))]
        for rate in (design.rate, design.rate - CHANGE)
    )
    samples = [_draw(design, random, people, judge) for _, people, judge in (first, second)]
    return (
        difference(
            *(
                corrected_mean(judge, cases, sample)
                for (cases, _, judge), sample in zip((first, second), samples, strict=True)
            )
        ).interval(),
        difference(*(labeled_mean(first[0], sample) for sample in samples)).interval(),
        difference(*(judge_mean(people, cases) for cases, people, _ in (first, second))).interval(),
    )


def _run(design: Design, random: np.random.Generator, rate: float, seed: int) -> tuple[Codes, Floats, Floats]:
    """The case of each cell, people's answers and the judge's. Runs with the same seed have equally difficult cells."""
    cases = np.arange(CELLS) // design.cells_per_case
    answers = _correlated(design, cases, np.random.default_rng(seed))
    errors = _correlated(design, cases, random) >= design.accuracy
    if design.kind == "scale":
        people = STEPS[np.minimum((answers ** (1 / (1 + 2 * rate)) * len(STEPS)).astype(int), len(STEPS) - 1)]
        return cases, people, np.clip(people - errors * random.integers(1, 3, CELLS), 1.0, 5.0)
    people = (answers < rate).astype(float)
    return cases, people, np.where(errors, 1 - people, people)


def _correlated(design: Design, cases: Codes, random: np.random.Generator) -> Floats:
    """Uniform numbers, of which two of a case are equal with a probability that gives the correlation."""
    separate, shared = random.random(CELLS), random.random(int(cases.max()) + 1)
    return np.where(random.random(CELLS) < np.sqrt(design.correlation), shared[cases], separate)


def _draw(design: Design, random: np.random.Generator, people: Floats, judge: Floats) -> LabeledSample:
    """Draws from all cells, or takes from each verdict of the judge in turn, as the label page does."""
    verdicts = (judge >= np.median(judge)).astype(int) if design.kind == "scale" else judge.astype(int)
    if design.draw == "random":
        verdicts = np.zeros(CELLS, dtype=int)
    order = random.permutation(CELLS)
    within = np.zeros(CELLS, dtype=int)
    for verdict in np.unique(verdicts):
        members = order[verdicts[order] == verdict]
        within[members] = np.arange(len(members))
    rows = np.lexsort((random.random(CELLS), within))[: design.labels]
    drawn, cells = np.bincount(verdicts[rows], minlength=2), np.bincount(verdicts, minlength=2)
    weights = (cells / np.maximum(drawn, 1))[verdicts[rows]]
    return LabeledSample(rows, people[rows], weights, verdicts[rows])


def _truth(design: Design) -> float:
    if design.kind == "difference":
        return -CHANGE
    if design.kind == "scale":
        bounds = (np.arange(6) / 5) ** (1 + 2 * design.rate)
        return float(STEPS @ np.diff(bounds))
    return design.rate


def main(repetitions: int) -> int:
    """Prints every design; the exit code is 1 if one covers less than required, beyond chance."""
    rows = [coverage(design, repetitions) for design in designs()]
    low = [row for row in rows if row.coverage < row.required - 2 * row.standard_error]
    print(f"{repetitions} repetitions; {'design':<62} corrected (error)  labels alone  all  widths")
    for row in rows:
        d = row.design
        name = f"{d.kind} labels={d.labels} per_case={d.cells_per_case} accuracy={d.accuracy} rate={d.rate} correlation={d.correlation} {d.draw}"
        print(
            f"{'LOW ' if row in low else '    '}{name:<84} {row.coverage:.3f} ({row.standard_error:.3f})"
            f"  {row.labels_coverage:.3f}  {row.all_coverage:.3f}  {row.width:.3f} {row.labels_width:.3f}"
        )
    print(f"lowest {min(row.coverage for row in rows):.3f}; designs below what is required: {len(low)}")
    return int(bool(low))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
