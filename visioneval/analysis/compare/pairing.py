"""Which cells of two runs are compared (filters, pairs of cells, how their verdicts changed), and the table of a
comparison: both sides are read once, and each pair becomes a row. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, nan
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from visioneval.analysis.redaction import NOTHING, Redaction
from visioneval.analysis.sides import MEASURED, Cell, Cells, PooledCell, Reroutings, Side
from visioneval.errors import NothingInCommonError, UsageError, did_you_mean
from visioneval.records.key_parts import VERDICT_PARTS, changed_parts
from visioneval.records.reader import CellColumns, taken
from visioneval.suite.filters import any_case, chain_of, check_matches
from visioneval.suite.metrics import BUILT_IN, match_keys
from visioneval.suite.prompts import paired_by_prompt
from visioneval.types import MUST_PASS, Metric, Score, Verdict

if TYPE_CHECKING:
    import numpy as np

    Flags = np.ndarray[Any, np.dtype[np.bool_]]
    Numbers = np.ndarray[Any, np.dtype[Any]]

Change = Literal["broken", "error_after", "fixed", "error_before", "still_failing", "still_error", "still_passing"]
CHANGES: tuple[Change, ...] = get_args(Change)
"""All changes in report order, broken first."""
_UNDECIDED = (Verdict.ERROR, Verdict.NONE)


@dataclass(frozen=True, slots=True)
class CellPair:
    """The same cell in both runs."""

    a: Cell
    b: Cell
    computed: frozenset[str] = frozenset(BUILT_IN)
    """The metrics that no grader measures."""

    @property
    def change(self) -> Change:
        """How the verdict changed. An ``ERROR`` on one side is neither broken nor fixed."""
        a, b = self.a.verdict, self.b.verdict  # compared one by one, as enums are slow to hash
        if b is Verdict.ERROR:
            return "still_error" if a is Verdict.ERROR else "error_after"
        if a in _UNDECIDED or b in _UNDECIDED:
            return "error_before"
        if b is Verdict.PASS:
            return "still_passing" if a is Verdict.PASS else "fixed"
        return "broken" if a is Verdict.PASS else "still_failing"

    @property
    def rules_broken(self) -> tuple[str, ...]:
        """Rules that fail in B but not in A."""
        return tuple(rule for rule in self.b.failed_rules if rule not in self.a.failed_rules)

    @property
    def rules_fixed(self) -> tuple[str, ...]:
        """Rules that fail in A and pass in B. None if B is an error, as it may not have measured them."""
        if self.b.verdict is Verdict.ERROR:
            return ()
        return tuple(rule for rule in self.a.failed_rules if rule not in self.b.failed_rules)

    @property
    def same_output_in_a(self) -> Cell | None:
        """The cell of A with the same file as output, of several runs the newest; ``None`` if there is none."""
        digest = self.b.artifact_sha256
        cells = () if digest is None else cells_of_runs(self.a)
        return next((cell for cell in cells if cell and cell.artifact_sha256 == digest), None)

    @property
    def same_output(self) -> bool:
        """Whether both outputs are identical files."""
        return self.same_output_in_a is not None

    @property
    def is_moved_by_rules(self) -> bool:
        """Whether the verdict differs although output and scores are identical: changed rules are the only reason.

        Computed metrics count as rules.
        """
        a = self.same_output_in_a
        if a is None or a.verdict is self.b.verdict or self._measured(a) != self._measured(self.b):
            return False
        return not VERDICT_PARTS.isdisjoint(changed_parts(a.grade_key, self.b.grade_key))

    def _measured(self, cell: Cell) -> dict[str, Score]:
        return {name: score for name, score in cell.scores.items() if name not in self.computed}

    @property
    def flaky(self) -> bool:
        """Whether the case is flaky in A: B cannot excuse what A does not."""
        return self.a.flaky

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the case in either suite."""
        return tuple(dict.fromkeys((*self.b.tags, *self.a.tags)))

    @property
    def must_pass(self) -> bool:
        """Whether the case is tagged ``must_pass`` in either suite."""
        return MUST_PASS in self.b.tags or MUST_PASS in self.a.tags


