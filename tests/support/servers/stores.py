"""Machines of their own for tests of object stores, and a proxy whose store fails on demand."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import fsspec
import pytest
from http_server import serving

from visioneval.records.stores import lookup, writing


def forget_stores() -> None:
    """Forgets all stores and their folders, as a new process would. Clients stay: to create one takes long."""
    lookup._COPIES.clear()
    lookup._CACHES.clear()
    writing._PUBLISHERS.clear()


def forget_clients() -> None:
    """Forgets the clients of other servers."""
    for scheme in ("s3", "gs"):
        fsspec.get_filesystem_class(scheme).clear_instance_cache()


class Machines:
    """Several machines in one process: each has folders of its own, and knows nothing of the others."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._monkeypatch = folder, monkeypatch

    def use(self, name: str) -> Path:
        """From now on, this process is that machine. Returns its folder."""
        forget_stores()
        self._monkeypatch.setenv("VISIONEVAL_STORES", str(self._folder / name / "stores"))
        self._monkeypatch.setenv("XDG_CACHE_HOME", str(self._folder / name / "cache"))
        return self._folder / name


_ERRORS = {"503": "SlowDownForNow", "403": "AccessDenied", "501": "NotImplemented", "412": "PreconditionFailed"}


@dataclass(slots=True)
class Fault:
    """What happens to the next ``times`` requests of a method whose path contains ``part``."""

    kind: Literal["503", "403", "501", "412", "cut", "slow", "held", "lost", "unconditional"]
    method: str
    part: str
    times: int = 1
    seen: int = 0


@dataclass(slots=True)
class FaultyStore:
    """A proxy in front of a store. ``faults`` can change at any time; ``requests`` are all methods and paths.

    Requests that are ``held`` wait for ``released``.
    """

    url: str = ""
    released: threading.Event = field(default_factory=threading.Event)
    faults: list[Fault] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: Any, method: str, part: str, times: int = 1) -> Fault:
        """Adds a fault for requests of a method whose path contains ``part``."""
        fault = Fault(kind, method, part, times)
        self.faults.append(fault)
        return fault

    def reset(self) -> None:
        """Works again, and forgets its requests."""
        with self.lock:
            self.faults.clear()
            self.requests.clear()
        self.released.set()

    def next(self, method: str, path: str) -> str | None:
        """The fault of a request."""
        with self.lock:
            self.requests.append((method, path))
            for fault in self.faults:
                if fault.seen < fault.times and fault.method == method and fault.part in path:
                    fault.seen += 1
                    return fault.kind
        return None


class _Proxy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: FaultyStore
    host: str

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        fault = self.store.next(self.command, unquote(self.path))
        if fault in _ERRORS:
            self._reply(int(fault), {}, f"<Error><Code>{_ERRORS[fault]}</Code><Message>no</Message></Error>".encode())
            return
        if fault == "slow":
            time.sleep(0.3)
        if fault == "held":
            self.store.released.wait(60)
        status, headers, data = self._forward(body, is_conditional=fault != "unconditional")
        if fault == "lost":
            self.close_connection = True
        else:
            self._reply(status, headers, data, cut=fault == "cut")

    def _forward(self, body: bytes, *, is_conditional: bool) -> tuple[int, dict[str, str], bytes]:
        dropped = ("expect",) if is_conditional else ("expect", "if-none-match")
        headers = {name: value for name, value in self.headers.items() if name.lower() not in dropped}
        connection = http.client.HTTPConnection(self.host, timeout=30)
        connection.request(self.command, self.path, body, headers)
        reply = connection.getresponse()
        data = reply.read()
        connection.close()
        return reply.status, {name.lower(): value for name, value in reply.getheaders()}, data

    def _reply(self, status: int, headers: dict[str, str], data: bytes, *, cut: bool = False) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name not in ("content-length", "connection", "transfer-encoding", "date", "server"):
                self.send_header(name, value)
        is_head = self.command == "HEAD"
        self.send_header("content-length", headers.get("content-length", "0") if is_head else str(len(data)))
        self.end_headers()
        self.wfile.write(b"" if is_head else data[: len(data) // 2] if cut else data)
        self.close_connection = self.close_connection or cut

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _handle  # noqa: N815

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def faulty(upstream: str) -> Iterator[FaultyStore]:
    """A proxy in front of the store at ``upstream``."""
    store = FaultyStore()
    with serving(type("Proxy", (_Proxy,), {"store": store, "host": urlsplit(upstream).netloc})) as url:
        store.url = url
        yield store
