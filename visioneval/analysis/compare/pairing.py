"""Which cells of two runs are compared: filters, pairs of cells, and how their verdicts changed. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from visioneval.analysis.cells import Cell, Cells, PooledCell
from visioneval.analysis.redaction import NOTHING, Redaction
from visioneval.analysis.rerouting import Reroutings
from visioneval.analysis.sides import Side
from visioneval.errors import UsageError, did_you_mean
from visioneval.records.model import VERDICT_PARTS, changed_parts
from visioneval.records.reader import CellColumns, taken
from visioneval.suite.cases.prompts import paired_by_prompt
from visioneval.suite.filters import BUILT_IN, any_case, check_matches
from visioneval.suite.turns import chain_of
from visioneval.types import MUST_PASS, Metric, Score, Verdict

Change = Literal["broken", "error_after", "fixed", "error_before", "still_failing", "still_error", "still_passing"]
CHANGES: tuple[Change, ...] = (
    "broken",
    "error_after",
    "fixed",
    "error_before",
    "still_failing",
    "still_error",
    "still_passing",
)
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
        if self.b.artifact_sha256 is None:
            return None
        cells = self.a.cells if isinstance(self.a, PooledCell) else (self.a,)
        return next((cell for cell in cells if cell and cell.artifact_sha256 == self.b.artifact_sha256), None)

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
    labels = _labels(a, b, renamed or {})
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
        raise UsageError(_nothing_in_common(a, b, labels))
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
        if len(matches) != 1 or matches[0][0] in mapping:
            raise UsageError(f"--map {entry!r}: {_map_problem(splits, len(matches), a, b)}")
        mapping.update(matches)
    return mapping


def _map_problem(splits: Sequence[tuple[str, str]], matches: int, a: Side, b: Side) -> str:
    if not splits:
        return "write OLD=NEW"
    if matches:
        return "OLD is given twice, or the labels are ambiguous"
    for old, new in splits:
        if old in a.labels:
            return f"no model run {new!r} in {b.name}{did_you_mean(new, b.labels)}"
    return f"no model run {splits[0][0]!r} in {a.name}{did_you_mean(splits[0][0], a.labels)}"


def _labels(a: Side, b: Side, renamed: Mapping[str, str]) -> dict[str, str]:
    if len(set(renamed.values())) < len(renamed):
        raise UsageError("--map: cannot map two model runs of A to one of B")
    if not renamed and len(a.labels) == len(b.labels) == 1:
        return {a.labels[0]: b.labels[0]}
    taken = set(renamed.values())
    same = {label: label for label in a.labels if label in b.labels and label not in renamed and label not in taken}
    labels = {**same, **renamed} or paired_by_prompt(a.labels, b.labels)
    order = {label: at for at, label in enumerate(b.labels)}
    return dict(sorted(labels.items(), key=lambda pair: order.get(pair[1], len(order))))


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
