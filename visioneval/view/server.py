"""The viewer's application: the index, reports, comparisons, agreement, and the label page of each run."""

from __future__ import annotations

import mimetypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from visioneval.errors import ImageError, UsageError, VisionEvalError
from visioneval.media import images
from visioneval.records.reader import records_of
from visioneval.records.run_folders import read_header
from visioneval.records.runs import current_state
from visioneval.records.stores.locations import display_name
from visioneval.report.html.images import THUMB_SIDE, small_webp
from visioneval.report.html.pages import PageFrame, policy, script, style
from visioneval.report.text import one_line
from visioneval.view.index import (
    BACK,
    INDEX_SCRIPT,
    LIVE_SCRIPT,
    STYLE,
    index_page,
    problem_page,
    run_address,
    view_script,
    view_style,
)
from visioneval.view.listing import Stamp, stamp
from visioneval.view.reports import output_path, version_of
from visioneval.view.results import render_agreement, render_comparison
from visioneval.view.viewer import Viewer, digest

_THUMBS = 2000
_FRAME = "; frame-ancestors 'none'"
_GONE = "This run is gone"
_PAGE_POLICY = policy(is_live=True).replace("file: ", "").replace("form-action 'none'", "form-action 'self'") + _FRAME


@dataclass(frozen=True)
class _Pages:
    """The pages, files and answers of the server."""

    viewer: Viewer

    def index(self, _: Request) -> Response:
        """All runs."""
        rows = self.viewer.listing.rows()
        return _html(index_page(rows, self.viewer.options(rows)), _PAGE_POLICY)

    def changes(self, _: Request) -> Response:
        """Whether the index is up to date."""
        return JSONResponse({"version": digest(self.viewer.listing.rows())})

    def report(self, request: Request) -> Response:
        """The report of a run, at the address of its current version."""
        version = self.viewer.reports.render(self.viewer.run(request.path_params["run"]))
        return RedirectResponse(f"{request.url.path}{version}/", 307)

    def report_file(self, request: Request) -> Response:
        """A file of a rendered report."""
        run_id, version = request.path_params["run"], request.path_params["version"]
        name = request.path_params["file"] or "index.html"
        folder = self.viewer.reports.page(run_id, version) if version.isalnum() else None
        self.viewer.run(run_id, refresh=False)  # nothing of a run that is gone
        path = None if folder is None else images.within(folder, name)
        if path is None or not path.is_file():
            if name == "index.html":
                return RedirectResponse("../", 307)
            raise HTTPException(404, "no such file")
        media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        return FileResponse(path, media_type=media_type, headers={"content-security-policy": _PAGE_POLICY})

    def state(self, request: Request) -> Response:
        """Whether a report is up to date."""
        folder = self.viewer.run(request.path_params["run"])
        header = read_header(folder)
        shown = {"version": version_of(folder), "state": str(current_state(folder, header.get("state")))}
        return JSONResponse({**shown, "cells": len(records_of(folder)), "planned": header["planned_cells"]})

    def output(self, request: Request) -> Response:
        """An output of a run."""
        path = output_path(self.viewer.run(request.path_params["run"], refresh=False), request.path_params["file"])
        return FileResponse(path, media_type=mimetypes.guess_type(path.name)[0], headers={"accept-ranges": "bytes"})

    def thumb(self, request: Request) -> Response:
        """A thumbnail of an output."""
        run, relative = self.viewer.run(request.path_params["run"], refresh=False), request.path_params["file"]
        data = _thumb(run, relative, stamp(images.within(run, relative)))
        if data is None:
            raise HTTPException(404, "this image cannot be shown")
        return Response(data, media_type="image/webp")

    def compare(self, request: Request) -> Response:
        """A comparison of two runs, the later with the earlier."""
        names = request.query_params.getlist("run")
        if len(set(names)) != 2:
            raise UsageError("tick two runs to compare them")
        started = {row.run_id: row.started_at for row in self.viewer.listing.rows()}
        a, b = (self.viewer.run(name) for name in sorted(names, key=lambda name: (started.get(name, ""), name)))
        page = render_comparison(a, b, PageFrame(((BACK, "./"), *((name.name, _run_link(name)) for name in (a, b)))))
        return _html(page, policy(script("compare"), style()) + _FRAME)

    def agreement(self, request: Request) -> Response:
        """How far graders agree with the labels of a run."""
        folder = self.viewer.run(request.path_params["run"])
        links = ((BACK, "../../"), ("Report", f"../../{_run_link(folder)}"))
        return _html(render_agreement(folder, PageFrame(links)), policy(inline_style=style()) + _FRAME)


def application(viewer: Viewer, token: str) -> Starlette:
    """The application, for a guard to wrap: every path starts with ``/TOKEN/``."""
    pages = _Pages(viewer)
    routes = [
        Route("/", pages.index),
        Route("/changes", pages.changes),
        Route("/compare", pages.compare),
        Route("/agreement/{run}/", pages.agreement),
        *(Route(f"/{name}", _static(name)) for name in (INDEX_SCRIPT, LIVE_SCRIPT, STYLE)),
        Route("/run/{run}/", pages.report),
        Route("/run/{run}/state", pages.state),
        Route("/run/{run}/output/{file:path}", pages.output),
        Route("/run/{run}/thumb/{file:path}", pages.thumb),
        Route("/run/{run}/{version}/{file:path}", pages.report_file),
        Mount("/label/{run}", _LabelPages(viewer)),
    ]
    problems = (VisionEvalError, HTTPException, OSError, RuntimeError)
    handlers: dict[Any, Any] = dict.fromkeys(problems, _problem_response)
    return Starlette(routes=[Mount(f"/{token}", routes=routes)], exception_handlers=handlers)


@dataclass(frozen=True)
class _LabelPages:
    """Passes requests on to the label page of the run in their path."""

    viewer: Viewer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        run_id, is_opened = scope["path_params"]["run"], scope["path"].endswith("/")
        page = await run_in_threadpool(self.viewer.label_page, run_id, is_opened=is_opened)
        await page(scope, receive, send)


def _run_link(run: Path) -> str:
    return run_address(run.name)


def _static(name: str) -> Callable[[Request], Response]:
    def send(_: Request) -> Response:
        if name == STYLE:
            return Response(view_style(), media_type="text/css")
        return Response(view_script(name), media_type="text/javascript")

    return send


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
