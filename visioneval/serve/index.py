"""The index of runs: one table, and lines over the runs of each suite of an experiment.

It shows of each run what ``run.json`` and ``summary.json`` say, cached by their times.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import orjson
from pydantic import BaseModel, ConfigDict, Field

from visioneval.analysis.scores import Estimate, counted_metrics
from visioneval.analysis.summary.summary import Summary
from visioneval.errors import RunFormatError, UsageError, count_of
from visioneval.records.reader import RESULTS, count_cells
from visioneval.records.runs import current_state
from visioneval.records.stores.lookup import copies_at, display_name, refresh_runs
from visioneval.records.untrusted import LARGEST, check_run_folder, read_json
from visioneval.report.html.pages import policy, render, style, theme, usd
from visioneval.report.outcome import Tone, outcome
from visioneval.report.text import one_line, scale_of, show_share
from visioneval.suite.filters import any_glob
from visioneval.suite.metrics import describe_meaning
from visioneval.types import Metric

INDEX_SCRIPT = "index.js"
BACK = "All runs"
WIDTH, HEIGHT = 240.0, 56.0
PAD = 5.0
MIN_POINTS = 3
"""With fewer, a line shows nothing that the table does not."""
MAX_POINTS = 100
"""The last runs of an experiment that a line has."""
MAX_METRICS = 4
"""Lines of metrics, unless others are asked for."""
MAX_TAGS = 3
_MAX_LISTED = 12
Show = Callable[[float], str]
FOLDER = Path(__file__).parent / "pages"
STYLE = "view.css"
SUMMARY = "summary.json"
_MAX_BYTES = 256 << 20
_UNFINISHED = {"running": "Running", "stopped": "Killed: can be resumed"}
Stamp = tuple[int, int]
"""Time in ns and size of a file; zeros if it does not exist."""
_LEFT_OUT: dict[str, Any] = {
    **{name: {} for name in ("tags", "warned_rules", "judge_disagreements", "separations", "questions", "panels")},
    **dict.fromkeys(("failing", "judges", "pair_judges", "noise", "alignments", "same_question"), ()),
}


def index_page(
    rows: Sequence[RunRow],
    where: str,
    metrics: Sequence[str] = (),
    poll_seconds: int = 0,
    links: Mapping[str, str] | None = None,
    baselines: Mapping[tuple[str, str], Reference] | None = None,
) -> str:
    """The index. ``rows`` are oldest first, and those that cannot be read come last.

    A server has the page ask for changes every ``poll_seconds``. ``links`` are the comparisons of a static index, from
    run B to the address. ``baselines`` are those of the suites of experiments.
    """
    running = sum(row.state == "running" for row in rows)
    groups = [(*key, trends(members, metrics, (baselines or {}).get(key))) for key, members in series(rows).items()]
    is_served = poll_seconds > 0
    return render(
        "index.html.j2",
        FOLDER,
        policy=index_policy() if is_served else policy(has_script=False),
        where=where,
        is_served=is_served,
        poll_seconds=poll_seconds,
        version=digest(rows),
        rows=[row for row in reversed(rows) if not row.problem],
        groups=[group for group in groups if group[2]],
        count=count_of(len(rows), "run"),
        running=f"{running} running" if running else "",
        unreadable=[row for row in rows if row.problem],
        links=links or {},
        rate_text=rate_text,
        plot={"width": WIDTH, "height": HEIGHT},
    )


def index_policy() -> str:
    """The policy of a page that asks for changes, and that has a form, which asks for a comparison."""
    return policy(is_live=True).replace("form-action 'none'", "form-action 'self'")


def digest(rows: Sequence[RunRow]) -> str:
    """Changes when the index would."""
    return hashlib.sha256(repr(rows).encode("utf-8", "replace")).hexdigest()[:16]


def run_address(run_id: str) -> str:
    """The address of a run's report from the index."""
    return f"run/{quote(run_id, safe='')}/"


def rate_text(summary: Summary | None) -> str:
    """A pass rate as ``66.7 % [20.8, 93.9]``; empty if there is none."""
    rate = None if summary is None else summary.counts.pass_rate
    if rate is None or rate.value is None:
        return ""
    return show_share(rate.value, rate.low, rate.high)


