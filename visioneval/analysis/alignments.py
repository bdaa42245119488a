"""The alignment score and the gaps of each cell, whether it passes or not. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from visioneval.analysis.scores import number_of
from visioneval.records.model import Record, RunInfo, suite_order
from visioneval.types import Frozen

ALIGNMENT = "alignment"
"""The type of the graders that list gaps."""
MAX_LISTED = 5_000
"""How many cells a summary lists, so that it stays small for a run of any length."""


class AlignedCell(Frozen):
    """The score of a cell, 0 to 100, by an alignment grader, and its gaps: a sentence for each unmet requirement.

    The score is ``None`` if it was not measured. For a panel, the gaps are those of each judge.
    """

    test_id: str
    model_label: str
    sample_index: int
    grader: str
    score: float | None
    gaps: tuple[str, ...]


class Alignments:
    """Collects the alignment of the cells of a run, or of those with the lowest scores if there are many."""

    def __init__(self, info: RunInfo) -> None:
        """Finds the alignment graders."""
        self._keys = alignment_keys(info)
        self._order = suite_order(info)
        self._cells: list[AlignedCell] = []
        self._count = 0

    def add(self, cell: Record) -> None:
        """Adds the scores of a cell."""
        for key in self._keys:
            if key in cell.scores:
                score = cell.scores[key]
                self._count += 1
                self._cells.append(
                    AlignedCell(
                        test_id=cell.test_id,
                        model_label=cell.model_label,
                        sample_index=cell.sample_index,
                        grader=key,
                        score=number_of(score),
                        gaps=gaps_in(cell, key),
                    )
                )
        if len(self._cells) >= 2 * MAX_LISTED:
            self._cells = list(self.result())

    def result(self) -> tuple[AlignedCell, ...]:
        """The cells in suite order; if there are too many, the lowest scores first."""
        cells = sorted(self._cells, key=lambda cell: self._order(cell.test_id, cell.model_label, cell.sample_index))
        return tuple(cells if self._count <= MAX_LISTED else lowest_first(cells)[:MAX_LISTED])

    @property
    def left_out(self) -> int:
        """The number of cells that are not listed."""
        return max(0, self._count - MAX_LISTED)


def lowest_first(cells: Iterable[AlignedCell]) -> list[AlignedCell]:
    """Sorts cells by score. Those that were not measured come last."""
    return sorted(cells, key=lambda cell: (cell.score is None, cell.score or 0.0))


def alignment_keys(info: RunInfo) -> tuple[str, ...]:
    """The keys of the alignment graders of a run."""
    return tuple(grader.key for grader in info.suite.graders if grader.type_name == ALIGNMENT)


def gaps_in(cell: Record, key: str) -> tuple[str, ...]:
    """The gaps that a grader found in a cell; with a panel, of each of its judges."""
    for grader in cell.graders:
        if grader.key == key:
            own = _gaps(grader.details)
            return own or tuple(f"{answer.judge}: {gap}" for answer in grader.judges for gap in _gaps(answer.details))
    return ()


def _gaps(details: Mapping[str, object]) -> tuple[str, ...]:
    listed = details.get("gaps")
    return tuple(str(gap) for gap in listed) if isinstance(listed, list) else ()
