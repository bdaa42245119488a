"""Compares two runs: broken and fixed cells, and differences of metrics. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from visioneval.analysis.cells import Cells
from visioneval.analysis.compare.comparability import GradingDifference
from visioneval.analysis.compare.differences import Difference, adjusted
from visioneval.analysis.compare.filters import ComparisonFilters, check_filters, select_cells
from visioneval.analysis.compare.pairing import Change, Pairs, pair_cells, parse_map
from visioneval.analysis.compare.tallies.excuses import Excuse, ExcuseTally
from visioneval.analysis.compare.tallies.marks import CellMarks, PairMarks
from visioneval.analysis.compare.tallies.metrics import AlignmentPairs, Amount, MetricCoverage
from visioneval.analysis.compare.tallies.tally import Tally
from visioneval.analysis.compare.tallies.verdicts import CasePasses
from visioneval.analysis.sides import Side
from visioneval.analysis.stats.between_runs import RunNoise
from visioneval.errors import RunFormatError, UsageError
from visioneval.suite.filters import any_glob
from visioneval.suite.meanings import ChangedMeaning, Meaning, describe_meaning, same_meaning, tags_read
from visioneval.types import Metric, Verdict


@dataclass(frozen=True, slots=True)
class Comparison:
    """The findings of a comparison.

    ``pairs`` are in the order of B. They, ``only_a`` and ``only_b`` are read from disk when they are needed.
    Differences exclude flaky cases. ``cases`` are the passes of each of the others on each model run, and
    ``noise`` is what the runs of a baseline have in common.
    ``by_run`` lists pass rates by model run (label in B; empty for a single one), ``by_tag`` pass rates by tag,
    ``by_type`` the metrics ``<gecko key>.<type>``, and ``by_failure_tag`` the shares of cells with a failure tag.
    Holm's adjustment covers only ``metrics``.
    ``labels`` pairs the model runs. ``metric_tags`` are the metrics of either run that the filters leave, each with the
    tags that it reads, without ``changed_metrics``, whose scores cannot be compared. Differences of how well images
    match their prompts leave out ``counter_examples``. ``excuses`` is what B excuses and A does not.
    ``alignments`` are those of every pair that an alignment grader graded on both sides, the largest losses first.
    """

    a: Side
    b: Side
    labels: tuple[tuple[str, str], ...]
    metric_tags: Mapping[str, frozenset[str]]
    counter_examples: frozenset[str]
    changed_metrics: tuple[ChangedMeaning, ...]
    excuses: tuple[Excuse, ...]
    pairs: Pairs
    only_a: Cells
    only_b: Cells
    pass_rate: Difference
    cases: tuple[CasePasses, ...]
    noise: RunNoise
    metrics: tuple[Difference, ...]
    by_run: tuple[Difference, ...]
    by_tag: tuple[Difference, ...]
    by_type: tuple[Difference, ...]
    by_failure_tag: tuple[Difference, ...]
    grading_differences: tuple[GradingDifference, ...]
    cost_usd: Amount
    seconds: Amount
    alignments: AlignmentPairs
    coverage: MetricCoverage
    marks: PairMarks
    marks_of_only_a: CellMarks
    marks_of_only_b: CellMarks

    @property
    def counts(self) -> dict[Change, int]:
        """The number of pairs by change."""
        return self.marks.counts()

    def changed(self, change: Change) -> Pairs:
        """The pairs with this change, ``must_pass`` cases first and flaky cases last."""
        return self.marks.changed(change, self.pairs)

    @property
    def differing_pairs(self) -> Pairs:
        """The pairs that do not pass on both sides."""
        return self.marks.differing(self.pairs)

    @property
    def stable_pairs(self) -> Pairs:
        """The pairs whose case is not flaky: only these can fail a gate."""
        return self.marks.stable(self.pairs)

    @property
    def measured_pairs(self) -> Pairs:
        """Those of the ``stable_pairs`` that are an error on neither side."""
        return self.marks.without_errors(self.pairs)

    @property
    def has_samples(self) -> bool:
        """Whether a pair is of a later sample than the first."""
        return any(self.pairs.columns.sample)

    @property
    def has_other_source(self) -> bool:
        """Whether the suite files of the runs differ."""
        return None not in (self.a.source_sha256, self.b.source_sha256) and (
            self.a.source_sha256 != self.b.source_sha256
        )


def compare(a: Side, b: Side, filters: ComparisonFilters | None = None, renamed: Sequence[str] = ()) -> Comparison:
    """Compares run B with run A. ``renamed`` lists ``OLD=NEW``: a label of A and its label in B.

    Reads every cell of both sides, one pair at a time. Raises ``UsageError`` if no cells are left to compare, or for an
    unknown metric, case, tag or label, and ``RunFormatError`` for an invalid record.
    """
    try:
        return _compare(a, b, filters or ComparisonFilters(), renamed)
    except RunFormatError:
        a.cells.check()  # an invalid record of A is reported before one of B, in whatever order they were read
        raise


def _compare(a: Side, b: Side, filters: ComparisonFilters, renamed: Sequence[str]) -> Comparison:
    for side in (a, b):
        if not side.cells:
            raise UsageError(f"{side.name}: the run has no cells to compare")
        if all(cell.verdict is Verdict.NONE for cell in side.cells):
            raise UsageError(f"{side.name}: its suite has no rules, so there is no verdict and no metric to compare")
    metrics = _metrics(a, b)
    covered: dict[str, bool] = {}
    selections = select_cells(a, filters, covered), select_cells(b, filters, covered)
    check_filters(filters, metrics, selections)
    labels = parse_map(renamed, a, b)
    a, b = (replace(item.side, cells=item.cells) for item in selections)
    changed = {item.metric: item for item in changed_meanings(a, b)}
    named = [name for name in metrics if not filters.metrics or any_glob(filters.metrics, name)]
    names = [name for name in named if name not in changed]
    pairing = pair_cells(a, b, labels)
    tags = {
        name: frozenset[str]().union(*(tags_read(side.metrics[name]) for side in (a, b) if name in side.metrics))
        for name in names
    }
    left_out = _left_out(a, b, filters)
    tally = Tally(tags, pairing, ExcuseTally(a, b), left_out)
    of_judges = selections[0].reroutings, selections[1].reroutings
    tally.read(of_judges)
    a, b = (replace(side, reroutings=counts.result()) for side, counts in zip((a, b), of_judges, strict=True))
    differences = tally.scores.differences(metrics)
    types = {name for name in names for key in tally.gecko_keys if name.startswith(f"{key}.")}
    pass_rate, metric_differences = adjusted(
        tally.verdicts.pass_rate(), [difference for difference in differences if difference.name not in types]
    )
    return Comparison(
        a=a,
        b=b,
        labels=pairing.labels,
        metric_tags=tags,
        counter_examples=left_out,
        changed_metrics=tuple(changed[name] for name in named if name in changed),
        excuses=tally.excuses.result(),
        pairs=pairing.pairs,
        only_a=pairing.only_a,
        only_b=pairing.only_b,
        pass_rate=pass_rate,
        cases=tally.verdicts.cases(),
        noise=tally.verdicts.noise,
        metrics=tuple(metric_differences),
        by_run=tally.verdicts.by_run() if len(pairing.labels) > 1 else (),
        by_tag=tally.verdicts.by_tag(),
        by_type=tuple(difference for difference in differences if difference.name in types),
        by_failure_tag=tally.verdicts.by_failure_tag(),
        grading_differences=tally.gradings.differences([difference.name for difference in differences], a, b),
        cost_usd=tally.cost_usd.result(mean=False),
        seconds=tally.seconds.result(mean=True),
        alignments=tally.alignments(changed),
        coverage=tally.scores.coverage(),
        marks=tally.marks,
        marks_of_only_a=tally.marks_of_only_a,
        marks_of_only_b=tally.marks_of_only_b,
    )


def _left_out(a: Side, b: Side, filters: ComparisonFilters) -> frozenset[str]:
    """The counter-examples, as A defines them, that differences of some metrics leave out: none if a filter names cases
    or tags."""
    known = a.counter_examples if a.counter_examples is not None else b.counter_examples
    return frozenset() if filters.cases or filters.tags else known or frozenset()


def changed_meanings(a: Side, b: Side) -> Iterator[ChangedMeaning]:
    """The metrics of both sides that mean two things. Of a file of records, only types and values are known."""
    for name, before in a.metrics.items():
        after = b.metrics.get(name)
        if after is None:
            continue
        if isinstance(before, Meaning) and isinstance(after, Meaning):
            is_same = same_meaning(before, after)
        else:
            is_same = before.type == after.type and _fits(a, name, after) and _fits(b, name, before)
        if not is_same:
            yield ChangedMeaning(name, _describe(a, name, after), _describe(b, name, before))


def _fits(side: Side, name: str, metric: Metric) -> bool:
    """Whether the values of a file of records are in the range of a metric."""
    low, high = metric.range or (None, None)
    lowest, highest = side.values.get(name, (low, high))
    return not (low is not None and lowest is not None and lowest < low) and not (
        high is not None and highest is not None and highest > high
    )


def _describe(side: Side, name: str, other: Metric) -> str:
    if name in side.values:
        return "number with values from {:g} to {:g}".format(*side.values[name])
    return describe_meaning(side.metrics[name], other)


def _metrics(a: Side, b: Side) -> dict[str, Metric]:
    """The metrics of both runs as defined in B, or in A if B has no direction."""
    metrics = dict(b.metrics)
    for name, metric in a.metrics.items():
        if name not in metrics or metrics[name].better == "none":
            metrics[name] = metric
    return metrics
