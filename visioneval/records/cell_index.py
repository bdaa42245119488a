"""Finds the last line of each cell in a file of records, in memory that hardly grows with the samples of a case."""

from __future__ import annotations

import re
from collections import Counter

_Cell = tuple[str, str, int]
"""The case, the model label and the sample index, like ``CellKey``."""
_SAMPLES = 64
"""Samples that share one number in memory, with a bit for each."""
_START = re.compile(
    rb'\{"schema_version":\d+,"run_id":"[^"\\]*","test_id":"([^"\\]*)","model_label":"([^"\\]*)","sample_index":(\d{1,7}),'
)


_ONCE = (b'test_id"', b'model_label"', b'sample_index"')
"""Keys that must not come again: of two equal keys of an object, the last one counts."""


def written_cell(line: bytes) -> _Cell | None:
    """The cell of a line that ``RunWriter`` wrote, without parsing the line; ``None`` for any other form of line."""
    match = _START.match(line)
    if match is None or not line.endswith(b"\n") or (b"\\" in line and b"\\u" in line):  # an escape may hide a key
        return None
    start = match.end()
    if line.rfind(_ONCE[0]) > start or line.rfind(_ONCE[1]) > start or line.rfind(_ONCE[2]) > start:  # faster than find
        return None
    try:
        return match[1].decode(), match[2].decode(), int(match[3])
    except UnicodeDecodeError:
        return None


class CellIndex:
    """The cells of a file of records: how many there are, and which of its lines are outdated."""

    def __init__(self) -> None:
        """Starts without lines."""
        self.lines = 0
        self.cells: Counter[str] = Counter()
        """The number of cells by model label."""
        self._seen: dict[_Cell, int] = {}
        self._names: dict[str, str] = {}
        self._last: dict[_Cell, int] = {}
        """The last line of each cell with several lines."""

    def add(self, cell: _Cell) -> None:
        """Counts the next line, which is about ``cell``."""
        case, label = (self._names.setdefault(name, name) for name in cell[:2])
        block, bit = (case, label, cell[2] // _SAMPLES), 1 << cell[2] % _SAMPLES
        seen = self._seen.get(block, 0)
        if seen & bit:
            self._last[cell] = self.lines
        else:
            self._seen[block] = seen | bit
            self.cells[label] += 1
        self.lines += 1

    def is_last(self, cell: _Cell, number: int) -> bool:
        """Whether no later line is about the cell of the line with this number, counted from 0."""
        return self._last.get(cell, number) == number
