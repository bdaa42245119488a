"""The server of every page: on this machine only, behind a guard, with a new token each time.

The guard lets in only a local browser on our page with the token of this server. Other pages cannot reach it through
another host name (Host), a form or a script (Origin, the token, JSON only), and get only a status and one line. Scripts
and styles are files: a page runs only what its own server sends.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import ipaddress
import secrets
import socket
import threading
import webbrowser
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from visioneval.errors import UsageError
from visioneval.serve.index import read_asset

DEFAULT_PORT = 8377
Log = Callable[[str], None]
_TOKEN_BYTES = 24
_GRACE_S = 2
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
_TOO_LARGE = f"the request is over {MAX_BODY:,} bytes"


@dataclass(frozen=True, slots=True)
class LocalAddress:
    """Where a server listens. ``hosts`` are the ``host:port`` values that requests may name."""

    listener: socket.socket
    origin: str
    hosts: frozenset[str]
    token: str

    def serve(self, app: ASGIApp, *, open_page: bool, log: Log, hint: str = "") -> None:
        """Serves until interrupted. ``hint`` follows Ctrl-C."""
        page = f"{self.origin}/{self.token}/"
        log(f"open {page}")
        log(f"press Ctrl-C to stop{hint}")
        if open_page:  # in a thread, as some browsers return only when they are closed
            threading.Thread(target=webbrowser.open, args=(page,), daemon=True).start()
        with contextlib.suppress(KeyboardInterrupt):
            self.server(app).run(sockets=[self.listener])

    def server(self, app: ASGIApp) -> uvicorn.Server:
        """The server of an application below ``/TOKEN/``, behind the guard. It is not started yet."""
        config = uvicorn.Config(
            AuthMiddleware(Starlette(routes=[Mount(f"/{self.token}", app)]), hosts=self.hosts, token=self.token),
            http="h11",
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_level="error",
            access_log=False,  # it would log the token
            server_header=False,
            timeout_graceful_shutdown=_GRACE_S,
        )
        return uvicorn.Server(config)


@contextlib.contextmanager
def listening(host: str, port: int | None, page: str) -> Iterator[LocalAddress]:
    """Listens at an address of this machine. Without ``port``: 8377, or a free port if that is in use.

    ``page`` names what is served, in messages. Raises ``UsageError`` for a host that is not local or a port in use.
    """
    with contextlib.closing(_listener(host, port, page)) as listener:
        bound: int = listener.getsockname()[1]
        hosts = frozenset(_authority(name, bound) for name in (host, "localhost"))
        yield LocalAddress(listener, f"http://{_authority(host, bound)}", hosts, secrets.token_urlsafe(_TOKEN_BYTES))


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _listener(host: str, port: int | None, page: str) -> socket.socket:
    address = _loopback(host, page)
    for candidate in (DEFAULT_PORT, 0) if port is None else (port,):
        listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, candidate))
            listener.listen()
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRINUSE and port is None:
                continue
            reason = "the port is in use: use another --port" if error.errno == errno.EADDRINUSE else error.strerror
            raise UsageError(f"{_authority(host, candidate)}: {reason}") from None
        return listener
    raise AssertionError("port 0 is never in use")


def _loopback(host: str, page: str) -> str:
    """The address of a local host. Raises ``UsageError`` for any other host."""
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        address = None
    if address is None or not address.is_loopback:
        raise UsageError(f"--host {host}: {page} is served only locally; use 127.0.0.1, ::1 or localhost")
    return str(address)


def asset_response(name: str, _: Request) -> Response:
    """Sends a page without values, a script or a style."""

    kind = {"css": "css", "html": "html"}.get(name.rpartition(".")[2], "javascript")
    return Response(read_asset(name), media_type=f"text/{kind}")


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
