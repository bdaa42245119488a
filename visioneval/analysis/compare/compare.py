"""Compares two runs: broken and fixed cells, and differences of metrics. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from visioneval.analysis.alignments import ALIGNMENT
from visioneval.analysis.cells import Cells
from visioneval.analysis.compare.comparability import (
    Excuse,
    Excuses,
    GradingDifference,
    Gradings,
    changed_meanings,
)
from visioneval.analysis.compare.differences import Difference, adjusted
from visioneval.analysis.compare.metrics import (
    Alignment,
    Amount,
    CasePasses,
    MetricCoverage,
    alignments_of,
    amount,
    metric_differences,
    pass_rate,
    pass_rates_by_run,
    pass_rates_by_tag,
    passes_by_case,
    passes_of_runs,
    shares_by_failure_tag,
)
from visioneval.analysis.compare.pairing import (
    CHANGES,
    CellPair,
    Change,
    ComparisonFilters,
    Pairs,
    check_filters,
    pair_cells,
    parse_map,
    select_cells,
)
from visioneval.analysis.compare.table import CaseKey, PairRow, PairTable, TaggedCase, read_pairs
from visioneval.analysis.sides import Side
from visioneval.analysis.stats.variance import RunNoise, run_noise
from visioneval.errors import RunFormatError, UsageError
from visioneval.suite.filters import any_glob
from visioneval.suite.metrics import ChangedMeaning, tags_read
from visioneval.types import Metric, Verdict

GECKO = "gecko"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The findings of a comparison.

    ``pairs`` are in the order of B. They, ``only_a`` and ``only_b`` are read from disk when they are needed.
    Differences exclude flaky cases. ``cases`` are the passes of each of the others on each model run, and
    ``noise`` is what the runs of a baseline have in common.
    ``by_run`` lists pass rates by model run (label in B; empty for a single one), ``by_tag`` pass rates by tag,
    ``by_type`` the metrics ``<gecko key>.<type>``, ``by_word`` the shares of the words of a metric, and
    ``by_failure_tag`` the shares of cells with a failure tag.
    Holm's adjustment covers only ``metrics``.
    ``labels`` pairs the model runs. ``metric_tags`` are the metrics of either run that the filters leave, each with the
    tags that it reads, without ``changed_metrics``, whose scores cannot be compared. Differences of how well images
    match their prompts leave out counter-examples. ``excuses`` is what B excuses and A does not.
    ``alignments`` are those of every pair that an alignment grader graded on both sides, the largest losses first.
    ``table`` has a row for each of ``pairs``. ``tagged_cases`` are the cases of which a model run is tagged
    ``must_pass``: first those of B in order, then those that only A has.
    """

    a: Side
    b: Side
    labels: tuple[tuple[str, str], ...]
    metric_tags: Mapping[str, frozenset[str]]
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
    by_word: tuple[Difference, ...]
    by_failure_tag: tuple[Difference, ...]
    grading_differences: tuple[GradingDifference, ...]
    cost_usd: Amount
    seconds: Amount
    alignments: Sequence[Alignment]
    coverage: MetricCoverage
    table: PairTable
    tagged_cases: Mapping[CaseKey, TaggedCase]

    @property
    def counts(self) -> dict[Change, int]:
        """The number of pairs by change."""
        numbers = Counter(row.change for row in self.table.rows)
        return {change: numbers[change] for change in CHANGES}

    def where(self, is_selected: Callable[[PairRow], bool]) -> Pairs:
        """The pairs whose rows are selected."""
        return self.pairs.take([at for at, row in enumerate(self.table.rows) if is_selected(row)])

    def changed(self, change: Change) -> Pairs:
        """The pairs with this change, ``must_pass`` cases first and flaky cases last."""
        rows = [(row.flaky, not row.must_pass, at) for at, row in enumerate(self.table.rows) if row.change == change]
        return self.pairs.take([at for _, _, at in sorted(rows)])

    @property
    def differing_pairs(self) -> Pairs:
        """The pairs that do not pass on both sides."""
        return self.where(lambda row: row.change != "still_passing")

    @property
    def stable_pairs(self) -> Pairs:
        """The pairs whose case is not flaky: only these can fail a gate."""
        return self.where(lambda row: not row.flaky)

    @property
    def moved_by_rules(self) -> Pairs:
        """The pairs whose verdict differs although output and scores are identical."""
        return self.where(lambda row: row.moved_by_rules)

    def aligned_pairs(self, most: int | None = None) -> Iterator[tuple[Alignment, CellPair]]:
        """The ``alignments`` with their pairs, the first ``most`` of them."""
        items = self.alignments[:most]
        return zip(items, self.pairs.take([item.position for item in items]), strict=True)

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
    (cells_a, of_a, tags_a), (cells_b, of_b, tags_b) = (select_cells(side, filters, covered) for side in (a, b))
    check_filters(filters, metrics, (a, b), tags_a | tags_b)
    a, b = replace(a, cells=cells_a), replace(b, cells=cells_b)
    changed = {item.metric: item for item in changed_meanings(a, b)}
    named = [name for name in metrics if not filters.metrics or any_glob(filters.metrics, name)]
    names = [name for name in named if name not in changed]
    pairing = pair_cells(a, b, parse_map(renamed, a, b))
    labels = dict(pairing.labels)
    tags = {
        name: frozenset[str]().union(*(tags_read(side.metrics[name]) for side in (a, b) if name in side.metrics))
        for name in names
    }
    left_out = _left_out(a, b, filters)
    gradings, excuses = Gradings(), Excuses(a, b)
    gecko_keys, alignment_keys = set[str](), set[str]()
    cases: defaultdict[CaseKey, TaggedCase] = defaultdict(TaggedCase)

    def also(pair: CellPair) -> None:
        gradings.add(pair)
        excuses.add(pair)
        of_a.add_graders(pair.a.graders)
        of_b.add_graders(pair.b.graders)
        cases[pair.b.test_id, pair.b.model_label].add(pair.a, pair.b)
        gecko_keys.update(grader.key for grader in (*pair.a.graders, *pair.b.graders) if grader.type == GECKO)
        alignment_keys.update(grader.key for grader in pair.b.graders if grader.type == ALIGNMENT)

    table = read_pairs(pairing.pairs, {name: metrics[name] for name in names}, left_out, a.runs, also)
    for cell in pairing.only_b:
        of_b.add_graders(cell.graders)
        cases[cell.test_id, cell.model_label].add(None, cell)
    for cell in pairing.only_a:
        of_a.add_graders(cell.graders)
        cases[cell.test_id, labels.get(cell.model_label, cell.model_label)].add(cell, None)
    must_pass = {test_id for (test_id, _), case in cases.items() if case.must_pass}
    a, b = replace(a, reroutings=of_a.result()), replace(b, reroutings=of_b.result())
    differences, shares, coverage = metric_differences(table, pairing.pairs, metrics, tags)
    types = {name for name in names for key in gecko_keys if name.startswith(f"{key}.")}
    words = [name for name in table.metrics if metrics[name].choices]
    stable = table.stable
    noise = run_noise(passes_of_runs((row.case, row.run_verdicts) for row in stable))
    rate, metric_families = adjusted(
        pass_rate(stable, noise), [difference for difference in differences if difference.name not in types]
    )
    return Comparison(
        a=a,
        b=b,
        labels=pairing.labels,
        metric_tags=tags,
        changed_metrics=tuple(changed[name] for name in named if name in changed),
        excuses=tuple(excuses.result()),
        pairs=pairing.pairs,
        only_a=pairing.only_a,
        only_b=pairing.only_b,
        pass_rate=rate,
        cases=passes_by_case(stable, noise),
        noise=noise,
        metrics=tuple(metric_families),
        by_run=pass_rates_by_run(stable, noise) if len(pairing.labels) > 1 else (),
        by_tag=pass_rates_by_tag(stable, noise),
        by_type=tuple(difference for difference in differences if difference.name in types),
        by_word=tuple(shares),
        by_failure_tag=tuple(shares_by_failure_tag(stable)),
        grading_differences=tuple(
            gradings.differences([*(difference.name for difference in differences), *words], a, b)
        ),
        cost_usd=amount(table.cost_usd, is_mean=False),
        seconds=amount(table.seconds, is_mean=True),
        alignments=alignments_of(table, pairing.pairs, sorted(alignment_keys - changed.keys())),
        coverage=coverage,
        table=table,
        tagged_cases={key: case for key, case in cases.items() if key[0] in must_pass},
    )


def _left_out(a: Side, b: Side, filters: ComparisonFilters) -> frozenset[str]:
    """The counter-examples, as A defines them, that differences of some metrics leave out: none if a filter names cases
    or tags."""
    known = a.counter_examples if a.counter_examples is not None else b.counter_examples
    return frozenset() if filters.cases or filters.tags else known or frozenset()


def _metrics(a: Side, b: Side) -> dict[str, Metric]:
    """The metrics of both runs as defined in B, or in A if B has no direction. Words are those of either."""
    metrics = dict(b.metrics)
    for name, metric in a.metrics.items():
        if name in metrics and metric.choices and metrics[name].choices:
            choices = dict.fromkeys((*metrics[name].choices, *metric.choices))
            metrics[name] = metrics[name].model_copy(update={"choices": tuple(choices)})
        elif name not in metrics or metrics[name].better == "none":
            metrics[name] = metric
    return metrics
