"""Scores, amounts and alignments of pairs, added pair by pair. Pure."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import isnan, nan
from typing import overload

from visioneval.analysis.cells import Cell, PooledCell
from visioneval.analysis.compare.differences import Difference, scores_difference
from visioneval.analysis.compare.paired_scores import PairedScores
from visioneval.analysis.compare.pairing import CellPair, Pairs
from visioneval.analysis.compare.tallies.runs import RunScores
from visioneval.analysis.scores import ExactSum
from visioneval.records.cell_names import positions_of
from visioneval.suite.counter_examples import is_metric_of, match_keys
from visioneval.types import Metric, Verdict

_ABSENT = object()


@dataclass(frozen=True, slots=True)
class MetricCoverage:
    """The pairs in which B has an output, and by metric, in how many of their cells of A and of B it is measured.

    ``left_out`` are by metric the pairs of its difference that lack the score on a side, without those with an error on
    both sides and those of flaky cases. ``other_tags`` are by metric the cases whose tags differ where it reads them.
    """

    pairs_with_output: int
    measured: Mapping[str, tuple[int, int]]
    left_out: Mapping[str, int] = field(default_factory=dict)
    other_tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class _MetricScores:
    """The scores of one metric, and in how many cells of each side it is measured."""

    name: str
    tags: frozenset[str]
    scores: PairedScores
    measured_a: int = 0
    measured_b: int = 0
    runs_of_a: RunScores = field(default_factory=RunScores)
    left_out: int = 0
    other_tags: dict[str, None] = field(default_factory=dict)


class MetricTally:
    """Adds the scores of metrics, and counts in how many pairs they are measured."""

    def __init__(self, tags: Mapping[str, frozenset[str]], counter_examples: Collection[str] = ()) -> None:
        """No scores of these metrics, each with the tags that it reads."""
        self._metrics = [_MetricScores(name, read, PairedScores()) for name, read in tags.items()]
        self._counter_examples = counter_examples
        self._pairs_with_output = 0

    def add(self, case: int, pair: CellPair) -> None:
        """Adds the scores of a pair. Differences leave out flaky cases, and how well ``counter_examples`` match.

        They also leave out a metric that reads a tag which the case has on one side only: it has two meanings there.
        """
        is_counter = pair.b.test_id in self._counter_examples
        left_out = match_keys((*pair.a.graders, *pair.b.graders)) if is_counter else ()
        a, b, is_stable = pair.a.scores, pair.b.scores, not pair.flaky
        # Without an output, nothing can be measured: such a cell counts as an error.
        has_output = pair.b.error is None or pair.b.error.stage != "generate"
        self._pairs_with_output += has_output
        is_error_in_both = pair.a.verdict is Verdict.ERROR and pair.b.verdict is Verdict.ERROR
        changed_tags = set() if pair.a.tags == pair.b.tags else {*pair.a.tags} ^ {*pair.b.tags}
        for metric in self._metrics:
            before, after = a.get(metric.name, _ABSENT), b.get(metric.name, _ABSENT)
            if has_output:
                metric.measured_a += before is not None and before is not _ABSENT
                metric.measured_b += after is not None and after is not _ABSENT
            if changed_tags and not metric.tags.isdisjoint(changed_tags) and _ABSENT not in (before, after):
                metric.other_tags[pair.b.test_id] = None
                metric.left_out += is_stable and not is_error_in_both
                continue
            if left_out and is_metric_of(metric.name, left_out):
                continue
            if is_stable and not is_error_in_both and _is_left_out(before, pair.a) + _is_left_out(after, pair.b):
                metric.left_out += before is not _ABSENT or after is not _ABSENT
            if is_stable and before is not _ABSENT and after is not _ABSENT:
                metric.scores.add(case, before, after)  # type: ignore[arg-type]
                if isinstance(pair.a, PooledCell):
                    metric.runs_of_a.add(case, pair.a, metric.name)
                self._compared(metric.name, pair)

    def _compared(self, name: str, pair: CellPair) -> None:
        """Is called for each pair that both have a metric, or ``null`` for it."""

    def differences(self, metrics: Mapping[str, Metric]) -> list[Difference]:
        """The differences of the metrics that a pair has on both sides, also if it is compared in none."""
        return [
            difference
            for item in self._metrics
            for difference in [scores_difference(item.name, metrics[item.name], item.scores, item.runs_of_a.noise())]
            if difference.n_pairs or difference.unmeasured or item.other_tags
        ]

    def coverage(self) -> MetricCoverage:
        """In how many cells the metrics are measured."""
        measured = {item.name: (item.measured_a, item.measured_b) for item in self._metrics}
        left_out = {item.name: item.left_out for item in self._metrics}
        other_tags = {item.name: tuple(item.other_tags) for item in self._metrics if item.other_tags}
        return MetricCoverage(self._pairs_with_output, measured, left_out, other_tags)


def _is_left_out(score: object, cell: Cell) -> bool:
    """Whether a score is null, or missing because the cell ended before it was graded. Else it does not apply."""
    return score is None or (score is _ABSENT and cell.error is not None and cell.error.stage == "generate")


@dataclass(frozen=True, slots=True)
class Amount:
    """A sum in USD or a mean in seconds, over the pairs in which both sides have a value."""

    a: float | None
    b: float | None
    pairs: int


class AmountTally:
    """Adds an amount of both sides where both have it."""

    def __init__(self) -> None:
        """No amounts."""
        self._a, self._b = ExactSum(), ExactSum()

    def add(self, a: float | None, b: float | None) -> None:
        """Adds the amounts of a pair."""
        if a is not None and b is not None:
            self._a.add(a)
            self._b.add(b)

    def result(self, *, mean: bool) -> Amount:
        """The sums, or the means."""
        pairs = self._a.count
        if not pairs:
            return Amount(None, None, 0)
        share = pairs if mean else 1
        return Amount(self._a.value / share, self._b.value / share, pairs)


@dataclass(frozen=True, slots=True)
class AlignmentPair:
    """The alignment of both sides of a pair by one grader: the scores, 0 to 100, and the gaps as text."""

    pair: CellPair
    grader: str
    a: float | None
    b: float | None
    a_gaps: str
    b_gaps: str


class AlignmentScores:
    """The scores of one alignment grader in the pairs that have them on both sides, at 20 bytes each."""

    __slots__ = ("a", "b", "positions")

    def __init__(self) -> None:
        """No scores."""
        self.positions, self.a, self.b = array("i"), array("d"), array("d")

    def add(self, at: int, grader: str, pair: CellPair) -> None:
        """Adds the scores of the pair at a position, if it has both."""
        if grader in pair.a.scores and grader in pair.b.scores:
            self.positions.append(at)
            for column, score in ((self.a, pair.a.scores[grader]), (self.b, pair.b.scores[grader])):
                column.append(nan if score is None else score)


class AlignmentPairs(Sequence[AlignmentPair]):
    """The alignment of every pair that an alignment grader graded on both sides, the largest losses first.

    Pairs are read when they are needed.
    """

    def __init__(self, pairs: Pairs, by_grader: Mapping[str, AlignmentScores]) -> None:
        """Sorts the scores."""
        import numpy as np

        self._pairs, self._scores = pairs, sorted(by_grader.items())
        self._ends = list(accumulate(len(scores.positions) for _, scores in self._scores))
        changes = [np.nan_to_num(scores.b) - np.nan_to_num(scores.a) for _, scores in self._scores]
        self._order = positions_of(np.argsort(np.concatenate([[], *changes]), kind="stable"))

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, at: int) -> AlignmentPair: ...
    @overload
    def __getitem__(self, at: slice) -> list[AlignmentPair]: ...
    def __getitem__(self, at: int | slice) -> AlignmentPair | list[AlignmentPair]:
        return list(self._read(self._order[at])) if isinstance(at, slice) else next(self._read([self._order[at]]))

    def __iter__(self) -> Iterator[AlignmentPair]:
        return self._read(self._order)

    def _read(self, rows: Sequence[int]) -> Iterator[AlignmentPair]:
        positions = array("i", (scores.positions[at] for _, scores, at in map(self._row, rows)))
        for row, pair in zip(rows, self._pairs.take(positions), strict=True):
            key, scores, at = self._row(row)
            a, b = (None if isnan(score) else score for score in (scores.a[at], scores.b[at]))
            yield AlignmentPair(pair, key, a, b, pair.a.reasons.get(key, ""), pair.b.reasons.get(key, ""))

    def _row(self, row: int) -> tuple[str, AlignmentScores, int]:
        """The grader, its scores, and the position among them."""
        number = bisect_right(self._ends, row)
        return *self._scores[number], row - (self._ends[number - 1] if number else 0)
