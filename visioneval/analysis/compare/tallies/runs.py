"""The runs of a baseline, case by case: what they have in common that samples do not explain. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from visioneval.analysis.cells import Cell, PooledCell
from visioneval.analysis.stats.variance import NO_NOISE, Passes, RunNoise, run_noise, shared_variance
from visioneval.types import Score


class RunPasses:
    """Counts the passes of each case in each run of A."""

    def __init__(self) -> None:
        """No cells."""
        self._cases: dict[int, list[Passes]] = {}

    def add(self, case: int, cell: Cell) -> None:
        """Counts the runs of a cell of A, given the number of its case."""
        if isinstance(cell, PooledCell):
            passes = [(0, 0) if item is None else item.passes for item in cell.cells]
            before = self._cases.get(case) or [(0, 0)] * len(passes)
            self._cases[case] = [(a + c, b + d) for (a, b), (c, d) in zip(before, passes, strict=True)]

    def noise(self) -> RunNoise:
        """The noise between the runs, over the cases that all of them measured."""
        return run_noise([row for row in self._cases.values() if all(measured for _, measured in row)])


class RunScores:
    """Adds the scores of a metric of each case in each run of A."""

    def __init__(self) -> None:
        """No scores."""
        self._cases: dict[int, list[tuple[float, int]]] = {}

    def add(self, case: int, cell: PooledCell, metric: str) -> None:
        """Adds the runs of a cell of A, given the number of its case."""
        scores: Iterable[Score] = (None if item is None else item.scores.get(metric) for item in cell.cells)
        before = self._cases.get(case) or [(0.0, 0)] * len(cell.cells)
        self._cases[case] = [
            (total, count) if score is None else (total + score, count + 1)
            for (total, count), score in zip(before, scores, strict=True)
        ]

    def noise(self) -> RunNoise:
        """The noise between the runs, over the cases that all of them measured."""
        rows = [[total / count for total, count in row] for row in self._cases.values() if all(n for _, n in row)]
        return RunNoise(len(rows[0]), shared_variance(rows)) if len(rows) > 1 else NO_NOISE
