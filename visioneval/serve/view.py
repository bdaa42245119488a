"""The viewer: the index, reports, comparisons, agreement, and the label page of each run of a folder.

Reports are rendered when they are asked for. Their images stay in the run's folder until they are shown.
"""

from __future__ import annotations

import hashlib
import mimetypes
import shutil
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from visioneval.analysis.agreement.agreement import agree
from visioneval.analysis.agreement.answers import read_labeled
from visioneval.errors import ImageError, RunFormatError, UsageError, VisionEvalError, count_of
from visioneval.label.labeling import Labeling
from visioneval.label.work import LabelRequest, prepare
from visioneval.media import images
from visioneval.records.model import read_info
from visioneval.records.reader import RESULTS, count_cells
from visioneval.records.runs import current_state, with_current_state
from visioneval.records.stores.lookup import copies_at, display_name, fetch_outputs
from visioneval.records.untrusted import check_run_folder, read_header
from visioneval.records.writer import is_run_id
from visioneval.report.agreement import agreement_report
from visioneval.report.html.images import BROWSER_SUFFIXES, THUMB_SIDE, VIDEOS, FolderImages, small_webp
from visioneval.report.html.pages import PageFrame, policy, render, script, sections_page, style
from visioneval.report.html.report import GalleryFilters, read_slim, suite_folder, write_files
from visioneval.report.sections import quoted
from visioneval.report.text import one_line
from visioneval.serve.baseline_line import references
from visioneval.serve.index import (
    BACK,
    FOLDER,
    INDEX_SCRIPT,
    STYLE,
    RunListing,
    Stamp,
    digest,
    index_page,
    index_policy,
    run_address,
    stamp,
)
from visioneval.serve.label import application as label_application
from visioneval.serve.server import Log, asset_response, listening
from visioneval.serve.site import live_notice, render_comparison
from visioneval.settings import MAX_GALLERY_CELLS
from visioneval.suite.entries.graders import KINDS

PAGE = "the viewer"
POLL_SECONDS = 3
STORE_POLL_SECONDS = 30
_THUMBS = 2000
_GONE = "This run is gone"
LIVE_SCRIPT = "live.js"
_FILES = ("run.json", "results.jsonl", *(kind.file for kind in KINDS if kind.file is not None))
_VERSIONS_KEPT = 2
"""Renderings of a run whose data files an open page may still ask for."""
_MAX_RUNS = 16
"""Runs whose renderings stay on disk."""


def serve(
    root: Path, *, metrics: Sequence[str], trust: bool, host: str, port: int | None, open_page: bool, log: Log
) -> None:
    """Serves the runs of a folder until interrupted. Without ``port``: 8377, or a free port if that is in use.

    Raises ``UsageError`` for a host that is not local, a port in use, or a folder that does not exist.
    """
    if copies_at(root) is None and not root.is_dir():
        raise UsageError(f"{root}: there is no such folder of runs; name one with --runs")
    with (
        listening(host, port, PAGE) as address,
        tempfile.TemporaryDirectory(prefix="visioneval-view-", ignore_cleanup_errors=True) as folder,
    ):
        listing = RunListing(root)
        log(f"{display_name(root)}: {count_of(len(listing.rows()), 'run')}")
        app = application(Viewer(listing, ReportPages(Path(folder), trust), tuple(metrics)))
        address.serve(app, open_page=open_page, log=log)


def application(viewer: Viewer) -> Starlette:
    """The application."""
    routes = [
        Route("/", viewer.index),
        Route("/changes", viewer.changes),
        Route("/compare", viewer.compare),
        Route("/agreement/{run}/", viewer.agreement),
        *(Route(f"/{name}", partial(asset_response, name)) for name in (INDEX_SCRIPT, LIVE_SCRIPT, STYLE)),
        Route("/run/{run}/", viewer.report),
        Route("/run/{run}/state", viewer.state),
        Route("/run/{run}/output/{file:path}", viewer.output),
        Route("/run/{run}/thumb/{file:path}", viewer.thumb),
        Route("/run/{run}/{version}/{file:path}", viewer.report_file),
        Mount("/label/{run}", viewer.label),
    ]
    problems = (VisionEvalError, HTTPException, OSError, RuntimeError)
    return Starlette(routes=routes, exception_handlers=dict.fromkeys(problems, _problem_response))


