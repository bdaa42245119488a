"""People's preferences between two images, and pairwise judges compared with them, in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from visioneval.analysis.agreement.agreement import Agreement
from visioneval.analysis.agreement.judges import HumanPreferences, PairwiseJudgeAgreement
from visioneval.analysis.stats.basic import Statistic
from visioneval.report.terminal.table import Cell, Column, table, with_title


def pair_tables(agreement: Agreement, width: int) -> Iterator[RenderableType]:
    """The tables of pairs; none without labels of pairs."""
    if agreement.preferences:
        yield with_title("People's preferences (a tie counts as half)", _preferences(agreement.preferences, width))
    if agreement.pairwise_judges:
        title = (
            "Pairwise judges and people (accuracy where people are decided; a tie or flip of the judge counts as half)"
        )
        yield with_title(title, _judges(agreement.pairwise_judges, width))


def _preferences(preferences: Sequence[HumanPreferences], width: int) -> RenderableType:
    columns = (
        Column("question", min_width=10),
        Column("A", min_width=10),
        Column("B", min_width=10),
        Column("rate of B [95%]", right=True),
        Column("B wins", right=True),
        Column("A wins", right=True),
        Column("ties", right=True),
        Column("pairs", right=True),
        Column("raters", right=True),
    )
    rows: list[tuple[Cell, ...]] = [
        (row.question, row.a, row.b, _interval(row.b_win_rate), str(row.b_wins), str(row.a_wins), str(row.ties),
         str(row.b_win_rate.n), str(row.raters))
        for row in preferences
    ]  # fmt: skip
    return table(columns, rows, width)


def _judges(judges: Sequence[PairwiseJudgeAgreement], width: int) -> RenderableType:
    columns = (
        Column("question", min_width=10),
        Column("judge", min_width=10),
        Column("accuracy [95%]", right=True),
        Column("decided", right=True),
        Column("kappa [95%]", right=True),
        Column("pairs", right=True),
        Column("flips", right=True),
        Column("not judged", right=True),
        Column("", min_width=16),
    )
    rows: list[tuple[Cell, ...]] = [
        (row.question, row.judge, _interval(row.accuracy), str(row.decided), _interval(row.kappa), str(row.pairs),
         str(row.flips), str(row.unjudged), "; ".join(dict.fromkeys(_notes(row))))
        for row in judges
    ]  # fmt: skip
    return table(columns, rows, width)


def _notes(judge: PairwiseJudgeAgreement) -> Iterator[str]:
    for name, measure in (("accuracy", judge.accuracy), ("kappa", judge.kappa)):
        if measure.note:
            yield f"{name}: {measure.note}"


def _interval(measure: Statistic) -> str:
    if measure.value is None:
        return "-"
    if measure.low is None or measure.high is None:
        return f"{measure.value:.2f}"
    return f"{measure.value:.2f} [{measure.low:.2f}, {measure.high:.2f}]"
