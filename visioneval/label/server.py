"""The label page's application: one page, its style and script, and a small JSON interface to the desk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field, StringConstraints, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from visioneval.errors import ImageError, StorageError, UsageError, VisionEvalError
from visioneval.label.auth import Guard, knows
from visioneval.label.labeling import MAX_SECONDS, Labeling, UnknownItemError
from visioneval.records.labels import Rater, rater_name
from visioneval.types import Frozen

_STATIC = Path(__file__).parent / "static"
SentT = TypeVar("SentT", "Looked", "Asked")
_Key = Annotated[str, StringConstraints(max_length=64)]


class Looked(Frozen):
    """What the page posts when a rater is through with an item. ``seconds`` is how long it was in sight."""

    rater: Rater
    item: _Key
    seconds: Annotated[float, Field(ge=0, le=MAX_SECONDS)]
    answers: dict[_Key, Any] = Field(default_factory=dict)


class Asked(Frozen):
    """What the page posts about the rater's deck."""

    rater: Rater


def application(desk: Labeling, *, hosts: frozenset[str], token: str, rater: str | None) -> ASGIApp:
    """The whole application. ``rater`` is the name that the page begins with; ``None`` lets it ask."""

    async def page(request: Request) -> Response:
        if not knows(token, request.query_params.get("token", "")):
            return PlainTextResponse("Open the address that the command printed, all of it.", 403)
        return FileResponse(_STATIC / "page.html", media_type="text/html")

    async def start(_: Request) -> Response:
        return JSONResponse({"rater": rater})

    def item(request: Request) -> Response:
        return JSONResponse(desk.next(rater_name(request.query_params.get("rater", ""))))

    def serve_image(request: Request) -> Response:
        return _image(desk, request.path_params["key"])

    async def answer(request: Request) -> Response:
        sent = await _sent(request, Looked)
        return JSONResponse(await run_in_threadpool(desk.answer, sent.rater, sent.item, sent.answers, sent.seconds))

    async def skip(request: Request) -> Response:
        sent = await _sent(request, Looked)
        return JSONResponse(await run_in_threadpool(desk.skip, sent.rater, sent.item, sent.seconds))

    async def undo(request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(desk.undo, (await _sent(request, Asked)).rater))

    async def reopen(request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(desk.reopen, (await _sent(request, Asked)).rater))

    routes = [
        Route("/", page),
        Route("/page.css", _file("page.css", "text/css")),
        *(Route(f"/{name}", _file(name, "text/javascript")) for name in ("page.js", "asks.js", "zoom.js")),
        *(Route(f"/api/{each.__name__}", each) for each in (start, item)),
        Route("/api/image/{key}", serve_image),
        *(Route(f"/api/{each.__name__}", each, methods=["POST"]) for each in (answer, skip, undo, reopen)),
    ]
    app = Starlette(routes=routes, exception_handlers={VisionEvalError: _failed, HTTPException: _refused})
    return Guard(app, hosts=hosts, token=token)


def _file(name: str, kind: str) -> Callable[[Request], Response]:
    def send(_: Request) -> Response:
        return FileResponse(_STATIC / name, media_type=kind)

    return send


def _image(desk: Labeling, key: str) -> Response:
    try:
        found = desk.shelf.get(key)
    except ImageError:
        raise HTTPException(410, "this image cannot be shown: its file is missing or damaged") from None
    if found is None:
        raise HTTPException(404, "there is no such image")
    return Response(found.data, media_type=found.mime)


async def _sent(request: Request, form: type[SentT]) -> SentT:
    try:
        return form.model_validate_json(await request.body())
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise UsageError(f"{'.'.join(map(str, first['loc'])) or 'body'}: {first['msg']}") from None


def _failed(_: Request, error: Exception) -> Response:
    """Ours: what was asked does not fit, the page is an old one, or the disk does not take it."""
    status = 507 if isinstance(error, StorageError) else 409 if isinstance(error, UnknownItemError) else 400
    return JSONResponse({"error": "the disk does not take it" if status == 507 else str(error)}, status_code=status)


def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, status_code=error.status_code, headers=error.headers)
