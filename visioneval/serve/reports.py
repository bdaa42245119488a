"""Reports, comparisons and agreement that are rendered when they are asked for.

The images of a report stay in the run's folder until they are shown.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

from visioneval.analysis.agreement.agreement import agree
from visioneval.analysis.agreement.answers import read_labeled
from visioneval.analysis.compare.gates import compare_stored, decide, parse_criteria
from visioneval.analysis.compare.pairing import ComparisonFilters
from visioneval.analysis.redaction import NOTHING, Redaction
from visioneval.errors import ImageError, UsageError
from visioneval.media import images
from visioneval.records.model import RunInfo, read_info
from visioneval.records.runs import current_state, with_current_state
from visioneval.records.stores.lookup import fetch_outputs
from visioneval.records.untrusted import check_run_folder, read_header
from visioneval.report.agreement import agreement_report
from visioneval.report.html.compare import comparison_page
from visioneval.report.html.images import BROWSER_SUFFIXES, VIDEOS, FolderImages
from visioneval.report.html.pages import PageFrame, sections_page
from visioneval.report.html.report import GalleryFilters, read_slim, suite_folder, write_files
from visioneval.report.sections import quoted
from visioneval.serve.index import BACK, stamp
from visioneval.settings import MAX_GALLERY_CELLS
from visioneval.suite.entries.graders import KINDS

LIVE_SCRIPT = "live.js"
_FILES = ("run.json", "results.jsonl", *(kind.file for kind in KINDS if kind.file is not None))
_VERSIONS_KEPT = 2
"""Renderings of a run whose data files an open page may still ask for."""
_MAX_RUNS = 16
"""Runs whose renderings stay on disk."""


class ServedImages(FolderImages):
    """Links to the server, which reads outputs and makes thumbnails when they are shown. Inputs are copied."""

    def thumb(self, relative: str) -> str:
        """The address of a thumbnail, or an empty string if there is no such file in the run."""
        try:
            path = self._run_image_path(relative)
            return self._served("thumb", path) if path.is_file() else ""
        except (ImageError, OSError, ValueError):
            return ""

    def _put_run_image(self, path: Path) -> str:
        if not path.is_file():
            raise ImageError("there is no such file")
        if path.suffix.lower() not in BROWSER_SUFFIXES | VIDEOS:
            return self._put(path)
        return self._served("output", path)

    def _served(self, what: str, path: Path) -> str:
        return f"../{what}/{quote(path.relative_to(self._run).as_posix())}"


@dataclass
class ReportPages:
    """The rendered reports of a server, in a folder of its own. Thread-safe: one is rendered at a time."""

    folder: Path
    trust: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def render(self, run: Path) -> str:
        """Renders the report of a run, unless it is unchanged. Returns its version, the name of its folder.

        Raises ``UsageError`` and ``RunFormatError``.
        """
        with self._lock:
            version = version_of(run)
            target = self.page(run.name, version)
            if not (target / "index.html").is_file():
                self._write(run, version, target)
                for folder, most in ((target.parent, _VERSIONS_KEPT), (self.folder, _MAX_RUNS)):
                    for old in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)[:-most]:
                        shutil.rmtree(old, ignore_errors=True)
            return version

    def page(self, run_id: str, version: str) -> Path:
        """The folder of a rendering, which need not exist."""
        return self.folder / hashlib.sha256(run_id.encode("utf-8", "surrogatepass")).hexdigest()[:20] / version

    def _write(self, run: Path, version: str, target: Path) -> None:
        info = with_current_state(run, read_info(run))
        fetch_outputs(run)
        slim_run = read_slim(run, info, None, GalleryFilters(max_cells=MAX_GALLERY_CELLS))
        top, name = "../../../", quote(run.name, safe="")
        links = (BACK, top), ("Label", f"{top}label/{name}/"), ("Agreement with labels", f"{top}agreement/{name}/")
        frame = PageFrame(links, live_notice(info, len(slim_run.records)), f"{top}{LIVE_SCRIPT}", version)
        try:
            target.mkdir(parents=True, exist_ok=True)
            write_files(slim_run, target, ServedImages(run, suite_folder(info), target, trust=self.trust), frame)
        except OSError as error:
            raise UsageError(f"{run.name}: cannot write the report: {error.strerror or error}") from None


def version_of(run: Path) -> str:
    """Changes when a report of the run would. Raises ``RunFormatError`` if the run is gone or cannot be read."""
    check_run_folder(run)
    state = current_state(run, read_header(run).get("state"))
    stamps = [stamp(run / name) for name in _FILES]
    return hashlib.sha256(f"{state} {stamps}".encode()).hexdigest()[:16]


def live_notice(info: RunInfo, cells: int) -> str:
    """What the page of an unfinished run says."""
    if info.state == "running":
        return f"Running: {cells:,} of {info.planned_cells:,} cells so far. This page follows the run."
    if info.state == "stopped":
        return f"The run was killed after {cells:,} of {info.planned_cells:,} cells. It can be resumed."
    return ""


def output_path(run: Path, relative: str) -> Path:
    """The file of an output that a page shows. Raises ``ImageError`` if it is none of the run's images and videos."""
    path = images.within(run, relative)
    is_shown = relative.startswith("artifacts/") and path.suffix.lower() in BROWSER_SUFFIXES | VIDEOS
    if not is_shown or not path.is_file():
        raise ImageError("there is no such image in the run")
    return path


def render_comparison(a: Path, b: Path, frame: PageFrame, redact: Redaction = NOTHING) -> str:
    """The page of ``visioneval compare A B`` with its default gates. Raises ``UsageError`` and ``RunFormatError``."""
    criteria = parse_criteria()
    filters = ComparisonFilters(redact=redact)
    comparison = compare_stored(str(a), str(b), a.parent, criteria.gates, filters=filters, warn=lambda _: None)
    # not by their paths
    comparison = replace(comparison, a=replace(comparison.a, name=a.name), b=replace(comparison.b, name=b.name))
    results = decide(comparison, criteria)
    for folder in (a, b):
        fetch_outputs(folder)
    return comparison_page(comparison, results, frame)


def render_agreement(run: Path, frame: PageFrame) -> str:
    """The page of ``visioneval agreement RUN``. Raises ``UsageError``, also for a run without labels."""
    notes: list[str] = []
    report = agreement_report(agree([read_labeled(str(run), run.parent, notes.append)]))
    return sections_page(replace(report, lines=[*map(quoted, notes), *report.lines]), frame)
