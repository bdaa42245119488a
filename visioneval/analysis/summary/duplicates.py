"""Near-duplicates between cases: what a run has of them, for its gates and its summary. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from visioneval.records.between_cells import CellDuplicate
from visioneval.records.model import CellKey, Record, RunInfo
from visioneval.records.untrusted import SampleIndex
from visioneval.suite.entries.graders import CASES, BaseGrader, of_kind
from visioneval.types import Frozen

MAX_LISTED = 200
"""The near-duplicates of a model run that are listed."""


class DuplicateCell(Frozen):
    """An output that is nearly the same image as that of another case, ``of``, on the same model run."""

    test_id: str
    model_label: str
    sample_index: SampleIndex
    of: str
    of_sample: SampleIndex
    distance: float
    delta_e: float

    @property
    def other(self) -> CellKey:
        """The cell whose output it repeats."""
        return self.of, self.model_label, self.of_sample


class DuplicatesFinding(Frozen):
    """The near-duplicates of one model run: so many of the ``outputs`` that were compared, and the first of them.

    ``failed`` are those that exist, but could not be compared.
    """

    grader: str
    model_label: str
    outputs: int
    duplicates: int
    cells: tuple[DuplicateCell, ...] = ()
    failed: int = 0
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class CellState:
    """Whether a cell is a near-duplicate; ``None`` if that was not measured, or if there is nothing to compare."""

    is_duplicate: bool | None
    is_failed: bool


class Duplicates:
    """Matches the cells of a run with the lines of ``duplicates.jsonl``, and counts them."""

    def __init__(self, info: RunInfo, lines: Iterable[CellDuplicate]) -> None:
        """Starts without cells. A shard has no near-duplicates yet: ``merge`` finds them."""
        suite = info.selected_suite
        self.graders = [] if info.selection.shard is not None else of_kind(suite.graders, CASES)
        self._cases = {case.id: case for case in suite.cases}
        self._lines = {line.key: line for line in lines} if self.graders else {}
        self._states: dict[tuple[str, str], list[tuple[CellState, CellDuplicate | None]]] = {}

    def add(self, cell: Record) -> None:
        """Counts a cell, if it has an image that a grader is for."""
        for grader in self.graders:
            if (matched := self._state(grader, cell)) is not None:
                self._states.setdefault((grader.key, cell.model_label), []).append(matched)

    def state(self, cell: Record) -> CellState | None:
        """What all graders say of a cell; ``None`` if none is for it."""
        states = [state for grader in self.graders if (state := self._state(grader, cell)) is not None]
        if not states:
            return None
        values = [state.is_duplicate for state, _ in states]
        return CellState(
            True if True in values else None if None in values else False, any(state.is_failed for state, _ in states)
        )

    def _state(self, grader: BaseGrader, cell: Record) -> tuple[CellState, CellDuplicate | None] | None:
        case = self._cases.get(cell.test_id)
        has_image = cell.mime is not None and cell.artifact_path is not None and cell.artifact_sha256 is not None
        if case is None or not has_image or not grader.is_for(case):
            return None
        line = self._lines.get((grader.key, cell.cell))
        if line is None or line.output != cell.artifact_sha256 or line.error is not None:
            return CellState(None, is_failed=True), None
        return CellState(line.is_duplicate, is_failed=False), line

    def result(self, labels: Iterable[str]) -> tuple[DuplicatesFinding, ...]:
        """A finding for each grader and each of these model runs that has outputs for it."""
        runs = list(labels)
        return tuple(
            self._finding(grader.key, label, is_optional=bool(grader.optional))
            for grader in self.graders
            for label in runs
            if (grader.key, label) in self._states
        )

    def _finding(self, key: str, label: str, *, is_optional: bool) -> DuplicatesFinding:
        states = self._states[key, label]
        order = {case: at for at, case in enumerate(self._cases)}
        copies = [line for state, line in states if state.is_duplicate and line is not None]
        copies.sort(key=lambda line: (order[line.test_id], line.sample_index))
        return DuplicatesFinding(
            grader=key,
            model_label=label,
            outputs=sum(state.is_duplicate is not None for state, _ in states),
            duplicates=len(copies),
            cells=tuple(
                DuplicateCell(
                    test_id=line.test_id,
                    model_label=label,
                    sample_index=line.sample_index,
                    of=line.of or "",
                    of_sample=line.of_sample,
                    distance=line.distance or 0.0,
                    delta_e=line.delta_e or 0.0,
                )
                for line in copies[:MAX_LISTED]
            ),
            failed=sum(state.is_failed for state, _ in states),
            is_optional=is_optional,
        )


def not_compared_outputs(findings: Iterable[DuplicatesFinding]) -> int:
    """The number of outputs that a grader failed to compare, except optional graders."""
    return sum(finding.failed for finding in findings if not finding.is_optional)
