"""Rankings of model runs as a report: one section for each ranking and group, and the answers pair by pair."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil, floor, log10

from visioneval.analysis.preferences import HeadToHead, IntervalEstimate, RankedRun, Ranking, Rankings
from visioneval.errors import count_of
from visioneval.report.numbers import with_interval
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

MAX_COMPARISONS = 500
_ABOUT = (
    "strength: log-odds from the mean; chance: to win against a model run of mean strength; a tie counts as half, and a"
    " flip as a tie"
)


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
    rows = [_comparison(comparison) for comparison in ranking.comparisons[:MAX_COMPARISONS]]
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
        plot = None
        if strength is not None:
            plot = Interval(strength.low, strength.value, strength.high, (marks[0], marks[-1]), marks)
        rank = with_interval(entry.rank, entry.low_rank, entry.high_rank, "d")
        counts = (f"{count:,}" for count in (entry.wins, entry.losses, entry.ties, entry.pairs))
        shown = Value(_estimate(strength, "+.2f"), plot=plot)
        rows.append([rank, quoted(entry.name), shown, _estimate(entry.chance), *counts])
    axis = tuple(f"{mark:+.3g}" if mark else "0" for mark in marks)
    strengths = Column("strength [95%]", is_number=True, axis=axis)
    others = numbers("chance [95%]", "wins", "losses", "ties", "pairs")
    return Section("", [Column("rank [95%]"), *texts("model run"), strengths, *others], rows, name="ranking")


def _comparison(comparison: HeadToHead) -> list[Cell]:
    counts = (comparison.a_wins, comparison.b_wins, comparison.ties, comparison.flips, comparison.unanswered)
    chance = comparison.difference and comparison.difference.as_chance()
    return [quoted(comparison.a), quoted(comparison.b), *(f"{count:,}" for count in counts), _estimate(chance)]


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