@dataclass
class Viewer:
    """What the server shows: the runs of a folder. ``metrics`` are globs of the metrics with a line."""

    listing: RunListing
    reports: ReportPages
    metrics: tuple[str, ...] = ()
    _labels: dict[str, tuple[Stamp, Starlette]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, run_id: str, *, refresh: bool = True) -> Path:
        """The folder of a run. ``refresh`` brings the copy of a store up to date. Raises ``RunFormatError``."""
        copies = copies_at(self.listing.root)
        if run_id in ("", ".", "..") or any(sign in run_id for sign in "/\\\0") or (copies and not is_run_id(run_id)):
            raise RunFormatError(f"{one_line(run_id, 80)}: is not the name of a run")
        if copies is not None and refresh:
            copies.refresh(run_id)
        folder = self.listing.root / run_id
        if not (folder / "run.json").is_file():
            raise RunFormatError(f"{display_name(folder)}: there is no such run: it was deleted or moved")
        return folder

    def index(self, _: Request) -> Response:
        """All runs."""
        root = self.listing.root
        seconds = POLL_SECONDS if copies_at(root) is None else STORE_POLL_SECONDS
        rows = self.listing.rows()
        page = index_page(rows, display_name(root), self.metrics, seconds, baselines=references(rows, root))
        return _html(page, index_policy())

    def changes(self, _: Request) -> Response:
        """Whether the index is up to date."""
        return JSONResponse({"version": digest(self.listing.rows())})

    def report(self, request: Request) -> Response:
        """The report of a run, at the address of its current version."""
        version = self.reports.render(self.run(request.path_params["run"]))
        return RedirectResponse(f"{request.url.path}{version}/", 307)

    def report_file(self, request: Request) -> Response:
        """A file of a rendered report."""
        run_id, version = request.path_params["run"], request.path_params["version"]
        name = request.path_params["file"] or "index.html"
        self.run(run_id, refresh=False)  # nothing of a run that is gone
        path = images.within(self.reports.page(run_id, version), name) if version.isalnum() else None
        if path is None or not path.is_file():
            if name == "index.html":
                return RedirectResponse("../", 307)
            raise HTTPException(404, "no such file")
        return _file(path, {"content-security-policy": _served(policy(is_live=True))})

    def state(self, request: Request) -> Response:
        """Whether a report is up to date."""
        folder = self.run(request.path_params["run"])
        header = read_header(folder)
        shown = {"version": version_of(folder), "state": str(current_state(folder, header.get("state")))}
        return JSONResponse({**shown, "cells": count_cells(folder), "planned": header["planned_cells"]})

    def output(self, request: Request) -> Response:
        """An output of a run."""
        path = output_path(self.run(request.path_params["run"], refresh=False), request.path_params["file"])
        return _file(path, {"accept-ranges": "bytes"})

    def thumb(self, request: Request) -> Response:
        """A thumbnail of an output."""
        run, relative = self.run(request.path_params["run"], refresh=False), request.path_params["file"]
        data = _thumb(run, relative, stamp(images.within(run, relative)))
        if data is None:
            raise HTTPException(404, "this image cannot be shown")
        return Response(data, media_type="image/webp")

    def compare(self, request: Request) -> Response:
        """A comparison of two runs, the later with the earlier."""
        names = request.query_params.getlist("run")
        if len(set(names)) != 2:
            raise UsageError("tick two runs to compare them")
        started = {row.run_id: row.started_at for row in self.listing.rows()}
        a, b = (self.run(name) for name in sorted(names, key=lambda name: (started.get(name, ""), name)))
        links = (BACK, "./"), *((run.name, run_address(run.name)) for run in (a, b))
        return _html(render_comparison(a, b, PageFrame(links)), policy(script("compare"), style()))

    def agreement(self, request: Request) -> Response:
        """How far graders agree with the labels of a run."""
        folder = self.run(request.path_params["run"])
        links = ((BACK, "../../"), ("Report", f"../../{run_address(folder.name)}"))
        return _html(render_agreement(folder, PageFrame(links)), policy(inline_style=style(), has_script=False))

    async def label(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes requests on to the label page of the run in their path."""
        page = await run_in_threadpool(self._label_page, scope["path_params"]["run"], scope["path"].endswith("/"))
        await page(scope, receive, send)

    def _label_page(self, run_id: str, is_opened: bool) -> Starlette:
        """The label page of a run, with the cells that it had when the page was opened. Raises ``UsageError``."""
        folder = self.run(run_id, refresh=is_opened)
        with self._lock:
            current = stamp(folder / RESULTS)
            known = self._labels.get(run_id)
            if known is None or (is_opened and known[0] != current):
                name = str(folder.absolute()) if copies_at(self.listing.root) is None else run_id
                task = prepare(LabelRequest(name, self.listing.root))
                known = self._labels[run_id] = current, label_application(Labeling(task))
            return known[1]


def _served(content_policy: str) -> str:
    return content_policy.replace(" file:", "") + "; frame-ancestors 'none'"


def _html(page: str, content_policy: str, status: int = 200) -> Response:
    return HTMLResponse(page, status, headers={"content-security-policy": _served(content_policy)})


def _file(path: Path, headers: dict[str, str]) -> Response:
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return FileResponse(path, media_type=kind, headers=headers)


@lru_cache(maxsize=_THUMBS)
def _thumb(run: Path, relative: str, _: Stamp) -> bytes | None:
    return small_webp(run, relative, THUMB_SIDE) if relative.startswith("artifacts/") else None


def _problem_response(request: Request, error: Exception) -> Response:
    """One clear page, or a line for a file or a script."""
    status, text = 404, "a file of this run is gone or cannot be read"
    if isinstance(error, HTTPException):
        status, text = error.status_code, str(error.detail)
    elif isinstance(error, VisionEvalError):
        text = display_name(one_line(str(error), 1000))
    is_page = "text/html" in request.headers.get("accept", "text/html")
    if isinstance(error, (HTTPException, ImageError)) or not is_page:
        return JSONResponse({"error": text}, status_code=status)
    root = "../" * (request.url.path.count("/") - 2) or "./"
    title = _GONE if "there is no such run" in text else "This page cannot be shown"
    content_policy = policy(has_script=False)
    values = {"policy": content_policy, "title": title, "text": text, "frame": PageFrame(((BACK, root),)), "root": root}
    return _html(render("problem.html.j2", FOLDER, **values), content_policy, status)


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


def output_path(run: Path, relative: str) -> Path:
    """The file of an output that a page shows. Raises ``ImageError`` if it is none of the run's images and videos."""
    path = images.within(run, relative)
    is_shown = relative.startswith("artifacts/") and path.suffix.lower() in BROWSER_SUFFIXES | VIDEOS
    if not is_shown or not path.is_file():
        raise ImageError("there is no such image in the run")
    return path


def render_agreement(run: Path, frame: PageFrame) -> str:
    """The page of ``visioneval agreement RUN``. Raises ``UsageError``, also for a run without labels."""
    notes: list[str] = []
    report = agreement_report(agree([read_labeled(str(run), run.parent, notes.append)]))
    return sections_page(replace(report, lines=[*map(quoted, notes), *report.lines]), frame)
