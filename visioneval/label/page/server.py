"""The label page's application: one page, its style and scripts, and a JSON API."""

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

from visioneval.errors import ImageError, StorageError, UsageError, VisionEvalError
from visioneval.label.labeling import MAX_SECONDS, Labeling, UnknownItemError
from visioneval.local_server.guard import is_valid_token
from visioneval.records.labels import Rater, rater_name
from visioneval.types import Frozen

_STATIC = Path(__file__).parent / "static"
RequestT = TypeVar("RequestT", "ItemRequest", "RaterRequest")
_Key = Annotated[str, StringConstraints(max_length=64)]


class ItemRequest(Frozen):
    """The request that answers or skips an item. ``seconds`` is how long it was visible."""

    rater: Rater
    item: _Key
    seconds: Annotated[float, Field(ge=0, le=MAX_SECONDS)]
    answers: dict[_Key, Any] = Field(default_factory=dict)


class RaterRequest(Frozen):
    """A request about a rater's queue."""

    rater: Rater


def application(labeling: Labeling, *, token: str | None, rater: str | None) -> Starlette:
    """The application, for a guard to wrap; without ``token`` the guard checks all of it.

    ``rater`` is the initial rater name; with ``None`` the page asks for it.
    """

    async def page(request: Request) -> Response:
        if token is not None and not is_valid_token(token, request.query_params.get("token", "")):
            return PlainTextResponse("Open the complete URL that the command printed.", 403)
        return FileResponse(_STATIC / "page.html", media_type="text/html")

    async def start(_: Request) -> Response:
        return JSONResponse({"rater": rater})

    def item(request: Request) -> Response:
        return JSONResponse(labeling.next(rater_name(request.query_params.get("rater", ""))))

    def serve_image(request: Request) -> Response:
        return _image_response(labeling, request.path_params["key"])

    async def answer(request: Request) -> Response:
        body = await _parse_body(request, ItemRequest)
        return JSONResponse(await run_in_threadpool(labeling.answer, body.rater, body.item, body.answers, body.seconds))

    async def skip(request: Request) -> Response:
        body = await _parse_body(request, ItemRequest)
        return JSONResponse(await run_in_threadpool(labeling.skip, body.rater, body.item, body.seconds))

    async def undo(request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(labeling.undo, (await _parse_body(request, RaterRequest)).rater))

    async def reopen(request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(labeling.reopen, (await _parse_body(request, RaterRequest)).rater))

    routes = [
        Route("/", page),
        Route("/page.css", _file("page.css", "text/css")),
        *(Route(f"/{name}", _file(name, "text/javascript")) for name in ("page.js", "asks.js", "zoom.js")),
        *(Route(f"/api/{handler.__name__}", handler) for handler in (start, item)),
        Route("/api/image/{key}", serve_image),
        *(Route(f"/api/{handler.__name__}", handler, methods=["POST"]) for handler in (answer, skip, undo, reopen)),
    ]
    return Starlette(
        routes=routes, exception_handlers={VisionEvalError: _error_response, HTTPException: _http_error_response}
    )


def _file(name: str, kind: str) -> Callable[[Request], Response]:
    def send(_: Request) -> Response:
        return FileResponse(_STATIC / name, media_type=kind)

    return send


def _image_response(labeling: Labeling, key: str) -> Response:
    try:
        media = labeling.media.get(key)
    except ImageError:
        raise HTTPException(410, "this image cannot be shown: its file is missing or damaged") from None
    if media is None:
        raise HTTPException(404, "unknown image")
    return Response(media.data, media_type=media.mime)


async def _parse_body(request: Request, form: type[RequestT]) -> RequestT:
    try:
        return form.model_validate_json(await request.body())
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise UsageError(f"{'.'.join(map(str, first['loc'])) or 'body'}: {first['msg']}") from None


def _error_response(_: Request, error: Exception) -> Response:
    """Responds to our errors: invalid request, outdated page, or failed write."""
    if isinstance(error, StorageError):
        message = "the answer could not be saved: the disk is full or not writable"
        return JSONResponse({"error": message}, status_code=507)
    status = 409 if isinstance(error, UnknownItemError) else 400
    return JSONResponse({"error": str(error)}, status_code=status)


def _http_error_response(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, status_code=error.status_code, headers=error.headers)
