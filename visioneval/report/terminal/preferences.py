"""What judges preferred, in a terminal and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from visioneval.analysis.compare.preferences import PreferenceFinding, Result
from visioneval.report.terminal.table import Cell, Column, table, titled
from visioneval.report.text import one_line, plain

SHOWN = 10
COLUMNS = (
    Column("A", least=12),
    Column("B", least=12),
    Column("judge", least=10),
    Column("rate of B [95%]", right=True),
    Column("B wins", right=True),
    Column("A wins", right=True),
    Column("ties", right=True),
    Column("flips", right=True),
    Column("errors", right=True),
    Column("pairs", right=True),
)


def print_preferences(found: Sequence[PreferenceFinding], console: Console) -> None:
    """Win rates, and the cases in which A was preferred or that could not be judged."""
    rows: list[list[Cell]] = [
        [
            one.a,
            one.b,
            one.judge,
            shown_rate(one),
            *(str(many) for many in (one.count("b"), one.count("a"), one.ties, one.flips, one.errors, one.judged)),
        ]
        for one in found
    ]
    console.print(titled("Preferences: ties count half, and flips are ties", table(COLUMNS, rows, console.width)))
    for one in found:
        for what, cells in (("A preferred", _cells(one, "a")), ("not judged", _cells(one, "error"))):
            if cells:
                console.print(plain(f"{what}: {cells}"))


def shown_rate(found: PreferenceFinding) -> str:
    """``0.72 [0.61, 0.81]``."""
    if found.rate is None or found.interval is None:
        return "-"
    return f"{found.rate:.2f} [{found.interval.low:.2f}, {found.interval.high:.2f}]"


def _cells(found: PreferenceFinding, result: Result) -> str:
    own = [f"{pair.test_id} {pair.sample_index}" for pair in found.pairs if pair.result == result]
    more = f" and {len(own) - SHOWN} more" if len(own) > SHOWN else ""
    return one_line(", ".join(own[:SHOWN]), 1000) + more


def preference_data(found: PreferenceFinding) -> dict[str, Any]:
    """The findings for programs."""
    return {
        "a": found.a,
        "b": found.b,
        "judge": found.judge,
        "b_win_rate": found.rate,
        "interval": None if found.interval is None else [found.interval.low, found.interval.high],
        "judged": found.judged,
        "b_wins": found.count("b"),
        "a_wins": found.count("a"),
        "ties": found.ties,
        "flips": found.flips,
        "errors": found.errors,
        "pairs": [
            {"test_id": pair.test_id, "sample_index": pair.sample_index, "result": pair.result} for pair in found.pairs
        ],
    }
