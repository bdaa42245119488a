"""Texts of a ranking for terminal, HTML and Markdown. The caller escapes them."""

from __future__ import annotations

from collections.abc import Iterator

from visioneval.analysis.ranking.findings import HeadToHead, IntervalEstimate, RankedRun, Ranking
from visioneval.errors import count_of

ABOUT = (
    "strength: log-odds from the mean; chance: to win against a model run of mean strength; a tie counts as half, and a"
    " flip as a tie"
)


def ranking_title(ranking: Ranking) -> str:
    """Who ranked what."""
    by = f"the judge {ranking.judge}" if ranking.judge is not None else _people(ranking)
    pairs = f"{count_of(ranking.pairs, 'pair')} in {count_of(ranking.cases, 'case')}"
    return f"Ranking by {by}: {count_of(len(ranking.model_runs), 'model run')}, {pairs}"


def _people(ranking: Ranking) -> str:
    people = "1 person" if ranking.raters == 1 else f"{ranking.raters or 0:,} people"
    return f"{people} ({ranking.question})"


def by_group(ranking: Ranking) -> Iterator[tuple[str, list[RankedRun]]]:
    """The model runs of each group, with a heading if there are several groups."""
    groups = sorted({entry.group for entry in ranking.model_runs})
    for group in groups:
        heading = f"Group {group} of {len(groups)}" if len(groups) > 1 else ""
        yield heading, [entry for entry in ranking.model_runs if entry.group == group]


def show_rank(entry: RankedRun) -> str:
    """``2 [1, 3]``."""
    if entry.rank is None:
        return "-"
    return str(entry.rank) if entry.low_rank is None else f"{entry.rank} [{entry.low_rank}, {entry.high_rank}]"


def show_strength(entry: RankedRun) -> str:
    """``+0.42 [-0.10, +0.94]``."""
    return _show(entry.strength, "+.2f")


def show_chance(entry: RankedRun | HeadToHead) -> str:
    """``0.60 [0.48, 0.72]``: against a model run of mean strength, or of A against B."""
    if isinstance(entry, RankedRun):
        return _show(entry.chance, ".2f")
    return _show(entry.difference and entry.difference.as_chance(), ".2f")


def _show(estimate: IntervalEstimate | None, form: str) -> str:
    if estimate is None:
        return "-"
    value = format(estimate.value, form)
    if estimate.low is None or estimate.high is None:
        return value
    return f"{value} [{format(estimate.low, form)}, {format(estimate.high, form)}]"
