"""What the index shows of each run, from ``run.json`` and ``summary.json`` alone, cached by their times."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from visioneval.analysis.summary.summary import Summary
from visioneval.errors import RunFormatError, UsageError
from visioneval.records.reader import records_of
from visioneval.records.run_folders import check_run_folder, is_inside
from visioneval.records.runs import current_state
from visioneval.records.stores.locations import copies_at, display_name
from visioneval.records.stores.lookup import refresh_runs
from visioneval.records.untrusted_json import LARGEST
from visioneval.report.outcome import Tone, outcome
from visioneval.report.text import one_line
from visioneval.suite.meanings import describe_meaning

SUMMARY = "summary.json"
_MAX_BYTES = 256 << 20
_UNFINISHED = {"running": "Running", "stopped": "Killed: can be resumed"}
Stamp = tuple[int, int]
"""Time in ns and size of a file; zeros if it does not exist."""


class RunHeader(BaseModel):
    """The part of ``run.json`` that the index shows."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    state: str
    started_at: str
    planned_cells: Annotated[int, Field(ge=0, le=LARGEST)]
    experiment: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run of the index. ``problem`` is why it cannot be read; then only its name is known."""

    run_id: str
    problem: str = ""
    experiment: str = ""
    suite: str = ""
    """The name of its suite, known once it has figures."""
    note: str = ""
    started_at: str = ""
    state: str = ""
    planned_cells: int = 0
    cells: int | None = None
    """Finished cells; ``None`` if they were not counted."""
    tone: Tone = "error"
    outcome: str = ""
    summary: SummaryPart | None = None

    @property
    def is_final(self) -> bool:
        """Whether it has figures that no longer change, unless it is resumed."""
        return self.summary is not None


@dataclass(frozen=True, slots=True)
class SummaryPart:
    """The figures of a run that the index shows. ``metrics`` are means over cells; ``None`` was not measured."""

    passed: int
    failed: int
    errors: int
    pass_rate: float | None
    low: float | None
    high: float | None
    exit_code: int
    cost_usd: float | None
    unpriced: int
    metrics: dict[str, float | None]
    ranges: dict[str, tuple[float, float | None] | None]
    """The range of each metric, 0 to 1 for yes or no; ``None`` if it has none."""
    shares: frozenset[str]
    """The metrics whose mean is a share, as they are yes or no."""
    deciding: tuple[str, ...]
    """The metrics that rules and gates read."""
    failure_tags: dict[str, int]
    meanings: dict[str, str] = field(default_factory=dict)
    """What each metric means, in words: values of two meanings are not on one line."""

    def is_share(self, metric: str) -> bool:
        """Whether the mean of a metric is a share."""
        return metric in self.shares


_HEADER: TypeAdapter[RunHeader] = TypeAdapter(RunHeader)
_SUMMARY: TypeAdapter[Summary] = TypeAdapter(Summary)
_LEFT_OUT: dict[str, Any] = {
    "tags": {},
    "warned_rules": {},
    "judge_disagreements": {},
    "separations": {},
    "questions": {},
    "failing": (),
}
_SHOWN = sorted(set(Summary.model_fields) - {*_LEFT_OUT, "judges", "pair_judges", "noise", "panels", "alignments"})


@dataclass(slots=True)
class _Entry:
    stamps: tuple[Stamp, ...]
    row: RunRow
    counted: Stamp
    """Of the results, when their cells were counted."""

    def is_current(self, folder: Path, stamps: tuple[Stamp, ...]) -> bool:
        """Whether the row still holds."""
        if self.row.problem or self.stamps != stamps:
            return False
        if self.row.state != "running":
            return True
        return self.counted == stamp(folder / "results.jsonl") and current_state(folder, "running") == "running"


@dataclass
class RunListing:
    """The runs of a folder, or of the copies of a store. Thread-safe."""

    root: Path
    _entries: dict[str, _Entry] = field(default_factory=dict)
    _refreshed: dict[str, Stamp] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def rows(self) -> list[RunRow]:
        """All runs, oldest first; those that cannot be read come last. Raises ``UsageError`` for a store."""
        with self._lock:
            folders = self._folders()
            rows = [self._row(folder) for folder in folders]
            names = {folder.name for folder in folders}
            self._entries = {name: entry for name, entry in self._entries.items() if name in names}
        return sorted(rows, key=lambda row: (bool(row.problem), row.started_at, row.run_id))

    def _folders(self) -> list[Path]:
        copies = copies_at(self.root)
        if copies is not None:
            copies.refresh_headers()
        folders = [path.parent for path in self.root.glob("*/run.json")]
        if copies is not None:
            changed = [folder for folder in folders if self._is_changed(folder)]
            refresh_runs(changed)  # a run that cannot be brought up to date is listed with what its copy lacks
            self._refreshed |= {folder.name: stamp(folder / "run.json") for folder in changed}
        return folders

    def _is_changed(self, folder: Path) -> bool:
        entry = self._entries.get(folder.name)
        is_open = entry is None or entry.row.state in _UNFINISHED
        return is_open or self._refreshed.get(folder.name) != stamp(folder / "run.json")

    def _row(self, folder: Path) -> RunRow:
        stamps = stamp(folder / "run.json"), stamp(folder / SUMMARY)
        entry = self._entries.get(folder.name)
        if entry is None or not entry.is_current(folder, stamps):
            counted = stamp(folder / "results.jsonl")
            entry = self._entries[folder.name] = _Entry(stamps, read_row(folder), counted)
        return entry.row


def stamp(path: Path) -> Stamp:
    """Tells whether a file has changed."""
    try:
        state = path.stat()
    except (OSError, ValueError):
        return 0, 0
    return state.st_mtime_ns, state.st_size


def read_row(folder: Path) -> RunRow:
    """A run of the index. A run that cannot be read has the reason."""
    try:
        check_run_folder(folder)
        header = _read_header(folder)
        row = RunRow(
            folder.name,
            experiment=one_line(header.experiment or "", 120),
            note=one_line(header.note or "", 200),
            started_at=one_line(header.started_at, 40),
            state=one_line(str(current_state(folder, header.state)), 40),
            planned_cells=header.planned_cells,
        )
        return _with_figures(folder, row)
    except (RunFormatError, UsageError) as error:
        return RunRow(folder.name, one_line(display_name(str(error))), state="unreadable")


def _with_figures(folder: Path, row: RunRow) -> RunRow:
    """The row with its figures, or with its count while it has none: those before a resume are no longer true."""
    if row.state in _UNFINISHED:
        cells = len(records_of(folder)) if row.state == "running" else None
        return replace(row, cells=cells, outcome=_UNFINISHED[row.state])
    if not (folder / SUMMARY).is_file():
        return replace(row, outcome="No summary.json: resume the run, or see its report")
    summary = _read_summary(folder)
    if summary.state != row.state or summary.planned_cells != row.planned_cells:
        return replace(row, outcome="summary.json is of another state of the run: see its report")
    tone, text = outcome(summary)
    suite = one_line(summary.suite, 120)
    return replace(
        row, suite=suite, cells=summary.counts.cells, tone=tone, outcome=one_line(text), summary=_part(summary)
    )


def _read_header(folder: Path) -> RunHeader:
    """The start of a run. Skips its suite, which can be large. Raises ``RunFormatError``."""
    try:
        return _HEADER.validate_json(_bytes(folder, "run.json"))
    except ValidationError as error:
        raise _invalid(folder / "run.json", error) from None


def _read_summary(folder: Path) -> Summary:
    """The summary without its lists of cells, questions and judges, which are large. Raises ``RunFormatError``."""
    path = folder / SUMMARY
    try:
        raw = orjson.loads(_bytes(folder, SUMMARY))  # refuses numbers that are not finite
        if not isinstance(raw, dict):
            raise RunFormatError(f"{path}: is not a summary")
        return _SUMMARY.validate_python({**_LEFT_OUT, **{name: raw[name] for name in _SHOWN if name in raw}})
    except orjson.JSONDecodeError:
        raise RunFormatError(f"{path}: damaged or truncated") from None
    except ValidationError as error:
        raise _invalid(path, error) from None


def _invalid(path: Path, error: ValidationError) -> RunFormatError:
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    if problem["type"] == "json_invalid":
        return RunFormatError(f"{path}: damaged or truncated")
    where = ".".join(map(str, problem["loc"]))
    return RunFormatError(f"{path}: {where}: {problem['msg']}" if where else f"{path}: {problem['msg']}")


def _part(summary: Summary) -> SummaryPart:
    counts = summary.counts
    ranges: dict[str, Any] = {
        name: (0.0, 1.0) if metric.type == "bool" else metric.range for name, metric in summary.metrics.items()
    }
    return SummaryPart(
        passed=counts.passed,
        failed=counts.failed,
        errors=counts.errors,
        pass_rate=counts.pass_rate.value,
        low=counts.pass_rate.low,
        high=counts.pass_rate.high,
        exit_code=summary.exit_code,
        cost_usd=summary.cost_usd,
        unpriced=summary.unpriced,
        metrics={name: _mean(summary, name) for name in summary.metrics},
        ranges=ranges,
        shares=frozenset(name for name, metric in summary.metrics.items() if metric.type == "bool"),
        deciding=summary.deciding_metrics,
        failure_tags=summary.failure_tags,
        meanings={name: one_line(describe_meaning(metric)) for name, metric in summary.metrics.items()},
    )


def _mean(summary: Summary, metric: str) -> float | None:
    """The mean of a metric over the cells of all model runs; ``None`` if nothing was measured."""
    estimates = [model.metrics[metric] for model in summary.models if metric in model.metrics]
    measured = [(estimate.value, estimate.n) for estimate in estimates if estimate.value is not None and estimate.n > 0]
    cells = sum(n for _, n in measured)
    return sum(value * n for value, n in measured) / cells if cells else None


def _bytes(folder: Path, name: str) -> bytes:
    """The bytes of a file of a run. Raises ``RunFormatError``, also for a link that leaves the run."""
    path = folder / name
    try:
        if path.is_symlink() and not is_inside(folder, name):
            raise RunFormatError(f"{path}: is a link to a file outside the run: replace it with the file itself")
        if path.stat().st_size > _MAX_BYTES:
            raise RunFormatError(f"{path}: is over {_MAX_BYTES >> 20} MB")
        return path.read_bytes()
    except OSError as error:
        raise RunFormatError(f"{path}: {error.strerror or error}") from None
