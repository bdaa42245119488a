"""Rankings as Markdown, for a job summary or a comment on a pull request.

Text from a suite or a model is put in code spans, which render no links, mentions or markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from visioneval.analysis.ranking.findings import Ranking, Rankings
from visioneval.report.ranking_texts import ABOUT, by_group, ranking_title, show_chance, show_rank, show_strength
from visioneval.report.text import one_line


def code(text: str) -> str:
    """Text on one line, in a code span."""
    flat = one_line(text)
    if not flat:
        return ""
    fence = "`" * (max((len(run) for run in re.findall("`+", flat)), default=0) + 1)
    pad = " " if "`" in (flat[0], flat[-1]) else ""
    return f"{fence}{pad}{flat}{pad}{fence}"


def rankings_markdown(rankings: Rankings) -> str:
    """Rankings: what could not be ranked, then one table for each ranking and group."""
    return "\n\n".join(_rankings(rankings)) + "\n"


def _rankings(rankings: Rankings) -> Iterator[str]:
    yield f"## visioneval rank{': incomplete' if rankings.exit_code else ''}"
    yield from (f"**{code(line)}**" for line in rankings.gaps)
    yield from map(code, rankings.notes)
    for ranking in rankings.rankings:
        yield f"### {code(ranking_title(ranking))}"
        yield from (f"**{code(line)}**" for line in ranking.gaps)
        yield from _ranking_tables(ranking)
        yield from map(code, ranking.notes)
    if rankings.rankings:
        yield ABOUT


def _ranking_tables(ranking: Ranking) -> Iterator[str]:
    head = ("rank [95%]", "model run", "strength [95%]", "chance [95%]", "wins", "losses", "ties", "pairs")
    for heading, entries in by_group(ranking):
        rows = [
            (show_rank(entry), code(entry.name), show_strength(entry), show_chance(entry),
             *(f"{count:,}" for count in (entry.wins, entry.losses, entry.ties, entry.pairs)))
            for entry in entries
        ]  # fmt: skip
        yield f"{heading}\n\n{_table(head, rows)}" if heading else _table(head, rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Escapes ``|`` only here: inside a table it ends a cell, even within a code span."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_escape_bar(cell) for cell in line)} |" for line in lines)


def _escape_bar(cell: str) -> str:
    return cell.replace("|", "\\|")
