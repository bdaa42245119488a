"""Runs the label server on this machine."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from visioneval.errors import UsageError
from visioneval.label.work import LabelRequest, prepare
from visioneval.records.labeling.labels import LABELS, rater_name
from visioneval.records.stores.locations import display_name

if TYPE_CHECKING:
    from starlette.types import ASGIApp

DEFAULT_PORT = 8377
_TOKEN_BYTES = 24
_GRACE_S = 2
Log = Callable[[str], None]


def check_extra() -> None:
    """Raises ``UsageError`` if the extra ``label`` is not installed."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise UsageError(
            "the label page needs starlette and uvicorn: run pip install '.[label]' in a checkout of visioneval"
        ) from None


def serve(request: LabelRequest, *, host: str, port: int | None, rater: str | None, open_page: bool, log: Log) -> None:
    """Serves until interrupted. Without ``port``: 8377, or a free port if that is in use.

    Raises ``UsageError`` for a host that is not local, a port in use, an invalid rater name, or a run without
    anything to label.
    """
    check_extra()
    rater = None if rater is None else rater_name(rater)
    from visioneval.label.labeling import Labeling
    from visioneval.label.page.server import application

    with contextlib.closing(_listener(host, port)) as listener:
        task = prepare(request)
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        bound: int = listener.getsockname()[1]
        hosts = frozenset(_authority(name, bound) for name in (host, "localhost"))
        address = f"http://{_authority(host, bound)}/?{urlencode({'token': token})}"
        for note in task.notes:
            log(note)
        log(f"{task.folder.name}: {len(task.subjects):,} to label; seed {task.session.seed}")
        log(f"open {address}")
        log("press Ctrl-C to stop; every answer is saved immediately")
        if open_page:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        _run(application(Labeling(task), hosts=hosts, token=token, rater=rater), listener)
        log(f"stopped; the answers are in {display_name(task.folder / LABELS)}")


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _run(app: ASGIApp, listener: socket.socket) -> None:
    import uvicorn

    config = uvicorn.Config(
        app,
        http="h11",
        loop="asyncio",
        ws="none",
        lifespan="off",
        log_level="error",
        access_log=False,  # it would log the token
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
    )
    with contextlib.suppress(KeyboardInterrupt):  # the normal way to stop
        uvicorn.Server(config).run(sockets=[listener])


def _listener(host: str, port: int | None) -> socket.socket:
    address = _loopback(host)
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


def _loopback(host: str) -> str:
    """The address of a local host. Raises ``UsageError`` for any other host."""
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        address = None
    if address is None or not address.is_loopback:
        raise UsageError(f"--host {host}: the label page is served only locally; use 127.0.0.1, ::1 or localhost")
    return str(address)