def series(rows: Sequence[RunRow]) -> dict[tuple[str, str], list[RunRow]]:
    """The runs with figures of each suite of an experiment, oldest first; those with the newest run come first.

    The figures of two suites do not continue each other.
    """
    groups: dict[tuple[str, str], list[RunRow]] = {}
    for row in reversed(rows):
        if row.experiment and row.summary is not None:
            groups.setdefault((row.experiment, row.suite), []).insert(0, row)
    return groups


@dataclass(frozen=True, slots=True)
class Reference:
    """The baseline of a suite: its name, its pass rate over all of its runs, and the ids of the runs with a drift."""

    name: str
    rate: Estimate
    drifted: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Point:
    """A run on a line, in SVG coordinates. ``tone`` is that of its outcome; ``is_drift`` if a drift is declared."""

    x: float
    y: float
    tone: str
    text: str
    run_id: str = ""
    is_drift: bool = False


@dataclass(frozen=True, slots=True)
class Band:
    """The interval of a baseline behind a line: its upper end and its height in SVG coordinates, and in words."""

    y: float
    height: float
    text: str


@dataclass(frozen=True, slots=True)
class Trend:
    """A line: ``paths`` are its pieces, which runs without a measured value separate."""

    name: str
    text: str
    """The whole line in words, for people who cannot see it."""
    last: str
    low: str
    high: str
    paths: tuple[str, ...]
    points: tuple[Point, ...]
    band: Band | None = None


def trends(rows: Sequence[RunRow], metrics: Sequence[str] = (), reference: Reference | None = None) -> list[Trend]:
    """The lines of a suite, whose runs are oldest first and have figures.

    ``metrics`` are globs; without any, those that rules and gates of the last run read. ``reference`` is behind the
    line of the pass rate.
    """
    rows = rows[-MAX_POINTS:]
    summaries = [row.summary for row in rows if row.summary is not None]
    rates = [summary.counts.pass_rate.value for summary in summaries]
    lines = [_beside(_trend("Pass rate", rows, rates, (0.0, 1.0), show_share), rows, reference)]
    for name in chosen_metrics(summaries, metrics):
        known = [_metric(summary, name) for summary in summaries]
        meanings = {describe_meaning(metric): metric for metric in known if metric is not None}
        for meaning, metric in meanings.items():  # values of two meanings are not on one line
            is_other = [of_run is not None and describe_meaning(of_run) != meaning for of_run in known]
            members = [row for row, other in zip(rows, is_other, strict=True) if not other]
            values = [_mean(summary, name) for summary, other in zip(summaries, is_other, strict=True) if not other]
            title = f"{name} ({meaning})" if len(meanings) > 1 else name
            bounds = metric.range if metric.type == "number" else (0.0, 1.0)
            lines.append(_trend(title, members, values, bounds, _shown_as(metric)))
    costs = [summary.cost_usd for summary in summaries]
    lines.append(_trend("Cost, USD", rows, costs, (0.0, None), lambda value: usd(value, 0)))
    tags = sum((Counter(summary.failure_tags) for summary in summaries), Counter[str]())
    counts = [summary.counts for summary in summaries]
    judged = [count.passed + count.failed + count.errors for count in counts]
    for tag, _ in tags.most_common(MAX_TAGS):
        tagged = [summary.failure_tags.get(tag, 0) for summary in summaries]
        shares = [number / cells if cells else None for number, cells in zip(tagged, judged, strict=True)]
        lines.append(_trend(f"Cells tagged {tag}", rows, shares, (0.0, None), show_share))
    return [line for line in lines if len(line.points) >= MIN_POINTS]


def chosen_metrics(summaries: Sequence[Summary], globs: Sequence[str]) -> list[str]:
    """The metrics with a line: those that match, or the first that decide in the last run, numbers before yes or no."""
    names = dict.fromkeys(name for summary in summaries for name in counted_metrics(summary.metrics))
    if globs:
        return [name for name in names if any_glob(tuple(globs), name)]
    last = summaries[-1]
    metrics = {name: metric for summary in summaries for name, metric in summary.metrics.items()}
    deciding = counted_metrics({name: metrics[name] for name in last.deciding_metrics if name in metrics})
    return sorted(deciding, key=lambda name: deciding[name].type == "bool")[:MAX_METRICS]


def _metric(summary: Summary, name: str) -> Metric | None:
    """A metric of a run, or that of which a share is named, such as ``style: flat``."""
    of_word = summary.metrics.get(name.partition(": ")[0])
    is_share = of_word is not None and name in of_word.share_names(name.partition(": ")[0]).values()
    return of_word if is_share else summary.metrics.get(name)