class Pairs:
    """Pairs of cells that are read when they are needed."""

    def __init__(self, a: Cells, b: Cells, positions: tuple[array[int], array[int]], computed: frozenset[str]) -> None:
        """Pairs the cells at these positions of A and B."""
        self._a, self._b, self.positions, self._computed = a, b, positions, computed

    def __len__(self) -> int:
        return len(self.positions[0])

    def __getitem__(self, selected: slice) -> Pairs:
        return self.take(range(len(self))[selected])

    def __iter__(self) -> Iterator[CellPair]:
        computed, (in_a, in_b) = self._computed, self.positions
        for a, b in zip(self._a.read(in_a), self._b.read(in_b), strict=True):
            yield CellPair(a, b, computed)

    def take(self, selected: Sequence[int]) -> Pairs:
        """Some of the pairs."""
        in_a, in_b = (taken(column, selected) for column in self.positions)
        return Pairs(self._a, self._b, (in_a, in_b), self._computed)

    @property
    def columns(self) -> CellColumns:
        """The names of the cells of B."""
        return self._b.columns.take(self.positions[1])


@dataclass(frozen=True, slots=True)
class Pairing:
    """The paired cells of two runs. ``labels`` pairs model runs of A and B."""

    pairs: Pairs
    labels: tuple[tuple[str, str], ...]
    only_a: Cells
    only_b: Cells


def pair_cells(a: Side, b: Side, renamed: Mapping[str, str] | None = None) -> Pairing:
    """Pairs cells by case, sample and model run, in the order of B.

    ``labels`` are in the order of B. Two single model runs are paired regardless of their labels, and if no label is in
    both runs, model runs whose labels differ only in the prompt. ``renamed`` maps labels of A to labels of B. Raises
    ``UsageError`` if it maps two labels of A to one of B, or if no cells match.
    """
    renamed = renamed or {}
    to = set(renamed.values())
    if len(to) < len(renamed):
        raise UsageError("--map: cannot map two model runs of A to one of B")
    if not renamed and len(a.labels) == len(b.labels) == 1:
        labels = {a.labels[0]: b.labels[0]}
    else:
        same = {label: label for label in a.labels if label in b.labels and label not in renamed and label not in to}
        order = {label: at for at, label in enumerate(b.labels)}
        pairs_of_labels = ({**same, **renamed} or paired_by_prompt(a.labels, b.labels)).items()
        labels = dict(sorted(pairs_of_labels, key=lambda pair: order.get(pair[1], len(order))))
    positions: dict[tuple[str, str], dict[int, int]] = {}
    for at, (case, label, sample) in enumerate(a.cells.names()):
        if label in labels:
            positions.setdefault((case, labels[label]), {})[sample] = at
    in_a, in_b, only_b = array("i"), array("i"), array("i")
    for at, (case, label, sample) in enumerate(b.cells.names()):
        position = positions.get((case, label), {}).get(sample)
        if position is None:
            only_b.append(at)
        else:
            in_a.append(position)
            in_b.append(at)
    if not in_a:
        raise NothingInCommonError(_nothing_in_common(a, b, labels))
    paired = set(in_a)
    only_a = [at for at in range(len(a.cells)) if at not in paired]
    pairs = Pairs(a.cells, b.cells, (in_a, in_b), frozenset({*BUILT_IN, *a.sources, *b.sources}))
    return Pairing(pairs, tuple(labels.items()), a.cells.take(only_a), b.cells.take(only_b))


def parse_map(entries: Sequence[str], a: Side, b: Side) -> dict[str, str]:
    """Parses ``OLD=NEW`` into a map of labels of A to labels of B. Labels may contain ``=``.

    Raises ``UsageError`` if an entry does not match exactly one pair of labels.
    """
    mapping: dict[str, str] = {}
    for entry in entries:
        splits = [(entry[:index], entry[index + 1 :]) for index, char in enumerate(entry) if char == "="]
        matches = [(old, new) for old, new in splits if old in a.labels and new in b.labels]
        if len(matches) == 1 and matches[0][0] not in mapping:
            mapping.update(matches)
            continue
        problem = "OLD is given twice, or the labels are ambiguous" if matches else "write OLD=NEW"
        if splits and not matches:
            old, new = next((split for split in splits if split[0] in a.labels), splits[0])
            name, side = (new, b) if old in a.labels else (old, a)
            problem = f"no model run {name!r} in {side.name}{did_you_mean(name, side.labels)}"
        raise UsageError(f"--map {entry!r}: {problem}")
    return mapping


def _nothing_in_common(a: Side, b: Side, labels: Mapping[str, str]) -> str:
    if not a.cells or not b.cells:
        return f"{(a if not a.cells else b).name}: no cell matches the filters"
    are_of_two_suites = None not in (a.suite, b.suite) and a.suite != b.suite
    suites = f" ({a.name} is of the suite {a.suite}, {b.name} of {b.suite})" if are_of_two_suites else ""
    if not labels:
        return (
            f"the runs have no model run in common{suites}: {a.name} has {_few(a.labels)}; {b.name} has"
            f" {_few(b.labels)}: select one of each with RUN@LABEL, or pair them with --map OLD=NEW"
        )
    cases = [side.cells.columns.used_cases for side in (a, b)]
    return (
        f"the runs have no cell in common{suites}: {a.name} has the cases {_few(cases[0])}; {b.name} has"
        f" {_few(cases[1])}"
    )


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


