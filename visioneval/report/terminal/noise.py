"""Where the noise of a run is, in a terminal or a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType

from visioneval.analysis.summary.variance import LEVERS, NoiseFinding
from visioneval.report.terminal.table import Cell, Column, table, with_title
from visioneval.report.text import plain

TITLE = "Where the noise is: shares of the variance of a cell, and half the 95% interval of a model run"

_COLUMNS = ("case", "sample", "vote", "now", *(f"2x {lever}" for lever in LEVERS))

PAIRED = (
    "A comparison of two runs looks at the same cases in both: how much the cases differ does not matter there, but"
    " repeated samples and votes help."
)


def print_noise(noise: Sequence[NoiseFinding], console: Console) -> None:
    """Prints the table, if anything was measured."""
    if noise:
        console.print(noise_table(noise, console.width))
        console.print()


def noise_table(noise: Sequence[NoiseFinding], width: int) -> RenderableType:
    """One row for the pass rate and for each metric, then what narrows the intervals, and what cannot be separated."""
    names, noise_cells = noise_rows(noise)
    columns = (Column("", min_width=12), *(Column(name, right=True) for name in names))
    rows: list[list[Cell]] = [[plain(name), *cells] for name, cells in noise_cells]
    lines = (plain(line) for line in noise_lines(noise))
    return Group(with_title(TITLE, table(columns, rows, width)), *lines)


def noise_rows(noise: Sequence[NoiseFinding]) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """The names of the columns, and a name with its cells for everything that varies. Leaves out columns of dashes."""
    rows = [(finding.name, _cells(finding)) for finding in noise if finding.varies]
    shown = [at for at in range(len(_COLUMNS)) if any(cells[at] != "-" for _, cells in rows)]
    return [_COLUMNS[at] for at in shown], [(name, [cells[at] for at in shown]) for name, cells in rows]


def _cells(finding: NoiseFinding) -> list[str]:
    """The shares of the components, the half-width, and the half-widths with twice as much; ``-`` if unknown."""
    parts = (finding.case, finding.sample, None if finding.vote is None else finding.vote / finding.votes)
    total = sum(part or 0.0 for part in parts)
    is_split = sum(part is not None for part in parts) > 1
    shares = [f"{part / total:.0%}" if part is not None and is_split else "-" for part in parts]
    widths = (finding.half_width, *(finding.doubled.get(lever) for lever in LEVERS))
    return [*shares, *("-" if width is None else f"{width:.3g}" for width in widths)]


def noise_lines(noise: Sequence[NoiseFinding]) -> Iterator[str]:
    """Sentences about what narrows the intervals most and what cannot be separated, with the names they apply to."""
    by_best: dict[tuple[str, ...], list[str]] = {}
    by_note: dict[str, list[str]] = {}
    for finding in noise:
        if len(finding.doubled) > 1:
            by_best.setdefault(finding.best, []).append(finding.name)
        for note in finding.notes:
            by_note.setdefault(note, []).append(finding.name)
    for best, names in by_best.items():
        yield f"For a more certain number, more {' or more '.join(best)} help most: {', '.join(names)}"
    if by_best:
        yield PAIRED
    for note, names in by_note.items():
        yield f"{', '.join(names)}: {note}"