def _shown_as(metric: Metric) -> Show:
    """How a mean is shown: a share as ``66.7 %``, a score as ``2.67 of 5``."""
    if metric.type != "number":
        return show_share
    return lambda value: (f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}") + scale_of(metric)


def _mean(summary: Summary, metric: str) -> float | None:
    """The mean of a metric over the cells of all model runs; ``None`` if nothing was measured."""
    estimates = [model.metrics[metric] for model in summary.models if metric in model.metrics]
    measured = [(estimate.value, estimate.n) for estimate in estimates if estimate.value is not None]
    cells = sum(n for _, n in measured)
    return sum(value * n for value, n in measured) / cells if cells else None


def _trend(
    name: str,
    rows: Sequence[RunRow],
    values: Sequence[float | None],
    bounds: tuple[float, float | None] | None,
    show: Show,
) -> Trend:
    measured = [value for value in values if value is not None] or [0.0]
    low = min(measured) if bounds is None else min(bounds[0], *measured)
    high = max(measured) if bounds is None or bounds[1] is None else max(bounds[1], *measured)
    pieces: list[list[Point]] = [[]]
    for at, (row, value) in enumerate(zip(rows, values, strict=True)):
        if value is None:
            pieces.append([])
            continue
        x = PAD + at / max(1, len(rows) - 1) * (WIDTH - 2 * PAD)
        share = (value - low) / (high - low) if high > low else 0.5
        y = HEIGHT - PAD - share * (HEIGHT - 2 * PAD)
        pieces[-1].append(Point(round(x, 1), round(y, 1), row.tone, f"{row.run_id}: {show(value)}", row.run_id))
    shown = ["not measured" if value is None else show(value) for value in values]
    before = f"the last {_MAX_LISTED} of " if len(shown) > _MAX_LISTED else ""
    return Trend(
        name,
        f"{name} over {before}{len(shown)} runs, oldest first: {', '.join(shown[-_MAX_LISTED:])}",
        shown[-1],
        show(low).partition(" of ")[0],
        show(high).partition(" of ")[0],
        tuple(" ".join(f"{point.x},{point.y}" for point in piece) for piece in pieces if len(piece) > 1),
        tuple(point for piece in pieces for point in piece),
    )


def _beside(rate: Trend, rows: Sequence[RunRow], reference: Reference | None) -> Trend:
    """The line of the pass rate with that of a baseline, and marks where a drift is declared."""
    if reference is None:
        return rate
    estimate, text, band = reference.rate, rate.text, None
    if estimate.value is not None and estimate.low is not None and estimate.high is not None:
        shown = f"{reference.name} {show_share(estimate.value, estimate.low, estimate.high)}"
        scale = HEIGHT - 2 * PAD
        band = Band(
            round(PAD + (1 - estimate.high) * scale, 1), round((estimate.high - estimate.low) * scale, 1), shown
        )
        text += f"; {shown}"
    if drifted := [row.run_id for row in rows if row.run_id in reference.drifted]:
        text += f"; drift in {', '.join(drifted)}"
    points = [
        replace(point, is_drift=True, text=f"{point.text}, DRIFT") if point.run_id in reference.drifted else point
        for point in rate.points
    ]
    return replace(rate, text=text, band=band, points=tuple(points))


