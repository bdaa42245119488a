"""The index of runs, by experiment, with lines over the runs of each suite, and the pages for problems and results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from urllib.parse import quote

from visioneval.errors import count_of
from visioneval.report.html.pages import PageFrame, policy, render, usd
from visioneval.serve.assets import FOLDER
from visioneval.serve.listing import RunRow, SummaryPart
from visioneval.suite.filters import any_glob

INDEX_SCRIPT, LIVE_SCRIPT = "index.js", "live.js"
BACK = "All runs"
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
class IndexOptions:
    """What an index shows. ``links`` are comparisons that exist, from run B to the address; of a static index."""

    where: str
    metrics: tuple[str, ...] = ()
    is_served: bool = False
    poll_seconds: int = 0
    version: str = ""
    links: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class RunLine:
    """A run as text, with its addresses."""

    row: RunRow
    address: str
    started: str
    cells: str
    rate: str
    cost: str
    compared: str


@dataclass(frozen=True, slots=True)
class ExperimentPart:
    """The runs of an experiment, newest first, and its lines."""

    name: str
    count: str
    trends: Sequence[Trend]
    lines: Sequence[RunLine]


def index_page(rows: Sequence[RunRow], options: IndexOptions) -> str:
    """The index. ``rows`` are oldest first, and those that cannot be read come last."""
    unreadable = [row for row in rows if row.problem]
    running = sum(row.state == "running" for row in rows)
    return render(
        "index.html.j2",
        FOLDER,
        policy=_index_policy() if options.is_served else policy(),
        options=options,
        parts=_parts([row for row in rows if not row.problem], options),
        count=count_of(len(rows), "run"),
        running=f"{running} running" if running else "",
        unreadable=unreadable,
        plot={"width": WIDTH, "height": HEIGHT},
    )


def problem_page(title: str, text: str, links: tuple[tuple[str, str], ...], root: str) -> str:
    """One clear page for what cannot be shown. ``root`` is the relative address of the index's folder."""
    frame = PageFrame(links)
    return render("problem.html.j2", FOLDER, policy=policy(), title=title, text=text, frame=frame, root=root)


def run_address(run_id: str) -> str:
    """The address of a run's report from the index."""
    return f"run/{quote(run_id, safe='')}/"


def by_experiment(rows: Sequence[RunRow]) -> dict[str, list[RunRow]]:
    """The runs of each experiment, that with the newest run first; runs without an experiment have an empty name."""
    groups: dict[str, list[RunRow]] = {}
    for row in rows:
        groups.setdefault(row.experiment, []).append(row)
    newest = sorted(groups.items(), key=lambda item: item[1][-1].started_at, reverse=True)
    return dict(newest)


def _parts(rows: Sequence[RunRow], options: IndexOptions) -> list[ExperimentPart]:
    return [
        ExperimentPart(
            name,
            count_of(len(members), "run"),
            experiment_trends(members, options.metrics) if name else [],
            [_line(row, options) for row in reversed(members)],
        )
        for name, members in by_experiment(rows).items()
    ]


def _line(row: RunRow, options: IndexOptions) -> RunLine:
    part = row.summary
    cells = "" if row.cells is None else f"{row.cells:,} of {row.planned_cells:,}"
    rate = "" if part is None or part.pass_rate is None else percent(part.pass_rate)
    if part is not None and part.low is not None and part.high is not None and rate:
        rate += f" [{part.low * 100:.1f}, {part.high * 100:.1f}]"
    cost = "" if part is None or part.cost_usd is None else usd(part.cost_usd, part.unpriced)
    address = run_address(row.run_id) + ("" if options.is_served else "index.html")
    compared = (options.links or {}).get(row.run_id, "")
    return RunLine(row, address, row.started_at[:16].replace("T", " "), cells, rate, cost, compared)


def _index_policy() -> str:
    """Like that of other pages, for a page with a form that asks for a comparison."""
    return policy(is_live=True).replace("form-action 'none'", "form-action 'self'")


def frame_links(run_id: str, *, to_index: str, to_label: str, to_agreement: str) -> tuple[tuple[str, str], ...]:
    """The links above a served report."""
    name = quote(run_id, safe="")
    return (BACK, to_index), ("Label", f"{to_label}{name}/"), ("Agreement with labels", f"{to_agreement}{name}/")


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
