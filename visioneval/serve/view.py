"""The viewer: the index, reports, comparisons, agreement, and the label page of each run of a folder."""

from __future__ import annotations

import hashlib
import mimetypes
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from visioneval.errors import ImageError, RunFormatError, UsageError, VisionEvalError, count_of
from visioneval.label.labeling import Labeling
from visioneval.label.work import LabelRequest, prepare
from visioneval.media import images
from visioneval.records.reader import records_of
from visioneval.records.run_folders import read_header
from visioneval.records.runs import current_state
from visioneval.records.stores.locations import copies_at, display_name
from visioneval.records.writer import is_run_id
from visioneval.report.html.images import THUMB_SIDE, small_webp
from visioneval.report.html.pages import PageFrame, policy, script, style
from visioneval.report.text import one_line
from visioneval.serve.assets import STYLE, asset_response
from visioneval.serve.guard import TokenInPath
from visioneval.serve.index import (
    BACK,
    INDEX_SCRIPT,
    LIVE_SCRIPT,
    IndexOptions,
    index_page,
    problem_page,
    run_address,
)
from visioneval.serve.label import application as label_application
from visioneval.serve.listing import RunListing, RunRow, Stamp, stamp
from visioneval.serve.reports import ReportPages, output_path, render_agreement, render_comparison, version_of
from visioneval.serve.server import Log, listening

PAGE = "the viewer"
POLL_SECONDS = 3
STORE_POLL_SECONDS = 30
_THUMBS = 2000
_FRAME = "; frame-ancestors 'none'"
_GONE = "This run is gone"
_PAGE_POLICY = policy(is_live=True).replace(" file:", "").replace("form-action 'none'", "form-action 'self'") + _FRAME


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
        app = application(Viewer(listing, ReportPages(Path(folder), trust), tuple(metrics)), address.token)
        address.serve(app, TokenInPath(address.token), f"/{address.token}/", open_page=open_page, log=log)


def application(viewer: Viewer, token: str) -> Starlette:
    """The application, for the guard to wrap: every path starts with ``/TOKEN/``."""
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
    handlers: dict[Any, Any] = dict.fromkeys(problems, _problem_response)
    return Starlette(routes=[Mount(f"/{token}", routes=routes)], exception_handlers=handlers)


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

    def index(self, _: Request) -> Response:
        """All runs."""
        rows = self.listing.rows()
        return _html(index_page(rows, self.options(rows)), _PAGE_POLICY)

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
        folder = self.reports.page(run_id, version) if version.isalnum() else None
        self.run(run_id, refresh=False)  # nothing of a run that is gone
        path = None if folder is None else images.within(folder, name)
        if path is None or not path.is_file():
            if name == "index.html":
                return RedirectResponse("../", 307)
            raise HTTPException(404, "no such file")
        media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        return FileResponse(path, media_type=media_type, headers={"content-security-policy": _PAGE_POLICY})

    def state(self, request: Request) -> Response:
        """Whether a report is up to date."""
        folder = self.run(request.path_params["run"])
        header = read_header(folder)
        shown = {"version": version_of(folder), "state": str(current_state(folder, header.get("state")))}
        return JSONResponse({**shown, "cells": len(records_of(folder)), "planned": header["planned_cells"]})

    def output(self, request: Request) -> Response:
        """An output of a run."""
        path = output_path(self.run(request.path_params["run"], refresh=False), request.path_params["file"])
        return FileResponse(path, media_type=mimetypes.guess_type(path.name)[0], headers={"accept-ranges": "bytes"})

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
        page = render_comparison(
            a, b, PageFrame(((BACK, "./"), *((name.name, run_address(name.name)) for name in (a, b))))
        )
        return _html(page, policy(script("compare"), style()) + _FRAME)

    def agreement(self, request: Request) -> Response:
        """How far graders agree with the labels of a run."""
        folder = self.run(request.path_params["run"])
        links = ((BACK, "../../"), ("Report", f"../../{run_address(folder.name)}"))
        return _html(render_agreement(folder, PageFrame(links)), policy(inline_style=style()) + _FRAME)

    async def label(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes requests on to the label page of the run in their path."""
        run_id, is_opened = scope["path_params"]["run"], scope["path"].endswith("/")
        page = await run_in_threadpool(self.label_page, run_id, is_opened=is_opened)
        await page(scope, receive, send)


def digest(rows: list[RunRow]) -> str:
    """Changes when the index would."""
    return hashlib.sha256(repr(rows).encode("utf-8", "replace")).hexdigest()[:16]


def _html(page: str, content_policy: str, status: int = 200) -> Response:
    return HTMLResponse(page, status, headers={"content-security-policy": content_policy})


@lru_cache(maxsize=_THUMBS)
def _thumb(run: Path, relative: str, _: Stamp) -> bytes | None:
    return small_webp(run, relative, THUMB_SIDE) if relative.startswith("artifacts/") else None


def _problem_response(request: Request, error: Exception) -> Response:
    """One clear page, or a line for a file or a script."""
    is_http = isinstance(error, HTTPException)
    status = error.status_code if isinstance(error, HTTPException) else 404
    text = str(error.detail) if isinstance(error, HTTPException) else display_name(one_line(str(error), 1000))
    if isinstance(error, (OSError, RuntimeError)) and not isinstance(error, VisionEvalError):
        text = "a file of this run is gone or cannot be read"
    if is_http or isinstance(error, ImageError) or "text/html" not in request.headers.get("accept", "text/html"):
        return JSONResponse({"error": text}, status_code=status)
    depth = request.url.path.count("/") - 2
    root = "../" * depth or "./"
    title = _GONE if "there is no such run" in text else "This page cannot be shown"
    return _html(problem_page(title, text, ((BACK, root),), root), _PAGE_POLICY, status)
