"""The label page: one page, its style and scripts, and a JSON API."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from pydantic import Field, StringConstraints, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from visioneval.errors import ImageError, StorageError, UsageError, VisionEvalError
from visioneval.label.labeling import MAX_SECONDS, Labeling, UnknownItemError
from visioneval.label.work import LabelRequest, prepare
from visioneval.records.labels import LABELS, Rater, rater_name
from visioneval.records.stores.lookup import display_name
from visioneval.serve.server import Log, asset_response, listening
from visioneval.types import Frozen

PAGE = "the label page"
SCRIPTS = ("label", "asks", "drafts", "keys", "page", "panes", "questions", "requests", "zoom")
_Key = Annotated[str, StringConstraints(max_length=64)]


class RaterRequest(Frozen):
    """A request about a rater's queue."""

    rater: Rater


class SkipRequest(RaterRequest):
    """The request that skips an item. ``seconds`` is how long it was visible."""

    item: _Key
    seconds: Annotated[float, Field(ge=0, le=MAX_SECONDS)]


class AnswerRequest(SkipRequest):
    """The request that answers the questions about an item."""

    answers: dict[_Key, Any]


def serve(request: LabelRequest, *, host: str, port: int | None, rater: str | None, open_page: bool, log: Log) -> None:
    """Serves until interrupted. Without ``port``: 8377, or a free port if that is in use.

    Raises ``UsageError`` for a host that is not local, a port in use, an invalid rater name, or a run without
    anything to label.
    """
    rater = None if rater is None else rater_name(rater)
    with listening(host, port, PAGE) as address:
        task = prepare(request)
        for note in task.notes:
            log(note)
        log(f"{task.folder.name}: {len(task.subjects):,} to label; seed {task.session.seed}")
        hint = "; every answer is saved immediately"
        address.serve(application(Labeling(task), rater), open_page=open_page, log=log, hint=hint)
        labels = task.folder / LABELS
        outcome = f"the answers are in {display_name(labels)}" if labels.exists() else "nothing was answered"
        log(f"stopped; {outcome}")


def application(labeling: Labeling, rater: str | None = None) -> Starlette:
    """The application. ``rater`` is the initial rater name; with ``None`` the page asks for it."""

    def start(_: Request) -> Response:
        return JSONResponse({"rater": rater})

    def item(request: Request) -> Response:
        return JSONResponse(labeling.next(rater_name(request.query_params.get("rater", ""))))

    def image(request: Request) -> Response:
        try:
            media = labeling.media.get(request.path_params["key"])
        except ImageError:
            raise HTTPException(410, "this image cannot be shown: its file is missing or damaged") from None
        if media is None:
            raise HTTPException(404, "unknown image")
        return Response(media.data, media_type=media.mime)

    async def change(method: Callable[..., dict[str, Any]], form: type[RaterRequest], request: Request) -> Response:
        try:
            body = form.model_validate_json(await request.body())
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise UsageError(f"{'.'.join(map(str, first['loc'])) or 'body'}: {first['msg']}") from None
        return JSONResponse(await run_in_threadpool(method, **dict(body)))

    def changing(path: str, method: Callable[..., dict[str, Any]], form: type[RaterRequest]) -> Route:
        return Route(f"/api/{path}", partial(change, method, form), methods=["POST"])

    names = ("label.css", *(f"{part}.js" for part in SCRIPTS))
    routes = [
        Route("/", partial(asset_response, "label.html")),
        *(Route(f"/{name}", partial(asset_response, name)) for name in names),
        Route("/api/start", start),
        Route("/api/item", item),
        Route("/api/image/{key}", image),
        changing("answer", labeling.answer, AnswerRequest),
        changing("skip", labeling.skip, SkipRequest),
        changing("undo", labeling.undo, RaterRequest),
        changing("reopen", labeling.reopen, RaterRequest),
    ]
    return Starlette(routes=routes, exception_handlers=dict.fromkeys((VisionEvalError, HTTPException), _error_response))


def _error_response(_: Request, error: Exception) -> Response:
    """Responds to errors: invalid request, outdated page, or failed write."""
    if isinstance(error, HTTPException):
        return JSONResponse({"error": error.detail}, status_code=error.status_code, headers=error.headers)
    if isinstance(error, StorageError):
        message = "the answer could not be saved: the disk is full or not writable"
        return JSONResponse({"error": message}, status_code=507)
    status = 409 if isinstance(error, UnknownItemError) else 400
    return JSONResponse({"error": str(error)}, status_code=status)
