"""Access control of the label server: only a local browser on our page with the token of this server.

Other pages cannot reach it through another host name (Host), a form or a script (Origin, the token in a header, JSON
only), and get only a status and one line.
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
SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src blob: data:; "
    "media-src blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class AuthMiddleware:
    """Wraps the application. ``hosts`` are the accepted ``host:port`` values."""

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str], token: str) -> None:
        self._app = app
        self._hosts = hosts
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request or rejects it with a reason."""
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
            await self._app(scope, _limit_body(receive), guarded)
        except ClientDisconnect:  # the browser disconnected during its request: nothing was saved
            return

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        if headers.get("host", "").lower() not in self._hosts:
            return 421, "wrong host name for this server"
        origins = [value.lower() for value in headers.getlist("origin")]
        if any(origin not in {f"http://{host}" for host in self._hosts} for origin in origins):
            return 403, "request from another origin"
        # the page itself may be opened from a link on another site, such as a web terminal; it still needs the token
        if scope["path"] != "/" and headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return 403, "request from another site"
        if scope["path"].startswith("/api/") and not is_valid_token(self._token, headers.get(TOKEN_HEADER, "")):
            return 403, "wrong token: open the URL that the command printed"
        if scope["method"] == "POST":
            return _body_refusal(headers)
        return None


def is_valid_token(token: str, given: str) -> bool:
    """Compares a token in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


_TOO_LARGE = f"the request is over {MAX_BODY:,} bytes"


def _body_refusal(headers: Headers) -> tuple[int, str] | None:
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return 415, "only JSON is accepted"
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > MAX_BODY:
        return 413, _TOO_LARGE
    return None


def _limit_body(receive: Receive) -> Receive:
    """Limits the size of a body without a content length."""
    size = 0

    async def received() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > MAX_BODY:
            raise HTTPException(413, _TOO_LARGE)
        return message

    return received


def _with_headers(send: Send) -> Callable[[Message], Awaitable[None]]:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
            message = {**message, "headers": [*message.get("headers", ()), *headers]}
        await send(message)

    return sent
