"""Lines over the runs of each suite of an experiment: pass rate, metrics, cost and failure tags. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite

from visioneval.report.html.pages import usd
from visioneval.suite.filters import any_glob
from visioneval.view.listing import RunRow, SummaryPart

WIDTH, HEIGHT = 240.0, 56.0
PAD = 5.0
MAX_POINTS = 100
"""The last runs of an experiment that a line has."""
MAX_METRICS = 4
"""Lines of metrics, unless others are asked for."""
MAX_TAGS = 3
_MAX_LISTED = 12
Value = Callable[[SummaryPart], float | None]


@dataclass(frozen=True, slots=True)
class Point:
    """A run on a line, in SVG coordinates. ``tone`` is that of its outcome."""

    x: float
    y: float
    tone: str
    text: str


@dataclass(frozen=True, slots=True)
class Trend:
    """A line: ``paths`` are its pieces, which runs without a measured value separate."""

    name: str
    text: str
    """All of it in words, for who cannot see it."""
    last: str
    low: str
    high: str
    paths: tuple[str, ...]
    points: tuple[Point, ...]


def by_suite(rows: Sequence[RunRow]) -> dict[str, list[RunRow]]:
    """The finished runs of each suite, in order: the figures of two suites do not continue each other."""
    groups: dict[str, list[RunRow]] = {}
    for row in rows:
        if row.is_final:
            groups.setdefault(row.suite, []).append(row)
    return groups


def experiment_trends(rows: Sequence[RunRow], metrics: Sequence[str] = ()) -> list[Trend]:
    """The lines of an experiment, as of ``trends``, for each of its suites, which they name if there are several."""
    suites = by_suite(rows)
    return [
        line
        for suite, members in suites.items()
        for line in trends(members, metrics, f"{suite}: " if len(suites) > 1 else "")
    ]


def trends(rows: Sequence[RunRow], metrics: Sequence[str] = (), prefix: str = "") -> list[Trend]:
    """The lines of a suite, whose runs are oldest first; empty with fewer than two finished runs.

    ``metrics`` are globs; without any, those that rules and gates of the last run read.
    """
    final = [row for row in rows if row.is_final][-MAX_POINTS:]
    if len(final) < 2:
        return []
    parts = [row.summary for row in final if row.summary is not None]
    lines = [_trend(f"{prefix}Pass rate", final, lambda part: part.pass_rate, (0.0, 1.0), percent)]
    for name in chosen_metrics(parts, metrics):
        lines += _metric_trends(f"{prefix}{name}", name, final)
    lines.append(
        _trend(f"{prefix}Cost, USD", final, lambda part: part.cost_usd, (0.0, None), lambda value: usd(value, 0))
    )
    totals: Counter[str] = Counter()
    for part in parts:
        totals.update(part.failure_tags)
    for tag, _ in totals.most_common(MAX_TAGS):
        lines.append(_trend(f"{prefix}Cells tagged {tag}", final, _share(tag), (0.0, None), percent))
    return [line for line in lines if line.points]


def _metric_trends(title: str, name: str, rows: Sequence[RunRow]) -> Iterator[Trend]:
    """The line of a metric; if its meaning changed, one for each meaning, which it names."""
    by_meaning: dict[str, list[tuple[RunRow, SummaryPart]]] = {}
    known = (row.summary.meanings[name] for row in rows if row.summary and name in row.summary.meanings)
    meaning = next(known, "")
    for row in rows:
        if row.summary is not None:
            meaning = row.summary.meanings.get(name, meaning)
            by_meaning.setdefault(meaning, []).append((row, row.summary))
    for text, members in by_meaning.items():
        summaries = [summary for _, summary in members]
        bounds = next((summary.ranges[name] for summary in reversed(summaries) if name in summary.ranges), None)
        show = percent if any(summary.is_share(name) for summary in summaries) else number
        suffix = f" ({text})" if len(by_meaning) > 1 else ""
        yield _trend(f"{title}{suffix}", [row for row, _ in members], _metric(name), bounds, show)


def chosen_metrics(parts: Sequence[SummaryPart], globs: Sequence[str]) -> list[str]:
    """The metrics with a line: those that match, or the first that decide in the last run, numbers before yes or no."""
    names = dict.fromkeys(name for part in parts for name in part.metrics)
    if globs:
        return [name for name in names if any_glob(tuple(globs), name)]
    deciding = [name for name in parts[-1].deciding if name in names]
    return sorted(deciding, key=parts[-1].is_share)[:MAX_METRICS]


def percent(value: float) -> str:
    """A share as text."""
    return f"{value:.1%}".replace("%", "\u202f%")


def number(value: float) -> str:
    """A mean as text."""
    return f"{value:.4g}"


def _metric(name: str) -> Value:
    return lambda part: part.metrics.get(name)


def _share(tag: str) -> Value:
    """The share of the cells with a verdict that have a failure tag."""

    def share(part: SummaryPart) -> float | None:
        cells = part.passed + part.failed + part.errors
        return part.failure_tags.get(tag, 0) / cells if cells else None

    return share


def _trend(
    name: str,
    rows: Sequence[RunRow],
    value: Value,
    bounds: tuple[float, float | None] | None,
    show: Callable[[float], str],
) -> Trend:
    values = [None if row.summary is None else value(row.summary) for row in rows]
    measured = [number for number in values if number is not None and isfinite(number)]
    if not measured:
        return Trend(name, "", "", "", "", (), ())
    low = min(measured) if bounds is None else min(bounds[0], *measured)
    high = max(measured) if bounds is None or bounds[1] is None else max(bounds[1], *measured)
    pieces: list[list[Point]] = [[]]
    for at, (row, number_or_none) in enumerate(zip(rows, values, strict=True)):
        if number_or_none is None or not isfinite(number_or_none):
            pieces.append([])
            continue
        x = PAD + at / max(1, len(rows) - 1) * (WIDTH - 2 * PAD)
        share = (number_or_none - low) / (high - low) if high > low else 0.5
        y = HEIGHT - PAD - share * (HEIGHT - 2 * PAD)
        pieces[-1].append(Point(round(x, 1), round(y, 1), row.tone, f"{row.run_id}: {show(number_or_none)}"))
    shown = [None if number is None else show(number) for number in values]
    return Trend(
        name,
        _words(name, shown),
        show(measured[-1]) if values[-1] is not None else "not measured",
        show(low),
        show(high),
        tuple(" ".join(f"{point.x},{point.y}" for point in piece) for piece in pieces if len(piece) > 1),
        tuple(point for piece in pieces for point in piece),
    )


def _words(name: str, shown: Sequence[str | None]) -> str:
    words = ", ".join(text or "not measured" for text in shown[-_MAX_LISTED:])
    before = f"the last {_MAX_LISTED} of " if len(shown) > _MAX_LISTED else ""
    return f"{name} over {before}{len(shown)} runs, oldest first: {words}"
