"""Who may talk to the label server: this machine's own browser on our own page, with the token of this start.

A page from elsewhere cannot reach it by another name of the host (Host), by a form or a script (Origin, the token in
a header, JSON alone), and is never told more than a status and a line.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN_HEADER = "x-visioneval-token"  # noqa: S105 - the name of a header
MAX_BODY = 64 * 1024
SECURITY = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src blob: data:; "
    "media-src blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """Wraps the application. ``hosts`` are the ``host:port`` that it answers to."""

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str], token: str) -> None:
        self._app = app
        self._hosts = hosts
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or says why not."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # no websocket is served
            return
        guarded = _with_headers(send)
        refusal = self._refusal(scope)
        if refusal is not None:
            status, why = refusal
            await JSONResponse({"error": why}, status_code=status)(scope, receive, guarded)
            return
        try:
            await self._app(scope, _bounded(receive), guarded)
        except ClientDisconnect:  # the browser went away in the middle of its request: nothing was kept of it
            return

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        if headers.get("host", "").lower() not in self._hosts:
            return 421, "this server has another name"
        origins = [value.lower() for value in headers.getlist("origin")]
        if any(origin not in {f"http://{host}" for host in self._hosts} for origin in origins):
            return 403, "this page comes from elsewhere"
        # the page itself may be opened from a link anywhere, as from a terminal in a browser: it needs the token still
        if scope["path"] != "/" and headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return 403, "this request comes from another site"
        if scope["path"].startswith("/api/") and not knows(self._token, headers.get(TOKEN_HEADER, "")):
            return 403, "the token is not that of this server: open the address that the command printed"
        if scope["method"] == "POST":
            return _unasked(headers)
        return None


def knows(token: str, said: str) -> bool:
    """Whether what was said is the token, in a time that does not tell how much of it is right."""
    return hmac.compare_digest(said.encode("utf-8", "replace"), token.encode())


_TOO_MUCH = f"over {MAX_BODY:,} bytes"


def _unasked(headers: Headers) -> tuple[int, str] | None:
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return 415, "only JSON is taken"
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > MAX_BODY:
        return 413, _TOO_MUCH
    return None


def _bounded(receive: Receive) -> Receive:
    """Counts a body that did not say how long it is."""
    seen = 0

    async def received() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > MAX_BODY:
            raise HTTPException(413, _TOO_MUCH)
        return message

    return received


def _with_headers(send: Send) -> Callable[[Message], Awaitable[None]]:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = [(name.encode(), value.encode()) for name, value in SECURITY.items()]
            message = {**message, "headers": [*message.get("headers", ()), *own]}
        await send(message)

    return sent
