"""Scores of pairs as numbers: the difference of each metric, in how many pairs it is measured, and alignments. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum, isnan
from typing import TYPE_CHECKING, overload

from visioneval.analysis.compare.differences import Difference, scores_difference
from visioneval.analysis.compare.pairing import Pairs
from visioneval.analysis.compare.table import ABSENT, ERROR, PairTable, scores_of
from visioneval.analysis.stats.variance import NO_NOISE, RunNoise, shared_variance
from visioneval.records.cell_names import positions_of
from visioneval.suite.counter_examples import is_metric_of
from visioneval.types import Metric

if TYPE_CHECKING:
    from visioneval.analysis.compare.pairing import CellPair
    from visioneval.analysis.compare.table import Flags, Numbers, Rows


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


@dataclass(frozen=True, slots=True)
class MetricPairs:
    """A metric in each pair: scores of both sides and of each run of A (by run), nan for null, else ``ABSENT``.

    ``compared`` are the pairs of its difference: both have it, or ``null`` for it. Flaky cases are not compared, nor is
    how well counter-examples match their prompts. ``other_tags`` are pairs that have both, and one of the tags that the
    metric reads on one side only: it has two meanings there. ``left_out`` are those that lack a score.
    """

    a: Numbers
    b: Numbers
    of_runs: Numbers
    compared: Flags
    other_tags: Flags
    left_out: Flags

    @property
    def measured(self) -> Flags:
        """Those of the compared pairs that have a score on both sides."""
        import numpy as np

        return self.compared & ~(np.isnan(self.a) | np.isnan(self.b))


def metric_pairs(table: PairTable, name: str, tags: frozenset[str]) -> MetricPairs:
    """A metric that reads these tags."""
    import numpy as np

    rows, at = table.rows, table.metrics.index(name)
    a, b = table.scores_a[at], table.scores_b[at]
    has_a, has_b, is_stable = a != ABSENT, b != ABSENT, ~rows["flaky"]
    is_changed = np.array([not tags.isdisjoint({*of_a} ^ {*of_b}) for of_a, of_b in table.tags])[rows["tags"]]
    is_counted = ~np.array([is_metric_of(name, keys) for keys in table.match_keys])[rows["match_keys"]]
    other_tags = has_a & has_b & is_changed
    # null, or missing because the cell ended before it was graded: else the metric does not apply
    lacks_a, lacks_b = np.isnan(a) | (~has_a & rows["no_output_a"]), np.isnan(b) | (~has_b & rows["no_output_b"])
    is_lost = (has_a | has_b) & (lacks_a | lacks_b) & is_counted
    is_error_in_both = (rows["verdict_a"] == ERROR) & (rows["verdict_b"] == ERROR)
    return MetricPairs(
        a,
        b,
        table.run_scores[:, at],
        compared=has_a & has_b & is_stable & is_counted & ~other_tags,
        other_tags=other_tags,
        left_out=(other_tags | is_lost) & is_stable & ~is_error_in_both,
    )


def metric_differences(
    table: PairTable, pairs: Pairs, metrics: Mapping[str, Metric], tags: Mapping[str, frozenset[str]]
) -> tuple[list[Difference], MetricCoverage]:
    """The differences of the metrics that a pair has on both sides, also if it is compared in none.

    ``tags`` are those that each metric reads. Without an output, nothing can be measured: such a cell counts as an
    error, not as one that lacks metrics.
    """
    import numpy as np

    case, has_output, differences = table.rows["case"], ~table.rows["no_output_b"], []
    measured, left_out, other_tags = dict[str, tuple[int, int]](), dict[str, int](), dict[str, tuple[str, ...]]()
    for name in table.metrics:
        of = metric_pairs(table, name, tags[name])
        measured[name] = int((has_output & np.isfinite(of.a)).sum()), int((has_output & np.isfinite(of.b)).sum())
        left_out[name] = int(of.left_out.sum())
        if of.other_tags.any():
            other_tags[name] = pairs.where(of.other_tags).columns.used_cases
        scores = case[of.compared], of.a[of.compared], of.b[of.compared]
        noise = _noise_of_runs(case[of.compared], of.of_runs[:, of.compared])
        difference = scores_difference(name, metrics[name], scores, noise)
        if difference.n_pairs or difference.unmeasured or name in other_tags:
            differences.append(difference)
    return differences, MetricCoverage(int(has_output.sum()), measured, left_out, other_tags)


def _noise_of_runs(case: Numbers, scores: Numbers) -> RunNoise:
    """What the scores of the runs of A have in common, over the cases that all of them measured."""
    import numpy as np

    if len(scores) == 1 or not len(case):
        return NO_NOISE
    _, case = np.unique(case, return_inverse=True)
    numbers = np.stack([np.bincount(case, np.isfinite(of_run)) for of_run in scores])
    totals = np.stack([np.bincount(case, np.where(np.isfinite(of_run), of_run, 0.0)) for of_run in scores])
    is_known = numbers.all(axis=0)
    means = (totals[:, is_known] / numbers[:, is_known]).T.tolist()
    return RunNoise(len(scores), shared_variance(means)) if len(means) > 1 else NO_NOISE


@dataclass(frozen=True, slots=True)
class Amount:
    """A sum in USD or a mean in seconds, over the pairs in which both sides have a value."""

    a: float | None
    b: float | None
    pairs: int


def amount(amounts: Numbers, *, is_mean: bool) -> Amount:
    """The sums, or the means, of the amounts of both sides. Sums are exact."""
    import numpy as np

    a, b = amounts[:, ~np.isnan(amounts).any(axis=0)].tolist()
    share = len(a) if is_mean else 1
    return Amount(fsum(a) / share, fsum(b) / share, len(a)) if a else Amount(None, None, 0)


@dataclass(frozen=True, slots=True)
class AlignmentPair:
    """The alignment of both sides of a pair by one grader: the scores, 0 to 100, and the gaps as text."""

    pair: CellPair
    grader: str
    a: float | None
    b: float | None
    a_gaps: str
    b_gaps: str


class AlignmentPairs(Sequence[AlignmentPair]):
    """The alignment of every pair that an alignment grader graded on both sides, the largest losses first.

    Pairs are read when they are needed.
    """

    def __init__(self, table: PairTable, pairs: Pairs, graders: Sequence[str]) -> None:
        """Sorts the scores of these graders."""
        import numpy as np

        columns = np.dtype([("grader", "i4"), ("position", "i4"), ("a", "f8"), ("b", "f8")])
        scores = [np.empty(0, columns)]
        for number, key in enumerate(graders):
            a, b = _scores_of(table, pairs, key)
            positions = np.flatnonzero((a != ABSENT) & (b != ABSENT))
            rows = np.empty(len(positions), columns)
            rows["grader"], rows["position"], rows["a"], rows["b"] = number, positions, a[positions], b[positions]
            scores.append(rows)
        every = np.concatenate(scores)
        changes = np.nan_to_num(every["b"]) - np.nan_to_num(every["a"])
        self._pairs, self._graders = pairs, graders
        self._rows: Rows = every[np.argsort(changes, kind="stable")]

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, at: int) -> AlignmentPair: ...
    @overload
    def __getitem__(self, at: slice) -> list[AlignmentPair]: ...
    def __getitem__(self, at: int | slice) -> AlignmentPair | list[AlignmentPair]:
        return list(self._read(self._rows[at])) if isinstance(at, slice) else next(self._read(self._rows[[at]]))

    def __iter__(self) -> Iterator[AlignmentPair]:
        return self._read(self._rows)

    def _read(self, rows: Rows) -> Iterator[AlignmentPair]:
        pairs = self._pairs.take(positions_of(rows["position"]))
        columns = (rows[name].tolist() for name in ("grader", "a", "b"))
        for pair, number, a, b in zip(pairs, *columns, strict=True):
            key = self._graders[number]
            gaps_a, gaps_b = (cell.reasons.get(key, "") for cell in (pair.a, pair.b))
            yield AlignmentPair(pair, key, None if isnan(a) else a, None if isnan(b) else b, gaps_a, gaps_b)


def _scores_of(table: PairTable, pairs: Pairs, metric: str) -> tuple[Numbers, Numbers]:
    """The scores of both sides. Those that the table leaves out, as they are not compared, are read again."""
    import numpy as np

    if metric in table.metrics:
        at = table.metrics.index(metric)
        return table.scores_a[at], table.scores_b[at]
    a, b = np.array([scores_of(pair.a, (metric,)) + scores_of(pair.b, (metric,)) for pair in pairs]).T
    return a, b
