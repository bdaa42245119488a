"""A local server with the part of the Hugging Face Hub's HTTP API that reads datasets."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0123456789" * 4
TOKEN = "hf_a_test_token"


@dataclass
class Hub:
    """The server's address, its files as ``OWNER/NAME/FILE``, its private datasets, and all requests."""

    url: str
    files: Mapping[str, bytes]
    private: frozenset[str]
    requests: list[str] = field(default_factory=list)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def do_GET(self) -> None:
        self.hub.requests.append(f"{self.command} {self.path}")
        parts = self.path.split("?")[0].strip("/").split("/")
        owner_at = 2 if parts[0] == "api" else 1
        name = "/".join(parts[owner_at : owner_at + 2])
        known = {"/".join(file.split("/")[:2]) for file in self.hub.files}
        may_read = name not in self.hub.private or self.headers.get("authorization") == f"Bearer {TOKEN}"
        if name not in known or not may_read:
            self._reply(401, b"{}", {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
        elif parts[0] == "api":
            body = {"id": name, "sha": COMMIT, "private": name in self.hub.private, "siblings": [], "tags": []}
            self._reply(200, json.dumps(body).encode(), {"content-type": "application/json"})
        else:
            self._file(f"{name}/{'/'.join(parts[5:])}")

    def do_HEAD(self) -> None:
        self.do_GET()

    def _file(self, name: str) -> None:
        if name not in self.hub.files:
            self._reply(404, b"", {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found"})
            return
        data = self.hub.files[name]
        self._reply(200, data, {"ETag": f'"{sha1(data).hexdigest()}"', "X-Repo-Commit": COMMIT})

    def _reply(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def hub(files: Mapping[str, bytes], private: frozenset[str] = frozenset()) -> Iterator[Hub]:
    """A Hub with some files. Private datasets need ``TOKEN``."""
    state = Hub("", files, private)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": state}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
