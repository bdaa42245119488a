"""Filters of a comparison, which apply while cells are read. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from visioneval.analysis.cells import Cell, Cells
from visioneval.analysis.rerouting import Reroutings
from visioneval.analysis.sides import Side
from visioneval.errors import UsageError
from visioneval.suite.filters import any_case, any_glob
from visioneval.suite.loading.messages import did_you_mean
from visioneval.suite.turns import chain_of
from visioneval.types import Metric


@dataclass(frozen=True, slots=True)
class ComparisonFilters:
    """Limits a comparison to metrics and cases (globs) and tags. An empty filter matches everything."""

    metrics: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()

    def covers(self, cell: Cell) -> bool:
        """Whether a cell is compared."""
        return (not self.cases or any_case(self.cases, cell.test_id)) and (
            not self.tags or not set(self.tags).isdisjoint(cell.tags)
        )


@dataclass(frozen=True, slots=True)
class SelectedCells:
    """The cells of a side that are compared.

    ``reroutings`` has counted the cells of its run that are not, and ``tags`` are those of all its cells if the filters
    need them.
    """

    side: Side
    cells: Cells
    reroutings: Reroutings
    tags: frozenset[str] = frozenset()


def select_cells(side: Side, filters: ComparisonFilters, covered: dict[str, bool]) -> SelectedCells:
    """Reads the cells that are not compared, and leaves them. Raises ``RunFormatError``.

    ``covered`` are the decisions by case, to which it adds its own: the tags of a case are read from the first side
    that has it.
    """
    reroutings = Reroutings(side.info)
    for cell in side.others or ():
        reroutings.add_graders(cell.graders)
    if not filters.cases and not filters.tags:
        return SelectedCells(side, side.cells, reroutings)
    positions, tags = array("i"), set[str]()
    for position, cell in enumerate(side.cells):
        tags.update(cell.tags)
        if covered.setdefault(cell.test_id, filters.covers(cell)):
            positions.append(position)
        else:
            reroutings.add_graders(cell.graders)
    return SelectedCells(side, side.cells.take(positions), reroutings, frozenset(tags))


def check_filters(
    filters: ComparisonFilters, metrics: Mapping[str, Metric], selections: Sequence[SelectedCells]
) -> None:
    """Raises ``UsageError`` for a filter that nothing matches."""
    cases = {case for selection in selections for case in selection.side.cells.columns.used_cases}
    for flag, patterns, names in (
        ("--metric", filters.metrics, {*metrics}),
        ("--case", filters.cases, {*cases, *map(chain_of, cases)}),
        ("--tag", filters.tags, {tag for selection in selections for tag in selection.tags}),
    ):
        for pattern in patterns:
            if not any(any_glob((pattern,), name) for name in names):
                raise UsageError(f"{flag} {pattern!r}: no match in either run{did_you_mean(pattern, names)}")
