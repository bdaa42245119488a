"""The records of a run that stay on disk: counted first, then read one at a time."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from visioneval.records.cell_index import CellIndex
from visioneval.records.files.lines import located_lines, open_lines
from visioneval.records.model import (
    Record,
    RunInfo,
    cell_of_line,
    index_cells,
    indexed_lines,
    parse_record,
    suite_order,
)
from visioneval.suite.filters import Scope, any_glob

_LABEL_STEP = 1 << 20
"""More than the largest sample index."""


@dataclass(frozen=True)
class StoredRecords:
    """The records of a run, one per cell, or those that all ``scopes`` cover.

    They may be read several times. Memory grows with cases and model runs, hardly with samples.
    """

    folder: Path
    index: CellIndex
    scopes: tuple[Scope, ...] = ()

    @classmethod
    def of_run(cls, folder: Path) -> Self:
        """Counts the cells of a run. Raises ``RunFormatError``."""
        return cls(folder, index_cells(folder))

    def within(self, scope: Scope) -> Self:
        """Those of these records that a scope covers."""
        return replace(self, scopes=(*self.scopes, scope))

    def __len__(self) -> int:
        if any(scope.cases or scope.tags or scope.tasks for scope in self.scopes):
            return sum(1 for _ in self)
        return sum(count for label, count in self.index.cells.items() if self._has_label(label))

    def __iter__(self) -> Iterator[Record]:
        """In the order of the file. Raises ``RunFormatError``."""
        return (record for _, record in self.numbered())

    def numbered(self) -> Iterator[tuple[int, Record]]:
        """Each with the number of its line, for ``records_at``."""
        lines = indexed_lines(self.folder, self.index)
        return ((number, record) for number, _, record in lines if self._covers(record))

    def in_order(self, info: RunInfo) -> Iterator[Record]:
        """In the order of the suite. 24 bytes per cell are in memory: where its line is. Raises ``RunFormatError``."""
        path = self.folder / "results.jsonl"
        positions = self._positions(info)
        with open_lines(path, "record") as lines:
            for case in sorted(positions):
                numbers = positions[case]
                for _, start, number in sorted(zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)):
                    lines.seek(start)
                    line, where = next(located_lines(lines, path, "record", number))
                    if (record := parse_record(line, where)) is not None and self._covers(record):
                        yield record

    def _positions(self, info: RunInfo) -> dict[int, array[int]]:
        """By case: the rank within the case, the byte and the line number (from 1) of each cell, one after another."""
        path, position = self.folder / "results.jsonl", suite_order(info)
        positions: dict[int, array[int]] = {}
        with open_lines(path, "record") as lines:
            counted = zip(range(self.index.lines), located_lines(lines, path, "record"), strict=False)
            for number, (line, where) in counted:
                cell = cell_of_line(line, where)
                if cell is None or not self.index.is_last(cell, number) or not self._has_label(cell[1]):
                    continue
                case, label, sample = position(*cell)
                entry = (label * _LABEL_STEP + sample, lines.tell() - len(line), int(where.rpartition(":")[2]))
                positions.setdefault(case, array("q")).extend(entry)
        return positions

    def _has_label(self, label: str) -> bool:
        return all(not scope.models or any_glob(scope.models, label) for scope in self.scopes)

    def _covers(self, record: Record) -> bool:
        cell = (record.test_id, record.task_type, record.tags, record.model_label)
        return all(scope.covers(*cell) for scope in self.scopes)
