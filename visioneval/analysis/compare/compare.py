"""Compares two runs: broken and fixed cells, differences of metrics, metrics that mean two things, what B excuses and A
does not, and what B lost. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from visioneval.analysis.compare.differences import Difference, adjusted
from visioneval.analysis.compare.drift import Drift
from visioneval.analysis.compare.metrics import (
    Alignment,
    Amount,
    CasePasses,
    GradingDifference,
    Gradings,
    MetricCoverage,
    TaggedCase,
    alignments_of,
    amount,
    metric_differences,
    pass_rate,
    pass_rates_by,
    passes_by_case,
    passes_of_runs,
    shares_by_failure_tag,
)
from visioneval.analysis.compare.pairing import (
    CHANGES,
    CaseKey,
    CellPair,
    Change,
    ComparisonFilters,
    PairRow,
    Pairs,
    PairTable,
    check_filters,
    pair_cells,
    parse_map,
    read_pairs,
    select_cells,
)
from visioneval.analysis.left_out import LeftOut
from visioneval.analysis.sides import ALIGNMENT, GECKO, Cell, Cells, Side
from visioneval.analysis.stats.variance import RunNoise, run_noise
from visioneval.errors import RunFormatError, UsageError, count_of
from visioneval.records.model import CellKey
from visioneval.rules import parse_rule
from visioneval.suite.filters import any_glob
from visioneval.suite.metrics import BUILT_IN, ChangedMeaning, Meaning, describe_meaning, same_meaning, tags_read
from visioneval.types import MUST_PASS, Metric, Verdict

METRICS, ERRORS, CELLS, EXCUSES = LOSSES = ("missing-metrics", "errors", "missing-cells", "excuses")
"""What B can lose, as ``--allow`` names it."""
MAX_NAMES = 5
_EXCLUDES = {">=": (">",), ">": (">",), "<=": ("<",), "<": ("<",), "==": ("<", ">"), "!=": ("!=",)}
"""What each operator excludes: values below, above, or equal to the threshold. A yes/no rule excludes no or yes, and
a rule over words some of them."""


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
            # the words that records use are choices of the other side's metric: records alone do not know more
            known, used = (before, after) if isinstance(before, Meaning) else (after, before)
            is_same = is_same and (not isinstance(known, Meaning) or set(used.choices) <= set(known.choices))
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


@dataclass(frozen=True, slots=True)
class Excuse:
    """What B excuses in some cells, and the cases of these cells."""

    what: str
    cells: int
    cases: tuple[str, ...]


class Excuses:
    """Finds pairs that could fail in A for a reason that cannot fail them in B."""

    def __init__(self, a: Side, b: Side) -> None:
        """No pairs of these sides."""
        self._rules_of_a, self._rules_of_b = a.rules_of, b.rules_of
        self._cases: dict[str, list[str]] = {}
        """By what is excused: the case of each cell."""
        self._ungraded: dict[str, list[str]] = {}
        """By grader: the cases of cells that it grades in A and not in B."""
        self._graders_of_b: set[str] = set()

    def add(self, pair: CellPair) -> None:
        """Compares a pair."""
        self._graders_of_b.update(grader.key for grader in pair.b.graders)
        for what in self._excused(pair.a, pair.b):
            self._cases.setdefault(what, []).append(pair.b.test_id)

    def _excused(self, a: Cell, b: Cell) -> Iterator[str]:
        if b.flaky and not a.flaky:
            yield "flaky"
        if MUST_PASS in a.tags and MUST_PASS not in b.tags:
            yield f"not tagged {MUST_PASS}"
        if a.grade_key and a.grade_key == b.grade_key:
            return  # the same rules and graders
        if (rules_of_b := self._rules_of_b(b.test_id, b.model_label)) is not None:
            rules_of_a = self._rules_of_a(a.test_id, a.model_label)  # records without a suite show those that failed
            for rule in dropped_rules(a.failed_rules if rules_of_a is None else rules_of_a, rules_of_b):
                yield f"not failed by the rule {rule!r}"
        if b.graders or b.verdict is Verdict.PASS:  # else nothing was generated that could be graded
            yield from self._ungraded_or_optional(a, b)

    def _ungraded_or_optional(self, a: Cell, b: Cell) -> Iterator[str]:
        in_b = {grader.key: grader for grader in b.graders}
        for grader in a.graders:
            if grader.is_optional or grader.never_asked:
                continue  # one that was never asked is not optional in the record, whatever the suite of A says
            if grader.key not in in_b:
                self._ungraded.setdefault(grader.key, []).append(b.test_id)
            elif in_b[grader.key].is_optional:
                yield f"not in need of the grader {grader.key!r}, which is optional"

    def result(self) -> Iterator[Excuse]:
        """The excuses. A grader that B has nowhere excuses nothing: its metrics are missing, or another writes them."""
        ungraded = {
            f"not graded by {key!r}": cases for key, cases in self._ungraded.items() if key in self._graders_of_b
        }
        for what, cases in {**self._cases, **ungraded}.items():
            yield Excuse(what, len(cases), tuple(dict.fromkeys(cases)))


@lru_cache(maxsize=1024)
def dropped_rules(before: tuple[str, ...], after: tuple[str, ...]) -> tuple[str, ...]:
    """The rules of ``before`` that neither ``after`` has, nor one with another threshold in their stead."""
    rules_after = set(after)
    replacing = {value for rule in rules_after.difference(before) for value in _excluded(rule)}
    return tuple(rule for rule in before if rule not in rules_after and not replacing.issuperset(_excluded(rule)))


def _excluded(text: str) -> Iterator[tuple[str, str]]:
    """The metric of a rule, with each kind of value that the rule excludes."""
    rule = parse_rule(text)
    if rule.words:
        return iter([(rule.metric, "words")])
    excluded = (("no",) if rule.expected else ("yes",)) if rule.op is None else _EXCLUDES[rule.op]
    return ((rule.metric, kind) for kind in excluded)


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
    ``must_pass``: first those of B in order, then those that only A has. ``drift`` is about the last runs of an
    experiment, of which B is the newest.
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
    drift: Drift | None = None

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


class Loss(NamedTuple):
    """What B lost of a kind, empty if nothing, and what is true of B then.

    ``share`` is that of the pairs with a new error, and 1 for the other kinds, of which nothing or all is accepted.
    """

    kind: str
    what: str
    none_lost: str
    share: float = 1.0


def losses(comparison: Comparison) -> tuple[Loss, ...]:
    """What B lost, by kind: a number over the rest says nothing about what is gone."""
    lost, new_errors, pairs = cells_lost(comparison), comparison.where(lambda row: row.new_error), comparison.pairs
    lost_cells = f"not in B: {count_of(len(lost), 'cell')} of A: {shortened(lost.columns.used_cases)}" if lost else ""
    left_out = f", except {len(comparison.only_a):,} that flags left out" if comparison.only_a else ""
    excuses = [
        f"{count_of(excuse.cells, 'cell')} {excuse.what}: {shortened(excuse.cases)}" for excuse in comparison.excuses
    ]
    excused = f"excused in B, but not in A: {shortened(excuses, '; ')}" if excuses else ""
    in_both = comparison.changed("still_error").columns.used_cases
    named = f"; ERROR in both: {shortened(in_both)}" if in_both else ""
    of_pairs = f"{len(new_errors):,} of {count_of(len(pairs), 'cell')}"
    errors = f"{of_pairs} {'was' if len(pairs) == 1 else 'were'} measured in A and have errors in B"
    return (
        Loss(METRICS, _lost_metrics(comparison), "every metric of A is measured in B"),
        Loss(
            ERRORS,
            f"{errors}: {shortened(new_errors.columns.used_cases)}" if new_errors else "",
            f"no new errors in B{named}",
            share=len(new_errors) / max(len(pairs), 1),
        ),
        Loss(CELLS, lost_cells, f"no cells of A are missing from B{left_out}"),
        Loss(EXCUSES, excused, "no new excuses in B"),
    )


def _lost_metrics(comparison: Comparison) -> str:
    lost, pairs = [str(changed) for changed in comparison.changed_metrics], comparison.coverage.pairs_with_output
    for name, cases in comparison.coverage.other_tags.items():
        names = shortened(cases)
        lost.append(
            f"{name} has another meaning in {count_of(len(cases), 'case')}, because it reads their tags: {names}"
        )
    for name, (before, after) in comparison.coverage.measured.items():
        if name in BUILT_IN:
            continue  # an output from the cache has none, and loses nothing by that
        if before and (not after or LeftOut(before - after, before).is_too_much()):
            lost.append(f"{name} is measured in {after:,} of {count_of(pairs, 'pair')}, in A in {before:,}")
    return shortened(lost, "; ")


def cells_lost(comparison: Comparison) -> Cells:
    """Cells that only A has, without those that flags or ``RUN@LABEL`` left out of B."""
    renamed, b = dict(comparison.labels), comparison.b

    def is_lost(cell: CellKey) -> bool:
        test_id, label, sample = cell
        return not (b.is_narrowed and label not in renamed) and not b.leaves_out(
            test_id, renamed.get(label, label), sample
        )

    return comparison.only_a.where(is_lost)


def shortened(names: Sequence[str], separator: str = ", ") -> str:
    """The first names, and how many more there are."""
    more = len(names) - MAX_NAMES
    return separator.join(names[:MAX_NAMES]) + (f" and {more:,} more" if more > 0 else "")


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
    # counter-examples, as A defines them, that differences of some metrics leave out
    known = a.counter_examples if a.counter_examples is not None else b.counter_examples
    left_out = frozenset[str]() if filters.cases or filters.tags else known or frozenset[str]()
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
        by_run=pass_rates_by(stable, noise, lambda row: (row.label,)) if len(pairing.labels) > 1 else (),
        by_tag=pass_rates_by(stable, noise, lambda row: dict.fromkeys((*row.tags[1], *row.tags[0]))),
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


def _metrics(a: Side, b: Side) -> dict[str, Metric]:
    """The metrics of both runs as defined in B, or in A if B has no direction. Words are those of either."""
    metrics = dict(b.metrics)
    for name, metric in a.metrics.items():
        if name in metrics and metric.choices and metrics[name].choices:
            choices = dict.fromkeys((*metrics[name].choices, *metric.choices))
            metrics[name] = metrics[name].model_copy(update={"choices": tuple(choices)})  # may be over MOST_CHOICES
        elif name not in metrics or metrics[name].better == "none":
            metrics[name] = metric
    return metrics
