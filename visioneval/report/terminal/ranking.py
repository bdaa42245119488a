"""Rankings of model runs in a terminal or a pipe."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.text import Text

from visioneval.analysis.ranking.findings import RankedRun, Ranking, Rankings
from visioneval.report.ranking_texts import ABOUT, by_group, ranking_title, show_chance, show_rank, show_strength
from visioneval.report.terminal.table import Cell, Column, table
from visioneval.report.text import plain

COLUMNS = (
    Column("rank [95%]"),
    Column("model run", min_width=16),
    Column("strength [95%]", right=True),
    Column("chance [95%]", right=True),
    Column("wins", right=True),
    Column("losses", right=True),
    Column("ties", right=True),
    Column("pairs", right=True),
)


def print_rankings(rankings: Rankings, console: Console) -> None:
    """Prints one table for each ranking and group, with what could not be ranked."""
    for line in rankings.gaps:
        console.print(plain(line, "yellow"))
    for line in rankings.notes:
        console.print(plain(line, "dim"))
    for at, ranking in enumerate(rankings.rankings):
        if at or rankings.gaps or rankings.notes:
            console.print()
        for part in _parts(ranking, console.width):
            console.print(part)
    if rankings.rankings:
        console.print()
        console.print(Text(ABOUT, style="dim"))


def _parts(ranking: Ranking, width: int) -> Iterator[RenderableType]:
    yield plain(ranking_title(ranking), "bold")
    yield from (plain(line, "yellow") for line in ranking.gaps)
    for heading, entries in by_group(ranking):
        if heading:
            yield Text(heading)
        yield table(COLUMNS, [_row(entry) for entry in entries], width)
    yield from (plain(line, "dim") for line in ranking.notes)


def _row(entry: RankedRun) -> list[Cell]:
    counts = (entry.wins, entry.losses, entry.ties, entry.pairs)
    texts = [show_rank(entry), entry.name, show_strength(entry), show_chance(entry)]
    return [*texts, *(f"{count:,}" for count in counts)]
