"""Renders the index of runs, by experiment, and the pages for problems and plain results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import quote

from visioneval.errors import count_of
from visioneval.report.html.pages import PageFrame, policy, render, style, usd
from visioneval.view.listing import RunRow
from visioneval.view.trends import HEIGHT, WIDTH, Trend, experiment_trends, percent

FOLDER = Path(__file__).parent / "pages"
INDEX_SCRIPT, LIVE_SCRIPT, STYLE = "index.js", "live.js", "view.css"
BACK = "All runs"


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


@cache
def view_style() -> str:
    """The style of the index: that of all pages, and what only it has."""
    return style() + (FOLDER / STYLE).read_text(encoding="utf-8")


@cache
def view_script(name: str) -> str:
    """A script of the served pages."""
    return (FOLDER / name).read_text(encoding="utf-8")


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
