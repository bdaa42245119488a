"""Rankings as one HTML file with a plot of strengths. No script and no network access."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any

from visioneval.analysis.ranking.findings import RankedRun, Ranking, Rankings
from visioneval.report.html.pages import policy, render, style
from visioneval.report.ranking_texts import ABOUT, by_group, ranking_title, show_chance, show_rank, show_strength

WIDTH, PAD = 320.0, 12.0
_TICKS = 5
MAX_COMPARISONS = 500


@dataclass(frozen=True, slots=True)
class Dot:
    """A strength and its interval as x coordinates."""

    low: float | None
    value: float
    high: float | None


@dataclass(frozen=True, slots=True)
class Axis:
    """A scale of log-odds from ``low`` to ``high``, with ticks at round numbers."""

    low: float
    high: float
    step: float

    @classmethod
    def around(cls, entries: Sequence[RankedRun]) -> Axis:
        """An axis with all strengths, their intervals and zero on it."""
        strengths = [entry.strength for entry in entries if entry.strength is not None]
        ends = [end for strength in strengths for end in (strength.low, strength.value, strength.high)]
        numbers = [0.0, *(end for end in ends if end is not None)]
        numbers = numbers if any(numbers) else [-1.0, 1.0]
        rough = (max(numbers) - min(numbers)) / _TICKS
        power = 10.0 ** floor(log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
        return cls(floor(min(numbers) / step) * step, ceil(max(numbers) / step) * step, step)

    def x(self, value: float) -> float:
        """The x coordinate of a number."""
        return round(PAD + (value - self.low) / (self.high - self.low) * (WIDTH - 2 * PAD), 1)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """The x coordinates and texts of the ticks."""
        numbers = [self.low + index * self.step for index in range(round((self.high - self.low) / self.step) + 1)]
        return [(self.x(number), f"{number:+.3g}" if abs(number) > self.step / 2 else "0") for number in numbers]

    @property
    def zero(self) -> float:
        """The x coordinate of the mean."""
        return self.x(0.0)


def rankings_page(rankings: Rankings) -> str:
    """The whole page."""
    return render(
        "ranking.html.j2",
        policy=policy(inline_style=style()),
        style=style(),
        rankings=rankings,
        about=ABOUT,
        parts=[_part(ranking) for ranking in rankings.rankings],
        width=WIDTH,
    )


def _part(ranking: Ranking) -> dict[str, Any]:
    comparisons = ranking.comparisons[:MAX_COMPARISONS]
    return {
        "title": ranking_title(ranking),
        "ranking": ranking,
        "groups": [_group(heading, entries) for heading, entries in by_group(ranking)],
        "comparisons": [(comparison, show_chance(comparison)) for comparison in comparisons],
        "more": len(ranking.comparisons) - len(comparisons),
    }


def _group(heading: str, entries: Sequence[RankedRun]) -> dict[str, Any]:
    axis = Axis.around(entries)
    rows = [(entry, show_rank(entry), show_strength(entry), show_chance(entry), _dot(entry, axis)) for entry in entries]
    return {"heading": heading, "axis": axis, "rows": rows}


def _dot(entry: RankedRun, axis: Axis) -> Dot | None:
    if entry.strength is None:
        return None
    low, high = (None if end is None else axis.x(end) for end in (entry.strength.low, entry.strength.high))
    return Dot(low, axis.x(entry.strength.value), high)
