"""Pairwise preferences of judges: a section of a report, and JSON data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from visioneval.analysis.preferences import PreferenceFinding
from visioneval.report.sections import Cell, Column, Section, quoted
from visioneval.report.text import alpha_text, one_line

MAX_CELLS = 10
_COUNTS = ("B wins", "A wins", "ties", "flips", "errors", "pairs")


def preferences_section(preferences: Sequence[PreferenceFinding]) -> Section:
    """Win rates, and the cases where A won or that were not judged."""
    rows: list[list[Cell]] = [
        [
            *map(quoted, (item.a, item.b, item.judge)),
            show_win_rate(item),
            *map(str, (item.count("b"), item.count("a"), item.ties, item.flips, item.errors, item.judged)),
        ]
        for item in preferences
    ]
    columns = (
        *(Column(name, min_width=width) for name, width in (("A", 12), ("B", 12), ("judge", 10))),
        *(Column(name, is_number=True) for name in ("rate of B [95%]", *_COUNTS)),
    )
    notes = [quoted(note) for item in preferences for note in _notes(item)]
    return Section("Preferences (a tie counts as half; a flip counts as a tie)", columns, rows, notes)


def _notes(preference: PreferenceFinding) -> Iterator[str]:
    if preference.alpha is not None:
        yield f"{preference.judge}: {alpha_text(preference.alpha)} between its judges"
    for title, result in (("A preferred", "a"), ("not judged", "error")):
        cells = [f"{pair.test_id} [{pair.sample_index}]" for pair in preference.pairs if pair.result == result]
        more = f" and {len(cells) - MAX_CELLS} more" if len(cells) > MAX_CELLS else ""
        if cells:
            yield f"{title}: {one_line(', '.join(cells[:MAX_CELLS]), 1000)}{more}"


def show_win_rate(preference: PreferenceFinding) -> str:
    """``0.72 [0.61, 0.81]``."""
    if preference.rate is None or preference.interval is None:
        return "-"
    return f"{preference.rate:.2f} [{preference.interval.low:.2f}, {preference.interval.high:.2f}]"


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
