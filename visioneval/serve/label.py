"""The label page: one page, its style and scripts, and a JSON API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeVar
from urllib.parse import urlencode

from pydantic import Field, StringConstraints, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from visioneval.errors import ImageError, StorageError, UsageError, VisionEvalError
from visioneval.label.labeling import MAX_SECONDS, Labeling, UnknownItemError
from visioneval.label.work import LabelRequest, prepare
from visioneval.records.labels import LABELS, Rater, rater_name
from visioneval.records.stores.locations import display_name
from visioneval.serve.assets import asset_response, read_asset
from visioneval.serve.guard import TokenInHeader, is_valid_token
from visioneval.serve.server import Log, listening
from visioneval.types import Frozen

PAGE = "the label page"
SCRIPTS = ("label", "asks", "drafts", "keys", "page", "panes", "questions", "requests", "zoom")
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
        app = application(Labeling(task), token=address.token, rater=rater)
        page = f"/?{urlencode({'token': address.token})}"
        hint = "; every answer is saved immediately"
        address.serve(app, TokenInHeader(address.token), page, open_page=open_page, log=log, hint=hint)
        labels = task.folder / LABELS
        outcome = f"the answers are in {display_name(labels)}" if labels.exists() else "nothing was answered"
        log(f"stopped; {outcome}")


def application(labeling: Labeling, *, token: str | None, rater: str | None) -> Starlette:
    """The application, for the guard to wrap; without ``token`` the guard checks all of it.

    ``rater`` is the initial rater name; with ``None`` the page asks for it.
    """
    page = _LabelPage(labeling, token, rater)
    posts = (page.answer, page.skip, page.undo, page.reopen)
    routes = [
        Route("/", page.index),
        *(
            Route(f"/{name}", partial(asset_response, name))
            for name in ("label.css", *(f"{part}.js" for part in SCRIPTS))
        ),
        Route("/api/start", page.start),
        Route("/api/item", page.item),
        Route("/api/image/{key}", page.image),
        *(Route(f"/api/{handler.__name__}", handler, methods=["POST"]) for handler in posts),
    ]
    return Starlette(
        routes=routes, exception_handlers={VisionEvalError: _error_response, HTTPException: _http_error_response}
    )


@dataclass(frozen=True)
class _LabelPage:
    """The page and the answers to its requests."""

    labeling: Labeling
    token: str | None
    rater: str | None

    def index(self, request: Request) -> Response:
        """The page."""
        if self.token is not None and not is_valid_token(self.token, request.query_params.get("token", "")):
            return PlainTextResponse("Open the complete URL that the command printed.", 403)
        return Response(read_asset("label.html"), media_type="text/html")

    def start(self, _: Request) -> Response:
        """The initial rater."""
        return JSONResponse({"rater": self.rater})

    def item(self, request: Request) -> Response:
        """The next item of a rater."""
        return JSONResponse(self.labeling.next(rater_name(request.query_params.get("rater", ""))))

    def image(self, request: Request) -> Response:
        """An image of an item."""
        try:
            media = self.labeling.media.get(request.path_params["key"])
        except ImageError:
            raise HTTPException(410, "this image cannot be shown: its file is missing or damaged") from None
        if media is None:
            raise HTTPException(404, "unknown image")
        return Response(media.data, media_type=media.mime)

    async def answer(self, request: Request) -> Response:
        """Saves the answers to an item."""
        body = await _parse_body(request, ItemRequest)
        return await _answered(self.labeling.answer, body.rater, body.item, body.answers, body.seconds)

    async def skip(self, request: Request) -> Response:
        """Skips an item."""
        body = await _parse_body(request, ItemRequest)
        return await _answered(self.labeling.skip, body.rater, body.item, body.seconds)

    async def undo(self, request: Request) -> Response:
        """Undoes the last item."""
        return await _answered(self.labeling.undo, (await _parse_body(request, RaterRequest)).rater)

    async def reopen(self, request: Request) -> Response:
        """Reopens skipped items."""
        return await _answered(self.labeling.reopen, (await _parse_body(request, RaterRequest)).rater)


async def _answered(change: Callable[..., dict[str, Any]], *arguments: Any) -> Response:
    return JSONResponse(await run_in_threadpool(change, *arguments))


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
