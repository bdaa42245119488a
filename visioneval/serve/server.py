"""The server of every page: on this machine only, behind the guard, with a new token each time.

Scripts and styles are files: a page runs only what its own server sends.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from visioneval.errors import UsageError
from visioneval.installation import install_command
from visioneval.report.html.pages import style, theme

if TYPE_CHECKING:
    import uvicorn
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp

DEFAULT_PORT = 8377
Log = Callable[[str], None]
_TOKEN_BYTES = 24
_GRACE_S = 2


def check_extra(page: str) -> None:
    """Raises ``UsageError`` if the extra ``label`` is not installed, which has the server of every page."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise UsageError(f"{page} needs starlette and uvicorn: {install_command('label')}") from None


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
        import uvicorn
        from starlette.applications import Starlette
        from starlette.routing import Mount

        from visioneval.serve.guard import AuthMiddleware

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


FOLDER = Path(__file__).parent / "pages"
STYLE = "view.css"


@cache
def read_asset(name: str) -> str:
    """A file of the pages. A style begins with what it shares with others: at least the named colors and sizes."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    if name.endswith(".css"):
        return (style() if name == STYLE else theme()) + text
    return text


def asset_response(name: str, _: Request) -> Response:
    """Sends a page without values, a script or a style."""
    from starlette.responses import Response

    kind = {"css": "css", "html": "html"}.get(name.rpartition(".")[2], "javascript")
    return Response(read_asset(name), media_type=f"text/{kind}")
