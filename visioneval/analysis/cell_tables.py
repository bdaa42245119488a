"""The cells of one side of a comparison: their names in memory, the cells themselves in memory or on disk."""

from __future__ import annotations

from abc import abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, overload

from visioneval.analysis.cell_reader import CellReader
from visioneval.analysis.cells import Cell
from visioneval.errors import RunFormatError
from visioneval.records.cells.cell_lines import CellColumns, find_cell_lines, taken
from visioneval.records.files.lines import LONGEST_LINE, located_lines, open_lines
from visioneval.records.model import CellKey, RunInfo, suite_places


class Cells(Sequence[Cell]):
    """Cells in order. Whoever only needs their names reads ``columns``, which parses nothing."""

    columns: CellColumns

    def __len__(self) -> int:
        return len(self.columns)

    @overload
    def __getitem__(self, at: int) -> Cell: ...
    @overload
    def __getitem__(self, at: slice) -> Cells: ...
    def __getitem__(self, at: int | slice) -> Cell | Cells:
        positions = range(len(self))[at]
        return self.take(positions) if isinstance(positions, range) else next(self.read((positions,)))

    def __iter__(self) -> Iterator[Cell]:
        return self.read(range(len(self)))

    def names(self) -> Iterator[CellKey]:
        """The case, model run and sample of each cell."""
        return self.columns.names()

    def where(self, is_selected: Callable[[CellKey], bool]) -> Cells:
        """The cells whose names are selected."""
        return self.take(array("i", (at for at, name in enumerate(self.names()) if is_selected(name))))

    def check(self) -> None:
        """Raises the ``RunFormatError`` of the first invalid record of all in the file."""

    @abstractmethod
    def read(self, positions: Iterable[int]) -> Iterator[Cell]:
        """The cells at these positions, one after another. Raises ``RunFormatError``."""

    @abstractmethod
    def take(self, positions: Sequence[int]) -> Cells:
        """The cells at these positions."""

    @abstractmethod
    def changed(self, change: Callable[[Cell], Cell]) -> Cells:
        """The cells, each of them changed."""


class ListedCells(Cells):
    """Cells in memory."""

    def __init__(self, cells: Iterable[Cell]) -> None:
        self._cells = tuple(cells)
        self.columns = CellColumns.of(cell.key for cell in self._cells)

    def read(self, positions: Iterable[int]) -> Iterator[Cell]:
        """The cells at these positions."""
        return map(self._cells.__getitem__, positions)

    def take(self, positions: Sequence[int]) -> ListedCells:
        """The cells at these positions."""
        return ListedCells(self.read(positions))

    def changed(self, change: Callable[[Cell], Cell]) -> ListedCells:
        """The cells, each of them changed."""
        return ListedCells(map(change, self._cells))


@dataclass(frozen=True, eq=False)
class StoredCells(Cells):
    """Cells that stay in a file of records, at 20 bytes each: their names, and where their lines start."""

    path: Path
    columns: CellColumns
    starts: array[int]
    reader: CellReader
    change: Callable[[Cell], Cell] | None = None

    def read(self, positions: Iterable[int]) -> Iterator[Cell]:
        """Reads the cells at these positions. Raises ``RunFormatError``, also if the file changed in the meantime."""
        read, where = self.reader.read, str(self.path)
        try:
            with open_lines(self.path, "record") as lines:
                for at, line in self._lines(lines, positions):
                    cell = read(line, where)
                    if cell is None or cell.key != self.columns.name(at):
                        break
                    yield cell if self.change is None else self.change(cell)
                else:
                    return
        except RunFormatError:
            pass  # a record is invalid, or no record begins where it did
        self.check()
        raise RunFormatError(f"{self.path}: changed while it was read: run this command again")

    def _lines(self, lines: BinaryIO, positions: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """The positions, each with the line of its cell in the open file."""
        end, starts = 0, self.starts
        for at in positions:
            start = starts[at]
            if start != end:
                lines.seek(start)
            line = lines.readline(LONGEST_LINE)
            end = start + len(line)
            yield at, line

    def take(self, positions: Sequence[int]) -> StoredCells:
        """The cells at these positions."""
        starts = taken(self.starts, positions)
        return StoredCells(self.path, self.columns.take(positions), starts, self.reader, self.change)

    def changed(self, change: Callable[[Cell], Cell]) -> StoredCells:
        """The cells, each of them changed when it is read."""
        before = self.change
        both = change if before is None else lambda cell: change(before(cell))
        return StoredCells(self.path, self.columns, self.starts, self.reader, both)

    def check(self) -> None:
        """Raises the ``RunFormatError`` of the first invalid record of all in the file."""
        check_lines(self.path)

    def in_suite_order(self, info: RunInfo) -> StoredCells:
        """The cells in the order of a run's suite."""
        return self.take(self.columns.order(*suite_places(info)))


def cells_of(cells: Iterable[Cell]) -> Cells:
    """The cells, as a table."""
    return cells if isinstance(cells, Cells) else ListedCells(cells)


def stored_cells(path: Path, reader: CellReader | None = None) -> StoredCells:
    """The cells of a file of records, in the order of their first lines. The last record of a cell counts.

    Checks the outdated records; the others are checked when they are read. Files with one ``reader`` share values, such
    as fingerprints. Raises the ``RunFormatError`` of ``read_records``.
    """
    reader = reader or CellReader()
    try:
        located = find_cell_lines(path)
        with open_lines(path, "record") as lines:
            for start in located.outdated:
                lines.seek(start)
                reader.read(lines.readline(LONGEST_LINE), str(path))
    except RunFormatError:
        check_lines(path)
        raise
    return StoredCells(path, located.columns, located.starts, reader)


def check_lines(path: Path) -> None:
    """Raises the ``RunFormatError`` of the first invalid line of a file of records."""
    reader = CellReader()
    with open_lines(path, "record") as lines:
        for line, where in located_lines(lines, path, "record"):
            reader.read(line, where)
