"""Judges and models that were not asked at all, offline or beyond the budget. That is no outage. Pure."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from visioneval.errors import NEVER_ASKED
from visioneval.records.model import Record
from visioneval.types import Frozen


class NeverAsked(Frozen):
    """A judge that was not asked about some cells or pairs, or a model not for some outputs. Nothing excuses that.

    Its name is ``GRADER``, ``GRADER by JUDGE`` of a panel, ``generation by LABEL``, or ``provider:model`` for pairs.
    """

    name: str
    what: Literal["cell", "pair", "output"]
    number: int


class NeverAskedCells:
    """Counts the cells that were not generated, or about which a judge was not asked."""

    def __init__(self) -> None:
        """Starts without cells."""
        self._cells: Counter[str] = Counter()
        self._outputs: Counter[str] = Counter()

    def add(self, cell: Record) -> None:
        """Counts a cell."""
        if cell.error is not None and cell.error.stage == "generate" and cell.error.kind in NEVER_ASKED:
            self._outputs[f"generation by {cell.model_label}"] += 1
        for grader in cell.graders:
            if grader.never_asked:
                of_panel = [f"{grader.key} by {answer.judge}" for answer in grader.judges if answer.never_asked]
                self._cells.update(of_panel or [grader.key])

    def result(self) -> tuple[NeverAsked, ...]:
        """The judges and models by name, so that the order of the cells does not matter."""
        cells = (NeverAsked(name=name, what="cell", number=number) for name, number in sorted(self._cells.items()))
        outputs = (
            NeverAsked(name=name, what="output", number=number) for name, number in sorted(self._outputs.items())
        )
        return (*cells, *outputs)
