"""The names of many cells in columns of numbers: 12 bytes for each cell, whatever its case and label are called."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from visioneval.records.fields import MOST_SAMPLES
from visioneval.records.model import CellKey


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


def taken(column: array[int], positions: Iterable[int]) -> array[int]:
    """The values at these positions."""
    return array(column.typecode, map(column.__getitem__, positions))