@dataclass(frozen=True, slots=True)
class ComparisonFilters:
    """Limits a comparison to metrics and cases (globs) and tags. An empty filter matches everything.

    Of the cases of ``redact``, the cells have no image and no text about one.
    """

    metrics: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    redact: Redaction = NOTHING

    def covers(self, cell: Cell) -> bool:
        """Whether a cell is compared."""
        return (not self.cases or any_case(self.cases, cell.test_id)) and (
            not self.tags or not set(self.tags).isdisjoint(cell.tags)
        )


def select_cells(
    side: Side, filters: ComparisonFilters, covered: dict[str, bool]
) -> tuple[Cells, Reroutings, frozenset[str]]:
    """The cells of a side that are compared. Reads the others, and counts their reroutings. Raises ``RunFormatError``.

    ``covered`` are the decisions by case, to which it adds its own: the tags of a case are read from the first side
    that has it. The tags are those of all cells, if the filters need them.
    """
    reroutings = Reroutings(side.info)
    for cell in side.others or ():
        reroutings.add_graders(cell.graders)
    if not filters.cases and not filters.tags:
        return side.cells, reroutings, frozenset()
    positions, tags = array("i"), set[str]()
    for position, cell in enumerate(side.cells):
        tags.update(cell.tags)
        if covered.setdefault(cell.test_id, filters.covers(cell)):
            positions.append(position)
        else:
            reroutings.add_graders(cell.graders)
    return side.cells.take(positions), reroutings, frozenset(tags)


def check_filters(
    filters: ComparisonFilters, metrics: Mapping[str, Metric], sides: Sequence[Side], tags: frozenset[str]
) -> None:
    """Raises ``UsageError`` for a filter that nothing matches."""
    cases = {case for side in sides for case in side.cells.columns.used_cases}
    check_matches(
        "either run",
        ("--metric", filters.metrics, metrics),
        ("--case", filters.cases, {*cases, *map(chain_of, cases)}),
        ("--tag", filters.tags, tags),
    )


ABSENT = inf
"""The score of a metric that a cell does not have. Scores are finite; one that is ``null`` is nan."""
NO_WORDS: Mapping[str, Metric] = {}
ValueT = TypeVar("ValueT")
TagsOfPair = tuple[tuple[str, ...], tuple[str, ...]]
CaseKey = tuple[str, str]
"""A case and its model run, by the label in B."""
RunVerdicts = tuple[Verdict | None, ...]
"""The verdicts of a cell in the runs of a side, ``None`` in a run that lacks the cell."""


@dataclass(slots=True)
class PairRow:
    """What a comparison reads from a pair, without its scores.

    All turns of a case are one ``case``, and ``label`` is that of the model run in B. ``run_verdicts`` are those of
    each run of A. ``flaky`` is as A says, ``must_pass`` as either side says. ``same_output``: both outputs are the same
    file; ``same_output_broke``: that passed in A and fails in B. ``new_error``: measured in A and not in B.
    ``no_output_a`` and ``no_output_b``: the generation failed. ``match_keys`` are the keys of graders whose scores
    differences leave out.
    """

    test_id: str
    case: str
    label: str
    verdict_a: Verdict
    verdict_b: Verdict
    run_verdicts: RunVerdicts
    change: Change
    flaky: bool
    must_pass: bool
    same_output: bool
    same_output_broke: bool
    moved_by_rules: bool
    new_error: bool
    no_output_a: bool
    no_output_b: bool
    tags: TagsOfPair
    failure_tags: TagsOfPair
    match_keys: Collection[str]

    @property
    def is_measured(self) -> bool:
        """Whether both verdicts are PASS or FAIL."""
        return self.verdict_a in MEASURED and self.verdict_b in MEASURED


@dataclass(frozen=True, slots=True)
class PairTable:
    """What a comparison reads from its pairs: a row for each, in their order.

    ``scores_a`` and ``scores_b`` are the scores of each of the ``metrics`` in each pair, and ``run_scores`` those of
    each run of A. ``cost_usd`` and ``seconds`` are those of A and of B, of the pairs in which both are known.
    """

    metrics: tuple[str, ...]
    scores_a: Numbers
    scores_b: Numbers
    run_scores: Numbers
    rows: list[PairRow] = field(default_factory=list)
    cost_usd: list[tuple[float, float]] = field(default_factory=list)
    seconds: list[tuple[float, float]] = field(default_factory=list)

    @property
    def stable(self) -> list[PairRow]:
        """The rows of cases that are not flaky: only these count in the numbers and can fail a gate."""
        return [row for row in self.rows if not row.flaky]

    def flags(self, is_true: Callable[[PairRow], bool]) -> Flags:
        """Which rows a condition is true for."""
        import numpy as np

        return np.fromiter(map(is_true, self.rows), bool, len(self.rows))


