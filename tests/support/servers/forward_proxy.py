"""A forward proxy on this machine: it sends calls for any host name to local servers, and notes what it was asked for."""

from __future__ import annotations

import base64
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from urllib.parse import urlsplit

from vertex import relay, server_context


@dataclass
class ForwardProxy:
    """Where it listens, and the host names in the order of the requests, each with its method (``CONNECT``, ``GET``).

    ``login`` is ``user:password`` if it needs one. ``answer`` is sent instead of any connection. ``chain`` is the file
    with the certificate of all its hosts.
    """

    url: str
    chain: Path
    login: str = ""
    answer: bytes = b""
    asked: list[tuple[str, str]] = field(default_factory=list)

    @property
    def hosts(self) -> set[str]:
        """The hosts that it was asked for."""
        return {host for _, host in self.asked}


@contextmanager
def forward_proxy(
    folder: Path, routes: Mapping[str, str], login: str = "", answer: bytes = b""
) -> Iterator[ForwardProxy]:
    """A proxy whose ``routes`` are host names with the URL of the local server that answers for each.

    Calls to an ``https`` URL are decrypted with the certificate in ``chain``; other hosts have 502.
    """
    context, chain = server_context(folder, routes)
    proxy = ForwardProxy("", chain, login, answer)
    handler = type("Handler", (_Handler,), {"proxy": proxy, "routes": routes, "context": context})
    with ThreadingTCPServer(("127.0.0.1", 0), handler) as listening:
        listening.daemon_threads = True
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        proxy.url = f"http://{f'{login}@' if login else ''}127.0.0.1:{listening.server_address[1]}"
        try:
            yield proxy
        finally:
            listening.shutdown()
            thread.join()


class _Handler(StreamRequestHandler):
    rbufsize = 0
    proxy: ForwardProxy
    routes: Mapping[str, str]
    context: ssl.SSLContext

    def handle(self) -> None:
        line = self.rfile.readline().decode()
        if not line:
            return
        method, target, _ = line.split(" ", 2)
        headers = {}
        while header := self.rfile.readline().decode().strip():
            name, _, value = header.partition(":")
            headers[name.lower()] = value.strip()
        host = target.rpartition(":")[0] if method == "CONNECT" else urlsplit(target).hostname or ""
        self.proxy.asked.append((method, host))
        login = f"Basic {base64.b64encode(self.proxy.login.encode()).decode()}"
        if self.proxy.answer:
            self.wfile.write(self.proxy.answer)
        elif self.proxy.login and headers.pop("proxy-authorization", "") != login:
            self._refuse("407 Proxy Authentication Required")
        elif host not in self.routes:
            self._refuse("502 Bad Gateway")
        elif method == "CONNECT":
            self._tunnel(self.routes[host])
        else:
            self._forward(self.routes[host], f"{method} /{target.split('/', 3)[3]} HTTP/1.1", headers)

    def _refuse(self, status: str) -> None:
        self.wfile.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())

    def _tunnel(self, server: str) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        with (
            suppress(OSError),
            self.context.wrap_socket(self.connection, server_side=True) as outer,
            _connected(server) as inner,
        ):
            relay(outer, inner)

    def _forward(self, server: str, first_line: str, headers: dict[str, str]) -> None:
        lines = [first_line, *(f"{name}: {value}" for name, value in {**headers, "connection": "close"}.items())]
        with suppress(OSError), _connected(server) as inner:
            inner.sendall("\r\n".join([*lines, "", ""]).encode())
            left = int(headers.get("content-length", 0))
            while left > 0:
                data = self.connection.recv(min(left, 65536))
                inner.sendall(data)
                left -= len(data)
            first = inner.recv(65536).replace(b"\r\n", b"\r\nConnection: close\r\n", 1)  # no client may send another
            self.connection.sendall(first)
            while data := inner.recv(65536):
                self.connection.sendall(data)


def _connected(server: str) -> socket.socket:
    parts = urlsplit(server)
    return socket.create_connection((parts.hostname, parts.port))
