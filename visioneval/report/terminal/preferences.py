"""Pairwise preferences of judges, for a terminal and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from visioneval.analysis.compare.preferences import PreferenceFinding, Result
from visioneval.report.terminal.table import Cell, Column, table, with_title
from visioneval.report.text import alpha_text, one_line, plain

MAX_CELLS = 10
COLUMNS = (
    Column("A", min_width=12),
    Column("B", min_width=12),
    Column("judge", min_width=10),
    Column("rate of B [95%]", right=True),
    Column("B wins", right=True),
    Column("A wins", right=True),
    Column("ties", right=True),
    Column("flips", right=True),
    Column("errors", right=True),
    Column("pairs", right=True),
)


def print_preferences(preferences: Sequence[PreferenceFinding], console: Console) -> None:
    """Prints win rates, and the cases where A won or that were not judged."""
    rows: list[list[Cell]] = [
        [
            preference.a,
            preference.b,
            preference.judge,
            show_win_rate(preference),
            *(
                str(count)
                for count in (
                    preference.count("b"),
                    preference.count("a"),
                    preference.ties,
                    preference.flips,
                    preference.errors,
                    preference.judged,
                )
            ),
        ]
        for preference in preferences
    ]
    console.print(
        with_title("Preferences (a tie counts as half; a flip counts as a tie)", table(COLUMNS, rows, console.width))
    )
    for preference in preferences:
        if preference.alpha is not None:
            console.print(plain(f"{preference.judge}: {alpha_text(preference.alpha)} between its judges"))
        for title, cells in (("A preferred", _cells(preference, "a")), ("not judged", _cells(preference, "error"))):
            if cells:
                console.print(plain(f"{title}: {cells}"))


def show_win_rate(preference: PreferenceFinding) -> str:
    """``0.72 [0.61, 0.81]``."""
    if preference.rate is None or preference.interval is None:
        return "-"
    return f"{preference.rate:.2f} [{preference.interval.low:.2f}, {preference.interval.high:.2f}]"


def _cells(preference: PreferenceFinding, result: Result) -> str:
    cells = [f"{pair.test_id} {pair.sample_index}" for pair in preference.pairs if pair.result == result]
    suffix = f" and {len(cells) - MAX_CELLS} more" if len(cells) > MAX_CELLS else ""
    return one_line(", ".join(cells[:MAX_CELLS]), 1000) + suffix


def preference_data(preference: PreferenceFinding) -> dict[str, Any]:
    """The preferences as JSON data."""
    return {
        "a": preference.a,
        "b": preference.b,
        "judge": preference.judge,
        "b_win_rate": preference.rate,
        "interval": None if preference.interval is None else [preference.interval.low, preference.interval.high],
        "judged": preference.judged,
        "b_wins": preference.count("b"),
        "a_wins": preference.count("a"),
        "ties": preference.ties,
        "flips": preference.flips,
        "errors": preference.errors,
        **({"panel": list(preference.panel)} if preference.panel else {}),
        **({"alpha": preference.alpha.model_dump()} if preference.alpha else {}),
        "pairs": [
            {"test_id": pair.test_id, "sample_index": pair.sample_index, "result": pair.result}
            for pair in preference.pairs
        ],
    }
