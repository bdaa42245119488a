"""Rankings of model runs as a report: one section for each ranking and group, and the answers pair by pair.

The preferences of pairwise judges that they come from, as a section and as JSON data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil, floor, log10
from typing import Any

from visioneval.analysis.preferences import IntervalEstimate, PreferenceFinding, RankedRun, Ranking, Rankings
from visioneval.errors import count_of
from visioneval.report.sections import (
    Cell,
    Column,
    Interval,
    Outcome,
    Report,
    Section,
    Value,
    dim,
    numbers,
    quoted,
    texts,
)
from visioneval.report.text import alpha_text, one_line, with_interval

MAX_COMPARISONS = 500
_ABOUT = (
    "strength: log-odds from the mean; chance: to win against a model run of mean strength; a tie counts as half, and a"
    " flip as a tie"
)
MAX_CELLS = 10
_COUNTS = ("B wins", "A wins", "ties", "flips", "errors", "pairs")


def ranking_report(rankings: Rankings) -> Report:
    """What could be ranked, and what could not."""
    sections = [section for ranking in rankings.rankings for section in _sections(ranking)]
    ranked = {run.model_run for ranking in rankings.rankings for run in ranking.model_runs if run.rank is not None}
    sentence = f"{'Incomplete: ' if rankings.exit_code else ''}{count_of(len(ranked), 'model run')} ranked"
    return Report(
        title="visioneval rank",
        subject=", ".join(rankings.runs),
        outcome=Outcome("error" if rankings.exit_code else "plain", sentence, rankings.exit_code),
        lines=[*(quoted(line, "error") for line in rankings.gaps), *(quoted(line, "dim") for line in rankings.notes)],
        sections=[*sections, Section("", notes=[dim(_ABOUT)])] if sections else [],
    )


def _sections(ranking: Ranking) -> Iterator[Section]:
    by = f"the judge {ranking.judge}"
    if ranking.judge is None:
        by = f"{'1 person' if ranking.raters == 1 else f'{ranking.raters or 0:,} people'} ({ranking.question})"
    pairs = f"{count_of(ranking.pairs, 'pair')} in {count_of(ranking.cases, 'case')}"
    title = f"Ranking by {by}: {count_of(len(ranking.model_runs), 'model run')}, {pairs}"
    about: list[Cell] = [quoted(line, "error") for line in ranking.gaps]
    groups = sorted({entry.group for entry in ranking.model_runs})
    for group in groups:
        entries = [entry for entry in ranking.model_runs if entry.group == group]
        heading = [f"Group {group} of {len(groups)}"] if len(groups) > 1 else []
        notes = [quoted(line, "dim") for line in ranking.notes] if group == groups[-1] else []
        yield replace(_group(entries), title=title, about=[*about, *heading], notes=notes)
        title, about = "", []
    counts = numbers("A wins", "B wins", "ties", "flips", "not judged", "chance of A [95%]")
    rows: list[list[Cell]] = [
        [
            *map(quoted, (pair.a, pair.b)),
            *(f"{count:,}" for count in (pair.a_wins, pair.b_wins, pair.ties, pair.flips, pair.unanswered)),
            _estimate(pair.difference and pair.difference.as_chance()),
        ]
        for pair in ranking.comparisons[:MAX_COMPARISONS]
    ]
    more = len(ranking.comparisons) - len(rows)
    notes = [dim(f"... and {more:,} more: see --json")] if more > 0 else []
    yield Section(
        f"By {by}", [*texts("A", "B"), *counts], rows, notes, fold="Pair by pair", is_cut=True, name="comparisons"
    )


def _group(entries: Sequence[RankedRun]) -> Section:
    """The table of a group, with a plot of strengths."""
    marks = _ticks(entries)
    rows: list[list[Cell]] = []
    for entry in entries:
        strength = entry.strength
        ends = marks[0], marks[-1]
        plot = Interval(strength.low, strength.value, strength.high, ends, marks) if strength is not None else None
        rank = with_interval(entry.rank, entry.low_rank, entry.high_rank, "d")
        counts = (f"{count:,}" for count in (entry.wins, entry.losses, entry.ties, entry.pairs))
        shown = Value(_estimate(strength, "+.2f"), plot=plot)
        rows.append([rank, quoted(entry.name), shown, _estimate(entry.chance), *counts])
    axis = tuple(f"{mark:+.3g}" if mark else "0" for mark in marks)
    strengths = Column("strength [95%]", is_number=True, axis=axis)
    others = numbers("chance [95%]", "wins", "losses", "ties", "pairs")
    return Section("", [Column("rank [95%]"), *texts("model run"), strengths, *others], rows, name="ranking")


def _estimate(estimate: IntervalEstimate | None, form: str = ".2f") -> str:
    return "-" if estimate is None else with_interval(estimate.value, estimate.low, estimate.high, form)


def _ticks(entries: Sequence[RankedRun]) -> tuple[float, ...]:
    """Round numbers for an axis with all strengths, their intervals and zero on it."""
    strengths = [entry.strength for entry in entries if entry.strength is not None]
    ends = [end for strength in strengths for end in (strength.low, strength.value, strength.high)]
    values = [0.0, *(end for end in ends if end is not None)]
    values = values if any(values) else [-1.0, 1.0]
    rough = (max(values) - min(values)) / 5
    power = 10.0 ** floor(log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return tuple(at * step for at in range(floor(min(values) / step), ceil(max(values) / step) + 1))


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
    columns = [Column(name, min_width=width) for name, width in (("A", 12), ("B", 12), ("judge", 10))]
    columns += numbers("rate of B [95%]", *_COUNTS)
    notes: list[Cell] = []
    for item in preferences:
        if item.alpha is not None:
            notes.append(quoted(f"{item.judge}: {alpha_text(item.alpha)} between its judges"))
        for title, result in (("A preferred", "a"), ("not judged", "error")):
            cells = [f"{pair.test_id} [{pair.sample_index}]" for pair in item.pairs if pair.result == result]
            more = f" and {len(cells) - MAX_CELLS} more" if len(cells) > MAX_CELLS else ""
            if cells:
                notes.append(quoted(f"{title}: {one_line(', '.join(cells[:MAX_CELLS]), 1000)}{more}"))
    return Section("Preferences (a tie counts as half; a flip counts as a tie)", columns, rows, notes)


def show_win_rate(preference: PreferenceFinding) -> str:
    """``0.72 [0.61, 0.81]``."""
    interval = preference.interval
    return "-" if interval is None else with_interval(preference.rate, interval.low, interval.high)


def preference_data(preference: PreferenceFinding) -> dict[str, Any]:
    """The preferences as JSON data."""
    interval = preference.interval
    return {
        **{name: getattr(preference, name) for name in ("a", "b", "judge")},
        "b_win_rate": preference.rate,
        "interval": None if interval is None else [interval.low, interval.high],
        "judged": preference.judged,
        "b_wins": preference.count("b"),
        "a_wins": preference.count("a"),
        **{name: getattr(preference, name) for name in ("ties", "flips", "errors")},
        **({"panel": list(preference.panel)} if preference.panel else {}),
        **({"alpha": preference.alpha.model_dump()} if preference.alpha else {}),
        "pairs": [
            {"test_id": pair.test_id, "sample_index": pair.sample_index, "result": pair.result}
            for pair in preference.pairs
        ],
    }
