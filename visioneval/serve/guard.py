"""Access control of a local server: only a local browser on our page with the token of this server.

Other pages cannot reach it through another host name (Host), a form or a script (Origin, the token, JSON only), and get
only a status and one line.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY = 64 * 1024
WRONG_TOKEN = 403, "wrong token: open the URL that the command printed"
_POLICY = b"content-security-policy"
SECURITY_HEADERS = {
    _POLICY: b"default-src 'none'; script-src 'self'; style-src 'self'; img-src blob: data:; "
    b"media-src blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
}


class AuthMiddleware:
    """Wraps an application all of whose paths start with ``/TOKEN/``. ``hosts`` are the accepted ``host:port`` values.

    A response may bring a content security policy that is stricter for its page; every other header is set here.
    """

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str], token: str) -> None:
        self._app = app
        self._hosts = hosts
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request or rejects it with a reason."""
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
        site = headers.get("sec-fetch-site", "none")
        path: str = scope["path"]
        # a link on another site, such as a web terminal, may open the first page
        if path != f"/{self._token}/" and site not in ("same-origin", "none"):
            return 403, "request from another site"
        given = path.split("/", 2)[1] if path.count("/") > 1 else ""
        if not hmac.compare_digest(given.encode("utf-8", "replace"), self._token.encode()):  # in constant time
            return WRONG_TOKEN
        return _body_refusal(headers) if scope["method"] == "POST" else None


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
            own = dict(message.get("headers", ()))
            headers = {**own, **SECURITY_HEADERS, _POLICY: own.get(_POLICY, SECURITY_HEADERS[_POLICY])}
            message = {**message, "headers": list(headers.items())}
        await send(message)

    return sent