class _SuiteName(BaseModel):
    """The name of a suite, which can be large: the rest is skipped."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    name: str


class RunHeader(BaseModel):
    """The part of ``run.json`` that the index shows."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    state: str
    started_at: str
    planned_cells: Annotated[int, Field(ge=0, le=LARGEST)]
    experiment: str | None = None
    note: str | None = None
    suite: _SuiteName


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run of the index. ``problem`` is why it cannot be read; then only its name is known."""

    run_id: str
    problem: str = ""
    experiment: str = ""
    suite: str = ""
    note: str = ""
    started_at: str = ""
    state: str = ""
    planned_cells: int = 0
    cells: int | None = None
    """Finished cells; ``None`` if they were not counted."""
    tone: Tone = "error"
    outcome: str = ""
    stamps: tuple[Stamp, ...] = ()
    """Of the files that it was read from."""
    summary: Summary | None = field(default=None, repr=False)
    """Figures that no longer change, unless the run is resumed. Without its lists of cells, which are large."""

    def is_current(self, folder: Path) -> bool:
        """Whether the row still holds."""
        if self.problem or self.stamps != stamps_of(folder):
            return False
        return self.state != "running" or current_state(folder, "running") == "running"


@dataclass
class RunListing:
    """The runs of a folder, or of the copies of a store. Thread-safe."""

    root: Path
    _rows: dict[str, RunRow] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def rows(self) -> list[RunRow]:
        """All runs, oldest first; those that cannot be read come last. Raises ``UsageError`` for a store."""
        with self._lock:
            self._rows = {folder.name: self._row(folder) for folder in self._folders()}
            return sorted(self._rows.values(), key=lambda row: (bool(row.problem), row.started_at, row.run_id))

    def _folders(self) -> list[Path]:
        copies = copies_at(self.root)
        if copies is not None:
            copies.refresh_headers()
        folders = [path.parent for path in self.root.glob("*/run.json")]
        if copies is not None:  # a run that cannot be brought up to date is listed with what its copy lacks
            refresh_runs([folder for folder in folders if self._is_changed(folder)])
        return folders

    def _is_changed(self, folder: Path) -> bool:
        """Whether a store may have more of a run than its copy, of which only ``run.json`` is up to date."""
        row = self._rows.get(folder.name)
        return row is None or row.state in _UNFINISHED or row.stamps[0] != stamp(folder / "run.json")

    def _row(self, folder: Path) -> RunRow:
        row = self._rows.get(folder.name)
        return row if row is not None and row.is_current(folder) else read_row(folder)


def stamp(path: Path) -> Stamp:
    """Tells whether a file has changed."""
    try:
        state = path.stat()
    except (OSError, ValueError):
        return 0, 0
    return state.st_mtime_ns, state.st_size


def stamps_of(folder: Path) -> tuple[Stamp, ...]:
    """Tells whether a run has changed."""
    return tuple(stamp(folder / name) for name in ("run.json", SUMMARY, RESULTS))


def read_row(folder: Path) -> RunRow:
    """A run of the index. A run that cannot be read has the reason."""
    stamps = stamps_of(folder)
    try:
        check_run_folder(folder)
        header = read_json(RunHeader, _bytes(folder / "run.json"), str(folder / "run.json"), "run")
        row = RunRow(
            folder.name,
            experiment=one_line(header.experiment or "", 120),
            suite=one_line(header.suite.name, 120),
            note=one_line(header.note or "", 200),
            started_at=one_line(header.started_at, 40),
            state=one_line(str(current_state(folder, header.state)), 40),
            planned_cells=header.planned_cells,
            stamps=stamps,
        )
        return _with_figures(folder, row)
    except (RunFormatError, UsageError) as error:
        return RunRow(folder.name, one_line(display_name(str(error))), state="unreadable", stamps=stamps)


def _with_figures(folder: Path, row: RunRow) -> RunRow:
    """The row with its figures, or with its count while it has none: those before a resume are no longer true."""
    if row.state in _UNFINISHED:
        cells = count_cells(folder) if row.state == "running" else None
        return replace(row, cells=cells, outcome=_UNFINISHED[row.state])
    if not (folder / SUMMARY).is_file():
        return replace(row, outcome="No summary.json: resume the run, or see its report")
    path = folder / SUMMARY
    try:
        raw = orjson.loads(_bytes(path))
        shown = {name: raw[name] for name in Summary.model_fields if name in raw}
    except (orjson.JSONDecodeError, TypeError):
        raise RunFormatError(f"{path}: damaged or truncated") from None
    summary = read_json(Summary, orjson.dumps(shown | _LEFT_OUT), str(path), "summary")
    if summary.state != row.state or summary.planned_cells != row.planned_cells:
        return replace(row, outcome="summary.json is of another state of the run: see its report")
    tone, text = outcome(summary)
    return replace(row, cells=summary.counts.cells, tone=tone, outcome=one_line(text), summary=summary)


def _bytes(path: Path) -> bytes:
    """The bytes of a file of a run. Raises ``RunFormatError``."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise RunFormatError(f"{path}: is over {_MAX_BYTES >> 20} MB")
        return path.read_bytes()
    except OSError as error:
        raise RunFormatError(f"{path}: {error.strerror or error}") from None


@cache
def read_asset(name: str) -> str:
    """A file of the pages. A style begins with what it shares with others: at least the named colors and sizes."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    if name.endswith(".css"):
        return (style() if name == STYLE else theme()) + text
    return text
