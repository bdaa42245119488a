"""What a comparison remembers of cells and pairs: three bytes for each pair. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from visioneval.analysis.cells import Cell
from visioneval.analysis.compare.pairing import CHANGES, CellPair, Change, Pairs
from visioneval.analysis.left_out import LeftOut
from visioneval.records.cell_names import CellColumns, positions_of
from visioneval.records.model import CellKey
from visioneval.types import MUST_PASS, Verdict

if TYPE_CHECKING:
    import numpy as np

    Flags = np.ndarray[Any, np.dtype[np.bool_]]

_VERDICTS = tuple(Verdict)
_CODES = {verdict: code for code, verdict in enumerate(_VERDICTS)}
_VERDICT, _FLAKY, _MUST_PASS = 3, 4, 8
_CHANGE_CODES = {change: code for code, change in enumerate(CHANGES)}
_CHANGE, _SAME_OUTPUT, _MOVED, _FROM_PASS, _NEW_ERROR, _SAME_BROKE = 7, 8, 16, 32, 64, 128


@dataclass(slots=True)
class MarkedCase:
    """The cells of a case on one model run: their number by verdict, and whether any is flaky or ``must_pass``."""

    verdicts: Counter[str] = field(default_factory=Counter)
    must_pass: bool = False
    flaky: bool = False


class CellMarks:
    """The verdicts of cells, and whether their cases are flaky or tagged ``must_pass``, in a byte for each cell."""

    def __init__(self) -> None:
        """No cells."""
        self._marks = bytearray()

    def add(self, cell: Cell) -> None:
        """Adds the next cell."""
        mark = _CODES[cell.verdict]
        if cell.flaky:
            mark |= _FLAKY
        if MUST_PASS in cell.tags:
            mark |= _MUST_PASS
        self._marks.append(mark)

    def flaky(self) -> Flags:
        """For each cell, whether its case is flaky."""
        return _flags(self._marks, _FLAKY)

    def errors(self) -> Flags:
        """For each cell, whether it is an error."""
        import numpy as np

        errors: Flags = np.frombuffer(bytes(self._marks), np.uint8) & np.uint8(_VERDICT) == _CODES[Verdict.ERROR]
        return errors

    def must_pass(self) -> Flags:
        """For each cell, whether its case is tagged ``must_pass``."""
        return _flags(self._marks, _MUST_PASS)

    def cases_tagged(self, columns: CellColumns) -> set[str]:
        """The cases with a cell that is tagged ``must_pass``, given the names of the cells."""
        import numpy as np

        return {columns.cases[columns.case[at]] for at in np.flatnonzero(self.must_pass())}

    def of_cases(self, columns: CellColumns, cases: Set[str]) -> Iterator[tuple[CellKey, int]]:
        """The cells of some cases, each with its mark, given the names of the cells."""
        return ((name, mark) for name, mark in zip(columns.names(), self._marks, strict=True) if name[0] in cases)


def add_mark(mark: int, case: MarkedCase) -> None:
    """Counts a cell by its mark."""
    case.verdicts[_VERDICTS[mark & _VERDICT].value] += 1
    case.must_pass |= bool(mark & _MUST_PASS)
    case.flaky |= bool(mark & _FLAKY)


class BreakCounts(NamedTuple):
    """Of some pairs: their number, those that broke, and those that passed in A and have an error in B."""

    pairs: int
    broken: int
    unmeasured: int


class PairMarks:
    """How the verdicts of pairs changed, and what else tells pairs apart."""

    def __init__(self) -> None:
        """No pairs."""
        self.a, self.b = CellMarks(), CellMarks()
        self._marks = bytearray()

    def add(self, pair: CellPair) -> None:
        """Adds the next pair."""
        self.a.add(pair.a)
        self.b.add(pair.b)
        mark = _CHANGE_CODES[pair.change]
        before = pair.same_output_in_a
        if before is not None:
            mark |= _SAME_OUTPUT
            if before.verdict is Verdict.PASS and pair.b.verdict is Verdict.FAIL:
                mark |= _SAME_BROKE
            if pair.is_moved_by_rules:
                mark |= _MOVED
        if pair.a.verdict is Verdict.PASS:
            mark |= _FROM_PASS
        if _is_incomplete(pair.b) and not _is_incomplete(pair.a):
            mark |= _NEW_ERROR
        self._marks.append(mark)

    def counts(self) -> dict[Change, int]:
        """The number of pairs by change."""
        import numpy as np

        counts = np.bincount(self._changes(), minlength=len(CHANGES)).tolist()
        return dict(zip(CHANGES, counts, strict=True))

    def changed(self, change: Change, pairs: Pairs) -> Pairs:
        """The pairs with this change, ``must_pass`` cases first and flaky cases last."""
        import numpy as np

        positions = np.flatnonzero(self._changes() == _CHANGE_CODES[change])
        must_pass = self.a.must_pass() | self.b.must_pass()
        order = np.lexsort((~must_pass[positions], self._flaky()[positions]))
        return pairs.take(positions_of(positions[order]))

    def differing(self, pairs: Pairs) -> Pairs:
        """The pairs that do not pass on both sides."""
        import numpy as np

        return pairs.take(positions_of(np.flatnonzero(self._changes() != _CHANGE_CODES["still_passing"])))

    def moved_by_rules(self, pairs: Pairs) -> Pairs:
        """The pairs whose verdict differs although output and scores are identical."""
        import numpy as np

        return pairs.take(positions_of(np.flatnonzero(_flags(self._marks, _MOVED))))

    def new_errors(self, pairs: Pairs) -> Pairs:
        """The pairs that were measured in A, and not in B."""
        import numpy as np

        return pairs.take(positions_of(np.flatnonzero(_flags(self._marks, _NEW_ERROR))))

    def stable(self, pairs: Pairs) -> Pairs:
        """The pairs whose case is not flaky."""
        import numpy as np

        return pairs.take(positions_of(np.flatnonzero(~self._flaky())))

    def without_errors(self, pairs: Pairs) -> Pairs:
        """The pairs that are an error on neither side, and whose case is not flaky."""
        import numpy as np

        return pairs.take(positions_of(np.flatnonzero(~(self._flaky() | self.a.errors() | self.b.errors()))))

    def breaks(self, *, same_output: bool) -> BreakCounts:
        """What became of the pairs whose case is not flaky, or of those of them with the same output."""
        counted = ~self._flaky()
        changes, from_pass = self._changes(), _flags(self._marks, _FROM_PASS)
        if same_output:
            counted &= _flags(self._marks, _SAME_OUTPUT)
            broken = counted & _flags(self._marks, _SAME_BROKE)
        else:
            broken = counted & (changes == _CHANGE_CODES["broken"])
        unmeasured = counted & from_pass & (changes == _CHANGE_CODES["error_after"])
        return BreakCounts(int(counted.sum()), int(broken.sum()), int(unmeasured.sum()))

    def measured_in_b_only(self, *, same_output: bool) -> LeftOut:
        """The pairs without a verdict in A, of those with a verdict in B whose case is not flaky."""
        import numpy as np

        counted = ~self._flaky()
        if same_output:
            counted &= _flags(self._marks, _SAME_OUTPUT)
        changes = self._changes()
        in_b = counted & ~np.isin(changes, [_CHANGE_CODES["error_after"], _CHANGE_CODES["still_error"]])
        return LeftOut(int((in_b & (changes == _CHANGE_CODES["error_before"])).sum()), int(in_b.sum()))

    def _changes(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        import numpy as np

        return np.frombuffer(bytes(self._marks), np.uint8) & np.uint8(_CHANGE)

    def _flaky(self) -> Flags:
        return self.a.flaky()


def _is_incomplete(cell: Cell) -> bool:
    return cell.verdict is Verdict.ERROR or cell.is_unmeasured


def _flags(marks: bytearray, bit: int) -> Flags:
    import numpy as np

    flags: Flags = np.frombuffer(bytes(marks), np.uint8) & np.uint8(bit) != 0
    return flags