def case_numbers(rows: Sequence[PairRow]) -> Numbers:
    """A number for the case of each row, the same for the same case."""
    import numpy as np

    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(row.case, len(numbers)) for row in rows], int)


def read_pairs(
    pairs: Pairs,
    metrics: Mapping[str, Metric],
    counter_examples: Collection[str],
    runs_of_a: int,
    also: Callable[[CellPair], None],
) -> PairTable:
    """Reads every pair once, and gives it to ``also`` too. Raises ``RunFormatError``.

    Differences of how well images match their prompts leave out ``counter_examples``.
    """
    import numpy as np

    names, words = tuple(metrics), {name: metric for name, metric in metrics.items() if metric.choices}
    scores_a, scores_b = np.empty((2, len(metrics), len(pairs)))
    run_scores = np.empty((runs_of_a, len(metrics), len(pairs))) if runs_of_a > 1 else scores_a[np.newaxis]
    table = PairTable(names, scores_a, scores_b, run_scores)
    known: dict[Any, Any] = {}

    def shared(value: ValueT) -> ValueT:
        """The same object for equal values."""
        return known.setdefault(value, value)  # type: ignore[no-any-return]

    for at, pair in enumerate(pairs):
        a, b = pair.a, pair.b
        also(pair)
        scores_a[:, at], scores_b[:, at] = scores_of(a, names, words), scores_of(b, names, words)
        if runs_of_a > 1:
            run_scores[:, :, at] = [scores_of(cell, names, words) for cell in cells_of_runs(a)]
        for amounts, of_a, of_b in (
            (table.cost_usd, a.total_cost_usd, b.total_cost_usd),
            (table.seconds, a.seconds, b.seconds),
        ):
            if of_a is not None and of_b is not None:
                amounts.append((of_a, of_b))
        same = pair.same_output_in_a
        table.rows.append(
            PairRow(
                test_id=shared(b.test_id),
                case=shared(chain_of(b.test_id)),
                label=shared(b.model_label),
                verdict_a=a.verdict,
                verdict_b=b.verdict,
                run_verdicts=shared(run_verdicts(a)),
                change=pair.change,
                flaky=pair.flaky,
                must_pass=pair.must_pass,
                same_output=same is not None,
                same_output_broke=same is not None and same.verdict is Verdict.PASS and b.verdict is Verdict.FAIL,
                moved_by_rules=same is not None and pair.is_moved_by_rules,
                new_error=_is_incomplete(b) and not _is_incomplete(a),
                no_output_a=_has_no_output(a),
                no_output_b=_has_no_output(b),
                tags=shared((a.tags, b.tags)),
                failure_tags=shared((a.failure_tags, b.failure_tags)),
                match_keys=match_keys((*a.graders, *b.graders)) if b.test_id in counter_examples else (),
            )
        )
    return table


def cells_of_runs(cell: Cell) -> tuple[Cell | None, ...]:
    """The same cell in each run of its side, ``None`` in a run that lacks it."""
    return cell.cells if isinstance(cell, PooledCell) else (cell,)


def run_verdicts(cell: Cell) -> RunVerdicts:
    """The verdicts of a cell in the runs of its side."""
    return tuple(None if item is None else item.verdict for item in cells_of_runs(cell))


def scores_of(cell: Cell | None, metrics: Sequence[str], words: Mapping[str, Metric] = NO_WORDS) -> list[float]:
    """The scores of a cell as numbers, a word as its place among the choices. ``words`` are the metrics of words."""
    scores: Mapping[str, Any] = {} if cell is None else cell.scores
    numbers = [nan if (score := scores.get(name, ABSENT)) is None else score for name in metrics]

    def coded(name: str, score: Any) -> float:
        """The number; nan for an unknown word, for one in the place of a number, and the other way round."""
        choices = words[name].choices if name in words else ()
        if isinstance(score, str):
            return choices.index(score) if score in choices else nan
        return nan if name in words and score != ABSENT else float(score)

    return list(map(coded, metrics, numbers)) if words or str in map(type, numbers) else numbers


def _has_no_output(cell: Cell) -> bool:
    return cell.error is not None and cell.error.stage == "generate"


def _is_incomplete(cell: Cell) -> bool:
    return cell.verdict is Verdict.ERROR or cell.is_unmeasured
