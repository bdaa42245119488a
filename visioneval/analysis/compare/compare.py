"""Compares two runs: broken and fixed cells, and differences of metrics. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum

from visioneval.analysis.alignments import ALIGNMENT
from visioneval.analysis.cells import Cell, Side
from visioneval.analysis.compare.comparability import GradingDifference, grading_differences
from visioneval.analysis.compare.differences import (
    Difference,
    adjusted,
    failure_tag_difference,
    metric_difference,
    pass_rate_difference,
)
from visioneval.analysis.compare.pairing import CHANGES, CellPair, Change, pair_cells, parse_map
from visioneval.errors import UsageError
from visioneval.suite.filters import any_case, any_glob
from visioneval.suite.loading.messages import did_you_mean
from visioneval.suite.turns import chain_of
from visioneval.types import Metric, Score, Verdict

GECKO = "gecko"


@dataclass(frozen=True, slots=True)
class AlignmentPair:
    """The alignment of both sides of a pair by one grader: the scores, 0 to 100, and the gaps as text."""

    pair: CellPair
    grader: str
    a: float | None
    b: float | None
    a_gaps: str
    b_gaps: str


@dataclass(frozen=True, slots=True)
class ComparisonFilters:
    """Limits a comparison to metrics and cases (globs) and tags. An empty filter matches everything."""

    metrics: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Amount:
    """A sum in USD or a mean in seconds, over the pairs in which both sides have a value."""

    a: float | None
    b: float | None
    pairs: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """The findings of a comparison.

    ``pairs`` are in the order of B. Differences exclude flaky cases.
    ``by_run`` lists pass rates by model run (label in B; empty for a single one), ``by_tag`` pass rates by tag,
    ``by_type`` the metrics ``<gecko key>.<type>``, and ``by_failure_tag`` the shares of cells with a failure tag.
    Holm's adjustment covers only ``metrics``.
    ``stable_pairs`` are those whose case is not flaky: only these can fail a gate.
    ``labels`` pairs the model runs. ``metric_names`` are the metrics of either run that the filters leave.
    """

    a: Side
    b: Side
    labels: tuple[tuple[str, str], ...]
    metric_names: tuple[str, ...]
    pairs: tuple[CellPair, ...]
    only_a: tuple[Cell, ...]
    only_b: tuple[Cell, ...]
    pass_rate: Difference
    metrics: tuple[Difference, ...]
    by_run: tuple[Difference, ...]
    by_tag: tuple[Difference, ...]
    by_type: tuple[Difference, ...]
    by_failure_tag: tuple[Difference, ...]
    grading_differences: tuple[GradingDifference, ...]
    cost_usd: Amount
    seconds: Amount
    by_change: Mapping[Change, Sequence[CellPair]]
    stable_pairs: tuple[CellPair, ...]

    @property
    def counts(self) -> dict[Change, int]:
        """The number of pairs by change."""
        return {change: len(self.by_change[change]) for change in CHANGES}

    def changed(self, change: Change) -> tuple[CellPair, ...]:
        """The pairs with this change, ``must_pass`` cases first and flaky cases last."""
        return tuple(sorted(self.by_change[change], key=lambda pair: (pair.flaky, not pair.must_pass)))

    @property
    def alignments(self) -> tuple[AlignmentPair, ...]:
        """The alignment of every pair that an alignment grader graded on both sides, the largest losses first."""
        keys = {mark.key for pair in self.pairs for mark in pair.b.graders if mark.type == ALIGNMENT}
        aligned = [
            AlignmentPair(
                pair,
                key,
                _number(pair.a.scores[key]),
                _number(pair.b.scores[key]),
                pair.a.reasons.get(key, ""),
                pair.b.reasons.get(key, ""),
            )
            for key in sorted(keys)
            for pair in self.pairs
            if key in pair.a.scores and key in pair.b.scores
        ]
        return tuple(sorted(aligned, key=lambda item: (item.b or 0) - (item.a or 0)))

    @property
    def has_other_source(self) -> bool:
        """Whether the suite files of the runs differ."""
        return None not in (self.a.source_sha256, self.b.source_sha256) and (
            self.a.source_sha256 != self.b.source_sha256
        )


def compare(a: Side, b: Side, filters: ComparisonFilters | None = None, renamed: Sequence[str] = ()) -> Comparison:
    """Compares run B with run A. ``renamed`` lists ``OLD=NEW``: a label of A and its label in B.

    Raises ``UsageError`` if no cells are left to compare, or for an unknown metric, case, tag or label.
    """
    for side in (a, b):
        if not side.cells:
            raise UsageError(f"{side.name}: the run has no cells to compare")
        if all(cell.verdict is Verdict.NONE for cell in side.cells):
            raise UsageError(f"{side.name}: its suite has no rules, so there is no verdict and no metric to compare")
    filters = filters or ComparisonFilters()
    metrics = _metrics(a, b)
    _check_filters(filters, metrics, a, b)
    labels = parse_map(renamed, a, b)
    a, b = (replace(side, cells=_filtered_cells(side.cells, filters)) for side in (a, b))
    pairing = pair_cells(a, b, labels)
    stable_pairs = tuple([pair for pair in pairing.pairs if not pair.flaky])
    names = [name for name in metrics if not filters.metrics or any_glob(filters.metrics, name)]
    differences = _differences(names, metrics, stable_pairs)
    types = _gecko_types(names, pairing.pairs)
    pass_rate, metric_differences = adjusted(
        pass_rate_difference(stable_pairs), [d for d in differences if d.name not in types]
    )
    return Comparison(
        a=a,
        b=b,
        labels=pairing.labels,
        metric_names=tuple(names),
        pairs=pairing.pairs,
        only_a=pairing.only_a,
        only_b=pairing.only_b,
        pass_rate=pass_rate,
        metrics=tuple(metric_differences),
        by_run=_pass_rates_by(stable_pairs, lambda pair: (pair.b.model_label,)) if len(pairing.labels) > 1 else (),
        by_tag=_pass_rates_by(stable_pairs, lambda pair: pair.tags),
        by_type=tuple(difference for difference in differences if difference.name in types),
        by_failure_tag=_failure_tags(stable_pairs),
        grading_differences=grading_differences([difference.name for difference in differences], pairing.pairs, a, b),
        cost_usd=_amount([(p.a.total_cost_usd, p.b.total_cost_usd) for p in pairing.pairs], mean=False),
        seconds=_amount([(p.a.seconds, p.b.seconds) for p in pairing.pairs], mean=True),
        by_change=_by_change(pairing.pairs),
        stable_pairs=stable_pairs,
    )


def _metrics(a: Side, b: Side) -> dict[str, Metric]:
    """The metrics of both runs as defined in B, or in A if B has no direction."""
    metrics = dict(b.metrics)
    for name, metric in a.metrics.items():
        if name not in metrics or metrics[name].better == "none":
            metrics[name] = metric
    return metrics


def _check_filters(filters: ComparisonFilters, metrics: Mapping[str, Metric], a: Side, b: Side) -> None:
    cells = (*a.cells, *b.cells)
    for flag, patterns, names in (
        ("--metric", filters.metrics, set(metrics)),
        ("--case", filters.cases, {name for cell in cells for name in (cell.test_id, chain_of(cell.test_id))}),
        ("--tag", filters.tags, {tag for cell in cells for tag in cell.tags}),
    ):
        for pattern in patterns:
            if not any(any_glob((pattern,), name) for name in names):
                raise UsageError(f"{flag} {pattern!r}: no match in either run{did_you_mean(pattern, names)}")


def _filtered_cells(cells: Iterable[Cell], filters: ComparisonFilters) -> tuple[Cell, ...]:
    return tuple(
        cell
        for cell in cells
        if (not filters.cases or any_case(filters.cases, cell.test_id))
        and (not filters.tags or not set(filters.tags).isdisjoint(cell.tags))
    )


def _differences(names: Iterable[str], metrics: Mapping[str, Metric], pairs: Sequence[CellPair]) -> list[Difference]:
    differences = (metric_difference(name, metrics[name], pairs) for name in names)
    return [difference for difference in differences if difference.n_pairs or difference.unmeasured]


def _gecko_types(names: Iterable[str], pairs: Iterable[CellPair]) -> set[str]:
    keys = {mark.key for pair in pairs for mark in (*pair.a.graders, *pair.b.graders) if mark.type == GECKO}
    return {name for name in names for key in keys if name.startswith(f"{key}.")}


def _pass_rates_by(pairs: Sequence[CellPair], names_of: Callable[[CellPair], Iterable[str]]) -> tuple[Difference, ...]:
    """The pass rate differences of the pairs, grouped by name."""
    named: dict[str, list[CellPair]] = {}
    for pair in pairs:
        for name in names_of(pair):
            named.setdefault(name, []).append(pair)
    return tuple(pass_rate_difference(group, name) for name, group in named.items())


def _failure_tags(pairs: Sequence[CellPair]) -> tuple[Difference, ...]:
    """The shares of cells with each failure tag, most frequent tags first."""
    counts = Counter(tag for pair in pairs for tag in (*pair.a.failure_tags, *pair.b.failure_tags))
    return tuple(failure_tag_difference(tag, pairs) for tag in sorted(counts, key=lambda tag: (-counts[tag], tag)))


def _number(score: Score) -> float | None:
    return None if score is None else float(score)


def _amount(values: Iterable[tuple[float | None, float | None]], *, mean: bool) -> Amount:
    complete = [(a, b) for a, b in values if a is not None and b is not None]
    if not complete:
        return Amount(None, None, 0)
    share = len(complete) if mean else 1
    return Amount(fsum(a for a, _ in complete) / share, fsum(b for _, b in complete) / share, len(complete))


def _by_change(pairs: Iterable[CellPair]) -> dict[Change, list[CellPair]]:
    groups: dict[Change, list[CellPair]] = {change: [] for change in CHANGES}
    for pair in pairs:
        groups[pair.change].append(pair)
    return groups
