"""A server that answers with what it is given, for answers that no real service would give by rule."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Canned:
    """Where the server listens, and what came: paths below ``url``, header names in lower case, and JSON bodies."""

    url: str
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)


@contextmanager
def canned(*answers: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Iterator[Canned]:
    """Each answer is for one request, the last for all further ones; a ``str`` is sent verbatim, other values as JSON."""
    seen = Canned("")
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            seen.paths.append(self.path.removeprefix("/v1"))
            seen.headers.append({name.lower(): value for name, value in self.headers.items()})
            seen.bodies.append(json.loads(body) if body.startswith(b"{") else body)
            answer = left.pop(0) if len(left) > 1 else left[0]
            data = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
            self.send_response(status)
            kind = "text/html" if isinstance(answer, str) else "application/json"
            for name, value in {"content-type": kind, "content-length": str(len(data)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    seen.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
