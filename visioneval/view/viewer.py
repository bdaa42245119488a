"""The runs that a server shows, by name, and the label page of each."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, field
from pathlib import Path

from starlette.applications import Starlette

from visioneval.errors import RunFormatError
from visioneval.label.labeling import Labeling
from visioneval.label.page.server import application as label_application
from visioneval.label.work import LabelRequest, prepare
from visioneval.records.stores.locations import copies_at, display_name
from visioneval.records.writer import is_run_id
from visioneval.report.text import one_line
from visioneval.view.index import IndexOptions
from visioneval.view.listing import RunListing, RunRow, Stamp, stamp
from visioneval.view.reports import ReportPages

POLL_SECONDS = 3
STORE_POLL_SECONDS = 30


@dataclass
class Viewer:
    """What the server shows: the runs of a folder. ``metrics`` are globs of the metrics with a line."""

    listing: RunListing
    reports: ReportPages
    metrics: tuple[str, ...] = ()
    _labels: dict[str, tuple[Stamp, Starlette]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def root(self) -> Path:
        """The folder of runs, or that of the copies of a store."""
        return self.listing.root

    def run(self, run_id: str, *, refresh: bool = True) -> Path:
        """The folder of a run. ``refresh`` brings the copy of a store up to date. Raises ``RunFormatError``."""
        if run_id in ("", ".", "..") or any(sign in run_id for sign in "/\\\0"):
            raise RunFormatError(f"{one_line(run_id, 80)}: is not the name of a run")
        copies = copies_at(self.root)
        if copies is not None and refresh:
            if not is_run_id(run_id):
                raise RunFormatError(f"{one_line(run_id, 80)}: is not the name of a run")
            copies.refresh(run_id)
        folder = self.root / run_id
        if not (folder / "run.json").is_file():
            raise RunFormatError(f"{display_name(folder)}: there is no such run: it was deleted or moved")
        return folder

    def options(self, rows: list[RunRow]) -> IndexOptions:
        """What the served index shows."""
        seconds = POLL_SECONDS if copies_at(self.root) is None else STORE_POLL_SECONDS
        return IndexOptions(display_name(self.root), self.metrics, True, seconds, digest(rows))

    def label_page(self, run_id: str, *, is_opened: bool) -> Starlette:
        """The label page of a run, with the cells that it had when the page was opened. Raises ``UsageError``."""
        folder = self.run(run_id, refresh=is_opened)
        with self._lock:
            current = stamp(folder / "results.jsonl")
            known = self._labels.get(run_id)
            if known is None or (is_opened and known[0] != current):
                name = str(folder.absolute()) if copies_at(self.root) is None else run_id
                task = prepare(LabelRequest(name, self.root))
                known = self._labels[run_id] = current, label_application(Labeling(task), token=None, rater=None)
            return known[1]


def digest(rows: list[RunRow]) -> str:
    """Changes when the index would."""
    return hashlib.sha256(repr(rows).encode("utf-8", "replace")).hexdigest()[:16]
