"""A web server on this machine, for files that a suite or an answer names by URL."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Page:
    """A reply: its status, headers and body, whose parts are sent until the client leaves."""

    body: bytes | Iterable[bytes] = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Web:
    """A web server on this machine, and the headers of each request."""

    url: str
    pages: dict[str, Page | list[Page]]
    seen: list[dict[str, str]] = field(default_factory=list)


@contextmanager
def web(**pages: Page | list[Page]) -> Iterator[Web]:
    """Serves each page at its name, with or without ``.csv`` or ``.png``; of a list, the last for all further requests."""
    result = Web("", {f"/{name}": page for name, page in pages.items()})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            result.seen.append({name.lower(): value for name, value in self.headers.items()})
            page = result.pages[self.path.split("?")[0].removesuffix(".csv").removesuffix(".png")]
            if isinstance(page, list):
                page = page.pop(0) if len(page) > 1 else page[0]
            self.send_response(page.status)
            for name, value in page.headers.items():
                self.send_header(name, value)
            whole = isinstance(page.body, bytes)
            if whole:
                self.send_header("content-length", str(len(page.body)))  # type: ignore[arg-type]
            self.end_headers()
            try:
                for part in [page.body] if whole else page.body:
                    self.wfile.write(part)  # type: ignore[arg-type]
            except OSError:
                self.close_connection = True

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    result.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield result
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
