"""The names of many cells in columns of numbers: 12 bytes for each cell, whatever its case and label are called."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from visioneval.records.fields import MOST_SAMPLES
from visioneval.records.model import CellKey

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class CellColumns:
    """The names of cells, at 12 bytes each: numbers of the names of their cases and model runs, and their samples."""

    cases: Sequence[str]
    labels: Sequence[str]
    case: array[int]
    label: array[int]
    sample: array[int]

    @classmethod
    def of(cls, names: Iterable[CellKey]) -> Self:
        """The columns of cells with these names."""
        cases: dict[str, int] = {}
        labels: dict[str, int] = {}
        case, label, sample = array("i"), array("i"), array("i")
        for test_id, model_label, sample_index in names:
            case.append(cases.setdefault(test_id, len(cases)))
            label.append(labels.setdefault(model_label, len(labels)))
            sample.append(sample_index)
        return cls(list(cases), list(labels), case, label, sample)

    def __len__(self) -> int:
        return len(self.case)

    def name(self, at: int) -> CellKey:
        """The names of one cell."""
        return self.cases[self.case[at]], self.labels[self.label[at]], self.sample[at]

    def names(self) -> Iterator[CellKey]:
        """The names of all cells, in order."""
        cases, labels = self.cases, self.labels
        for case, label, sample in zip(self.case, self.label, self.sample, strict=True):
            yield cases[case], labels[label], sample

    def take(self, positions: Sequence[int]) -> CellColumns:
        """The columns of some of the cells."""
        case, label, sample = (taken(column, positions) for column in (self.case, self.label, self.sample))
        return CellColumns(self.cases, self.labels, case, label, sample)

    @property
    def used_cases(self) -> tuple[str, ...]:
        """The names of the cases of these cells, in order."""
        return tuple(self.cases[number] for number in dict.fromkeys(self.case))

    @property
    def used_labels(self) -> tuple[str, ...]:
        """The labels of the model runs of these cells, in order."""
        return tuple(self.labels[number] for number in dict.fromkeys(self.label))

    def order(self, cases: Sequence[int], labels: Sequence[int]) -> list[int]:
        """The positions sorted by case, model run and sample, given a rank for each case and label.

        Equal cells stay in their order. Each position is sorted as one number: tuples need three times the memory.
        """
        count, runs = len(self), max(labels, default=0) + 1
        ranks = (
            ((cases[case] * runs + labels[label]) * (MOST_SAMPLES + 1) + sample) * count + at
            for at, (case, label, sample) in enumerate(zip(self.case, self.label, self.sample, strict=True))
        )
        return [rank % count for rank in sorted(ranks)]


def matching_positions(a: CellColumns, b: CellColumns, labels: Mapping[str, str]) -> tuple[array[int], array[int]]:
    """The positions of the cells that both have: those in ``a``, and in order those in ``b``.

    ``labels`` are the model runs of ``a`` that ``b`` has, with their labels there.
    """
    import numpy as np

    case_numbers = {name: number for number, name in enumerate(b.cases)}
    label_numbers = {name: number for number, name in enumerate(b.labels)}
    case = np.array([case_numbers.get(name, -1) for name in a.cases], np.intc)[view_of(a.case)]
    label = np.array([label_numbers.get(labels.get(name, ""), -1) for name in a.labels], np.intc)[view_of(a.label)]
    label[np.array([name not in labels for name in a.labels], bool)[view_of(a.label)]] = -1
    if all(map(np.array_equal, (case, label, a.sample), (b.case, b.label, b.sample))):  # two complete runs of a suite
        return array("i", range(len(a))), array("i", range(len(b)))
    known = np.flatnonzero((case >= 0) & (label >= 0))
    both = [
        np.concatenate((view_of(of_b), of_a[known]))
        for of_b, of_a in ((b.sample, view_of(a.sample)), (b.label, label), (b.case, case))
    ]
    order = np.lexsort(both)  # stable: a cell of b comes before that of a
    is_pair = np.ones(max(0, len(order) - 1), bool)
    for column in both:
        is_pair &= column[order[1:]] == column[order[:-1]]
    in_b, in_a = order[:-1][is_pair], known[order[1:][is_pair] - len(b)]
    in_order = np.argsort(in_b)
    return positions_of(in_a[in_order]), positions_of(in_b[in_order])


def without(positions: Sequence[int], total: int) -> array[int]:
    """The positions below ``total`` that are not among these."""
    import numpy as np

    is_left = np.ones(total, bool)
    is_left[np.asarray(positions, np.intc)] = False
    return positions_of(np.flatnonzero(is_left))


def view_of(column: array[int]) -> np.ndarray[Any, np.dtype[Any]]:
    """The numbers of a column, in the same memory."""
    import numpy as np

    return np.frombuffer(column, np.intc if column.typecode == "i" else np.int64)


def positions_of(values: np.ndarray[Any, np.dtype[Any]]) -> array[int]:
    """Positions at four bytes each."""
    import numpy as np

    return array("i", values.astype(np.intc).tobytes())


def taken(column: array[int], positions: Iterable[int]) -> array[int]:
    """The values at these positions."""
    return array(column.typecode, map(column.__getitem__, positions))
