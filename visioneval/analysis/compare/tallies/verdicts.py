"""Verdicts and failure tags of pairs, counted by case: pass rates of all pairs, by model run and by tag. Pure."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from math import fsum
from typing import TYPE_CHECKING, Any, NamedTuple

from visioneval.analysis.compare.differences import (
    CASE_ALPHA,
    PASS_RATE,
    PASSED,
    Difference,
    PairCounts,
    cases_difference,
    passed,
)
from visioneval.analysis.compare.paired_scores import PairedSums
from visioneval.analysis.compare.pairing import CellPair
from visioneval.analysis.compare.tallies.runs import RunPasses
from visioneval.analysis.stats.between_runs import RunNoise
from visioneval.analysis.stats.within_cases import Counts, adjusted_case_ps
from visioneval.records.cell_names import NameNumbers, view_of
from visioneval.suite.turns import chain_of
from visioneval.types import Metric

if TYPE_CHECKING:
    import numpy as np

    Rows = np.ndarray[Any, np.dtype[np.int64]]

_Group = tuple[int, str, tuple[str, ...], tuple[str, ...]]
"""The case, the model run, and the tags of A and B."""
_COLUMNS = 10
_CASE, _RUN, _TAGS, _PAIRS, _BEFORE, _AFTER, _HIGHER, _LOWER, _SAMPLES, _UNMEASURED = range(_COLUMNS)
"""``_BEFORE`` counts the passes of A, and ``_SAMPLES`` its samples, in all of its runs."""


class CasePasses(NamedTuple):
    """The passes of a case on a model run. ``p`` is one-sided, for B being worse, and adjusted for all cases."""

    test_id: str
    model_label: str
    counts: Counts
    p: float


class VerdictTally:
    """Counts the verdicts of the pairs that can fail a gate, in a row for each case and model run."""

    def __init__(self) -> None:
        """No pairs."""
        self._runs_of_a = RunPasses()
        self._runs = NameNumbers()
        self._names: dict[int, str] = {}
        self._tags: dict[tuple[tuple[str, ...], tuple[str, ...]], int] = {}
        self._tags_of_pairs: list[tuple[str, ...]] = []
        self._group: _Group | None = None
        self._counts = [0] * _COLUMNS
        self._rows = array("i")
        self._failure_tags = FailureTagTally()

    def add(self, case: int, pair: CellPair) -> None:
        """Counts a pair. ``case`` is the number of its case."""
        a, b = pair.a, pair.b
        if self._group != (case, b.model_label, a.tags, b.tags):
            self._begin(case, pair)
        counts = self._counts
        before, after = passed(a.verdict), passed(b.verdict)
        self._runs_of_a.add(case, a)
        is_measured = before is not None and after is not None
        if before is None or after is None:
            counts[_UNMEASURED] += 1
        else:
            a_passed, a_samples = a.passes
            counts[_PAIRS] += 1
            counts[_BEFORE] += a_passed
            counts[_SAMPLES] += a_samples
            counts[_AFTER] += after
            counts[_HIGHER] += after > before
            counts[_LOWER] += after < before
        if a.failure_tags or b.failure_tags:
            self._failure_tags.add(case, pair, is_measured=is_measured)

    def _begin(self, case: int, pair: CellPair) -> None:
        if self._group is not None:
            self._rows.extend(self._counts)
        self._names.setdefault(case, chain_of(pair.b.test_id))
        tags = pair.a.tags, pair.b.tags
        self._group = (case, pair.b.model_label, *tags)
        if tags not in self._tags:
            self._tags[tags] = len(self._tags)
            self._tags_of_pairs.append(pair.tags)
        self._counts = [case, self._runs[pair.b.model_label], self._tags[tags], *[0] * (_COLUMNS - _PAIRS)]

    @property
    def noise(self) -> RunNoise:
        """What the runs of A have in common."""
        return self._runs_of_a.noise()

    def pass_rate(self) -> Difference:
        """The difference of the pass rate."""
        return _difference(PASS_RATE, self._all_rows(), self.noise)

    def by_run(self) -> tuple[Difference, ...]:
        """The differences of the pass rates of model runs."""
        rows = self._all_rows()
        return tuple(_difference(label, rows[rows[:, _RUN] == run], self.noise) for label, run in self._runs.items())

    def cases(self) -> tuple[CasePasses, ...]:
        """The passes of each case on each model run, by the label in B. The turns of a case are one case."""
        labels = {run: label for label, run in self._runs.items()}
        strata = _strata(self._all_rows())
        p_values = adjusted_case_ps([counts for _, _, counts in strata], CASE_ALPHA, self.noise)
        return tuple(
            CasePasses(self._names[case], labels[run], counts, p)
            for (case, run, counts), p in zip(strata, p_values, strict=True)
        )

    def by_tag(self) -> tuple[Difference, ...]:
        """The differences of the pass rates of tags."""
        import numpy as np

        rows = self._all_rows()
        tags = dict.fromkeys(tag for tags in self._tags_of_pairs for tag in tags)
        return tuple(
            _difference(
                tag,
                rows[np.array([tag in tags for tags in self._tags_of_pairs])[rows[:, _TAGS]]],
                self.noise,
            )
            for tag in tags
        )

    def by_failure_tag(self) -> tuple[Difference, ...]:
        """The differences of the shares of cells with a failure tag, most frequent tags first."""
        rows = self._all_rows()
        sums = _sums_by_case(rows)
        pairs = dict(zip(sums[:, _CASE].tolist(), sums[:, _PAIRS].tolist(), strict=True))
        return tuple(self._failure_tags.differences(pairs, int(rows[:, _UNMEASURED].sum())))

    def _all_rows(self) -> Rows:
        if self._group is not None:
            self._rows.extend(self._counts)
            self._group = None
        return view_of(self._rows).reshape(-1, _COLUMNS)


def _difference(name: str, rows: Rows, noise: RunNoise) -> Difference:
    strata = _strata(rows)
    cases: dict[int, list[Counts]] = {}
    for case, _, counts in strata:
        cases.setdefault(case, []).append(counts)
    before = [fsum(item.b * item.a_passed / item.a for item in items) for items in cases.values()]
    after = [sum(item.b_passed for item in items) for items in cases.values()]
    sums = PairedSums(
        [sum(item.b for item in items) for items in cases.values()],
        before,
        [passes - expected for passes, expected in zip(after, before, strict=True)],
    )
    numbers = PairCounts(*(int(rows[:, column].sum()) for column in (_HIGHER, _LOWER, _UNMEASURED)))
    return cases_difference(name, PASSED, sums, numbers, [item for _, _, item in strata], noise)


def _strata(rows: Rows) -> list[tuple[int, int, Counts]]:
    """For each case and model run with measured pairs: their numbers, and the passes of both sides.

    In the mean over cases, a stratum weighs its share of the pairs of its case.
    """
    import numpy as np

    in_order = rows[np.lexsort((rows[:, _RUN], rows[:, _CASE]))].astype(np.int64)
    first = np.flatnonzero(np.diff(in_order[:, _CASE], prepend=-1) | np.diff(in_order[:, _RUN], prepend=-1))
    if not len(first):
        return []
    sums = np.add.reduceat(in_order, first, axis=0)
    sums[:, [_CASE, _RUN]] = in_order[first][:, [_CASE, _RUN]]
    sums = sums[sums[:, _PAIRS] > 0]
    pairs = np.bincount(sums[:, _CASE], weights=sums[:, _PAIRS])
    shares = (sums[:, _PAIRS] / pairs[sums[:, _CASE]]).tolist()
    columns = (sums[:, column].tolist() for column in (_CASE, _RUN, _BEFORE, _SAMPLES, _AFTER, _PAIRS))
    return [
        (case, run, Counts(a_passed, a, b_passed, b, share))
        for case, run, a_passed, a, b_passed, b, share in zip(*columns, shares, strict=True)
    ]


def _sums_by_case(rows: Rows) -> Rows:
    """The sums of the rows of each case that has measured pairs, with the number of the case."""
    import numpy as np

    in_order = rows[np.argsort(rows[:, _CASE], kind="stable")].astype(np.int64)
    cases = in_order[:, _CASE].copy()
    first = np.flatnonzero(np.diff(cases, prepend=-1))
    if not len(first):
        return in_order
    sums: Rows = np.add.reduceat(in_order, first, axis=0)
    sums[:, _CASE] = cases[first]
    return sums[sums[:, _PAIRS] > 0]


class FailureTagTally:
    """Counts the cells with each failure tag on either side, without pairs with an error."""

    def __init__(self) -> None:
        """No failure tags."""
        self._frequency: Counter[str] = Counter()
        self._by_tag: dict[str, dict[int, list[int]]] = {}
        """By tag and case: the cells of A and those of B that have it."""
        self._higher: Counter[str] = Counter()
        self._lower: Counter[str] = Counter()

    def add(self, case: int, pair: CellPair, *, is_measured: bool) -> None:
        """Counts the tags of a pair; of an unmeasured one, only how frequent they are."""
        a, b = pair.a.failure_tags, pair.b.failure_tags
        self._frequency.update(a)
        self._frequency.update(b)
        if not is_measured:
            return
        for tag in {*a, *b}:
            counts = self._by_tag.setdefault(tag, {}).setdefault(case, [0, 0])
            counts[0] += tag in a
            counts[1] += tag in b
            if tag not in a:
                self._higher[tag] += 1
            elif tag not in b:
                self._lower[tag] += 1

    def differences(self, pairs: Mapping[int, int], unmeasured: int) -> Iterator[Difference]:
        """The differences of the shares, given the number of measured pairs of each case."""
        metric = Metric(type="bool", better="lower")
        for tag in sorted(self._frequency, key=lambda tag: (-self._frequency[tag], tag)):
            counts = self._by_tag.get(tag, {})
            tagged = [counts.get(case, (0, 0)) for case in pairs]
            sums = PairedSums([*pairs.values()], [a for a, _ in tagged], [b - a for a, b in tagged])
            yield cases_difference(tag, metric, sums, PairCounts(self._higher[tag], self._lower[tag], unmeasured))
