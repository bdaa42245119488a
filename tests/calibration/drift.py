"""How often ``compare --experiment`` declares a drift in nights of equal quality, and how soon it finds a drop.

    python -m tests.calibration.drift [REPETITIONS]

Each simulated series is judged by ``find_drift``, as it is on every night. ``nightly`` tests each run alone against the
same baseline, at a level of 5 % divided by the number of nights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tests.calibration.designs import repetitions
from tests.calibration.regression import SHOWN, Design, Drop, Population, RunEffect, draw_run
from visioneval.analysis.compare.drift import find_drift
from visioneval.analysis.sides import Series, SeriesRun, Side, pooled_side
from visioneval.analysis.stats.drift import DRIFT_ALPHA, NIGHTS
from visioneval.analysis.stats.tests import Counts, worse_p
from visioneval.analysis.stats.variance import run_noise
from visioneval.types import Verdict

NO_DROP, TEN = Drop(), Drop(10)
BY_NIGHT = (1, 2, 3, 5, 7, 10, 15, 17, 20)
"""The nights up to which the share of series with an alarm is printed."""


@dataclass(frozen=True)
class Case:
    """A suite, the runs of its baseline, the size of the window, and the night before which it gets worse, if it does."""

    design: Design
    runs: int
    last: int
    drop: Drop = NO_DROP
    first: int = 1
    nights: int = NIGHTS

    def __str__(self) -> str:
        what = f"{self.drop} from night {self.first}" if self.drop.points else "equal"
        return f"{self.design}, {self.runs} in A, --last {self.last}, {what}"


@dataclass
class Alarms:
    """The number of series that had an alarm up to each night."""

    nights: int
    times: int = 0
    together: list[int] = field(default_factory=list)
    nightly: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        """No alarms."""
        self.together, self.nightly = [0] * (self.nights + 1), [0] * (self.nights + 1)

    def add(self, together: Sequence[bool], nightly: Sequence[bool]) -> None:
        """Counts a series, given which of its nights had an alarm."""
        self.times += 1
        for counts, alarms in ((self.together, together), (self.nightly, nightly)):
            for night in range(1, self.nights + 1):
                counts[night] += any(alarms[:night])

    def shares(self, counts: Sequence[int]) -> Iterator[str]:
        """The shares by night, in words."""
        for night in BY_NIGHT:
            if night <= self.nights:
                yield f"{night}: {counts[night] / self.times:.3f}"


def simulate(case: Case, times: int, seed: int = 0) -> Alarms:
    """The alarms of simulated series."""
    chance = np.random.default_rng([seed, case.runs, case.last, case.drop.points, case.first])
    alarms = Alarms(case.nights)
    for _ in range(times):
        rates = case.design.population.draw(case.design.cases, chance)
        worse = case.drop.apply(rates, case.design.population.rate, chance)
        a = pooled_side([draw_run(case.design, rates, chance).side for _ in range(case.runs)])
        sides = [
            draw_run(case.design, rates if night < case.first else worse, chance).side
            for night in range(1, case.nights + 1)
        ]
        alarms.add(list(_together(a, sides, case.last)), list(_nightly(a, sides)))
    return alarms


def _together(a: Side, sides: Sequence[Side], last: int) -> Iterator[bool]:
    """Whether each night has an alarm."""
    runs = [SeriesRun(str(night), "", replace(side, name=str(night))) for night, side in enumerate(sides)]
    drift = find_drift(a, Series("nightly", last, tuple(runs), len(runs)))
    yield from (drift.is_beyond(night) for night in drift.nights)


def _nightly(a: Side, sides: Sequence[Side]) -> Iterator[bool]:
    """Whether each night alone has an alarm, of cells with one sample."""
    verdicts = [[cell.verdict for cell in (cell.cells if a.runs > 1 else (cell,))] for cell in a.cells]  # type: ignore[attr-defined]
    passes = [[(int(verdict is Verdict.PASS), 1) for verdict in of_case] for of_case in verdicts]
    noise = run_noise(passes)
    for side in sides:
        counts = [
            Counts(of_case.count(Verdict.PASS), len(of_case), int(cell.verdict is Verdict.PASS), 1)
            for of_case, cell in zip(verdicts, side.cells, strict=True)
        ]
        p = worse_p(counts, noise)
        yield p is not None and p < DRIFT_ALPHA / NIGHTS


def _cases() -> Iterator[Case]:
    plain, shared = (Design(30, 1, SHOWN[0], effect) for effect in (RunEffect(), RunEffect(shared=0.3)))
    for runs in (1, 3, 5):
        for last in (7, NIGHTS):
            yield Case(plain, runs, last)
            yield Case(plain, runs, last, TEN, nights=7)
    alike, large = Design(30, 1, Population(0.8, 0.02)), Design(100, 1, SHOWN[0], RunEffect(shared=0.3))
    yield Case(alike, 5, NIGHTS, TEN, nights=7)
    for last in (7, NIGHTS):
        yield Case(plain, 5, last, TEN, first=11, nights=17)
        for runs in (1, 5):
            yield Case(shared, runs, last)
            yield Case(large, runs, last)
        yield Case(shared, 5, last, TEN, nights=7)
    for design in (Design(100, 1, SHOWN[0]), Design(30, 1, SHOWN[1])):
        yield Case(design, 5, 7)
        yield Case(design, 5, 7, TEN, nights=7)


def main() -> None:
    """Prints the shares of series with an alarm, by night."""
    times = repetitions(500)
    for case in _cases():
        alarms = simulate(case, times)
        print(case, flush=True)
        print("  together", *alarms.shares(alarms.together), sep="  ")
        print("  nightly ", *alarms.shares(alarms.nightly), sep="  ", flush=True)


if __name__ == "__main__":
    main()
