"""What is known about the judges of a run, in a terminal or a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType

from visioneval.analysis.agreement.judges import AnchorMatch, RunJudges
from visioneval.analysis.summary.judges import JudgeCard, PairCard
from visioneval.analysis.summary.summary import Summary
from visioneval.report.terminal.table import Cell, Column, table, with_title
from visioneval.report.text import plain

NOT_RECORDED = "not recorded"
CARD_COLUMNS = ("grader", "judge", "cells", "unanswered", "refused", "repaired", "against rules")
VOTE_COLUMNS = ("grader", "metric", "alpha", "cells", "all votes equal")
PAIR_COLUMNS = ("judge", "first shown [95%]", "answers", "ties", "unanswered", "refused", "repaired")
ANCHOR_COLUMNS = ("metric", "same as anchor [95%]", "anchors", "difference", "distance")
PAIR_TITLE = "Pairs: share of answers that preferred the output shown first (0.50 is fair)"
_RunCards = tuple[str, Sequence[JudgeCard], Sequence[PairCard]]
_NAMES = ("run", "grader", "judge", "metric")


def print_judges(summary: Summary, console: Console) -> None:
    """Prints the tables of one run, without empty ones."""
    for part in _tables([("", summary.judges, summary.pair_judges)], console.width):
        console.print(part)
        console.print()


def judge_tables(summary: Summary) -> list[tuple[str, Sequence[str], list[tuple[str, ...]]]]:
    """Title, header and rows of each table of one run, without empty ones."""
    tables = _contents([("", summary.judges, summary.pair_judges)])
    return [(title, columns, [row[1:] for row in rows]) for title, columns, rows in tables]


def agreement_cards(judges: Sequence[RunJudges], width: int) -> list[RenderableType]:
    """The tables of several runs, a row for each, oldest first, with the anchors of each run."""
    is_single = len(judges) == 1
    runs = [("" if is_single else entry.run_id, entry.cards, entry.pairs) for entry in judges]
    parts = _tables(runs, width)
    if any(entry.anchors for entry in judges):
        rows = [
            (entry.run_id, *cells)
            for entry in judges
            for cells in ([anchor_cells(match) for match in entry.anchors] or [("", "no anchors", "", "", "")])
        ]
        parts.append(_part("Judges against anchors, by run: a falling share is drift", ANCHOR_COLUMNS, rows, width))
    return parts


def _tables(runs: Sequence[_RunCards], width: int) -> list[RenderableType]:
    return [_part(title, columns, rows, width) for title, columns, rows in _contents(runs)]


def _contents(runs: Sequence[_RunCards]) -> list[tuple[str, Sequence[str], list[tuple[str, ...]]]]:
    """Title, header and rows of each table that is not empty; a row begins with the run, which has no header."""
    parts: tuple[tuple[str, Sequence[str], list[tuple[str, ...]]], ...] = (
        ("Judges", CARD_COLUMNS, [(run, *card_cells(card)) for run, cards, _ in runs for card in cards]),
        (
            "Votes of a judge about the same cell (Krippendorff's alpha: 1 is consistent, 0 is chance)",
            VOTE_COLUMNS,
            [(run, *cells) for run, cards, _ in runs for card in cards for cells in vote_rows(card)]
            if any(card.votes for _, cards, _ in runs for card in cards)
            else [],
        ),
        (PAIR_TITLE, PAIR_COLUMNS, [(run, *pair_cells(pair)) for run, _, pairs in runs for pair in pairs]),
    )
    return [part for part in parts if part[2]]


def _part(title: str, names: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> RenderableType:
    """A table with a column for the run, unless it is empty in all rows."""
    names = ("run", *names)
    if not any(row[0] for row in rows):
        names, rows = names[1:], [row[1:] for row in rows]
    columns = [Column(name, min_width=10) if name in _NAMES else Column(name, right=True) for name in names]
    cells: list[list[Cell]] = [[plain(cell) for cell in row] for row in rows]
    return with_title(title, table(columns, cells, width))


def card_cells(card: JudgeCard) -> tuple[str, ...]:
    """One row of ``CARD_COLUMNS``."""
    disagreement = card.disagreement
    return (
        card.grader,
        card.judge,
        f"{card.cells:,}",
        *(_share(number, card.cells) for number in (card.unanswered, card.refused, card.repaired)),
        "no verdict" if disagreement is None else f"{disagreement.disagreed} of {disagreement.judged}",
    )


def vote_rows(card: JudgeCard) -> Iterator[tuple[str, ...]]:
    """Rows of ``VOTE_COLUMNS``."""
    for votes in card.votes:
        alpha = votes.note or "-" if votes.alpha is None else f"{votes.alpha:.3f}"
        yield card.grader, votes.metric, alpha, f"{votes.items:,}", "-" if votes.same is None else f"{votes.same:.0%}"
    if not card.votes:
        yield card.grader, "", "no votes", "", ""


def pair_cells(pair: PairCard) -> tuple[str, ...]:
    """One row of ``PAIR_COLUMNS``."""
    share = "no answers" if pair.first_shown is None else _interval(pair.first_shown, pair.low, pair.high)
    asked = pair.answers + pair.ties + pair.unanswered
    counts = (_share(number, asked) for number in (pair.unanswered, pair.refused, pair.repaired))
    return pair.judge, share, f"{pair.answers:,}", f"{pair.ties:,}", *counts


def anchor_cells(match: AnchorMatch) -> tuple[str, ...]:
    """One row of ``ANCHOR_COLUMNS``."""
    same = "not measured" if match.same is None else _interval(match.same, match.low, match.high)
    missing = f" !{match.unmeasured}" if match.unmeasured else ""
    difference = "" if match.higher is None else f"{match.higher:+.2f}"
    distance = "" if match.distance is None else f"{match.distance:.2f}"
    return match.metric, same, f"{match.n:,}{missing}", difference, distance


def _share(number: int | None, total: int) -> str:
    if number is None:
        return NOT_RECORDED
    return f"{number:,} ({number / total:.0%})" if number else "0"


def _interval(value: float, low: float | None, high: float | None) -> str:
    return f"{value:.2f}" if low is None or high is None else f"{value:.2f} [{low:.2f}, {high:.2f}]"
