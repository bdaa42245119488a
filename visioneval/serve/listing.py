"""What the index shows of each run, from ``run.json`` and ``summary.json`` alone, cached by their times."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field

from visioneval.analysis.summary.summary import Summary
from visioneval.errors import RunFormatError, UsageError
from visioneval.records.reader import RESULTS, count_cells
from visioneval.records.runs import current_state
from visioneval.records.stores.lookup import copies_at, display_name, refresh_runs
from visioneval.records.untrusted import LARGEST, check_run_folder, read_json
from visioneval.report.outcome import Tone, outcome
from visioneval.report.text import one_line

SUMMARY = "summary.json"
_MAX_BYTES = 256 << 20
_UNFINISHED = {"running": "Running", "stopped": "Killed: can be resumed"}
Stamp = tuple[int, int]
"""Time in ns and size of a file; zeros if it does not exist."""


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


_LEFT_OUT: dict[str, Any] = {
    **{name: {} for name in ("tags", "warned_rules", "judge_disagreements", "separations", "questions", "panels")},
    **dict.fromkeys(("failing", "judges", "pair_judges", "noise", "alignments"), ()),
}


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
    summary = _read_summary(folder / SUMMARY)
    if summary.state != row.state or summary.planned_cells != row.planned_cells:
        return replace(row, outcome="summary.json is of another state of the run: see its report")
    tone, text = outcome(summary)
    return replace(row, cells=summary.counts.cells, tone=tone, outcome=one_line(text), summary=summary)


def _read_summary(path: Path) -> Summary:
    try:
        raw = orjson.loads(_bytes(path))
        shown = {name: raw[name] for name in Summary.model_fields if name in raw}
    except (orjson.JSONDecodeError, TypeError):
        raise RunFormatError(f"{path}: damaged or truncated") from None
    return read_json(Summary, orjson.dumps(shown | _LEFT_OUT), str(path), "summary")


def _bytes(path: Path) -> bytes:
    """The bytes of a file of a run. Raises ``RunFormatError``."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise RunFormatError(f"{path}: is over {_MAX_BYTES >> 20} MB")
        return path.read_bytes()
    except OSError as error:
        raise RunFormatError(f"{path}: {error.strerror or error}") from None
