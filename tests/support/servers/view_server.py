"""The viewer's server in a thread of the test, and requests to it."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visioneval.serve.index import RunListing
from visioneval.serve.server import listening
from visioneval.serve.view import ReportPages, Viewer, application


@dataclass(frozen=True)
class ViewServer:
    """A running server. ``url`` is that of its index."""

    origin: str
    token: str

    @property
    def url(self) -> str:
        return f"{self.origin}/{self.token}/"

    def ask(self, path: str, body: Any = None, *, with_token: bool = True, **headers: str) -> tuple[int, Any, str]:
        """Status, headers and text of an answer. ``path`` follows the token."""
        line = http.client.HTTPConnection(self.origin.removeprefix("http://"), timeout=30)
        changed = {"accept": "text/html", **{name.replace("_", "-"): value for name, value in headers.items()}}
        data = None if body is None else json.dumps(body).encode()
        changed |= {} if body is None else {"content-type": "application/json"}
        try:
            target = f"/{self.token}/{path}" if with_token else path
            line.request("GET" if body is None else "POST", target, body=data, headers=changed)
            reply = line.getresponse()
            return reply.status, reply.headers, reply.read().decode("utf-8", "replace")
        finally:
            line.close()

    def report(self, run_id: str) -> tuple[str, str]:
        """The address of a run's report after its redirect, from the index, and its page."""
        status, headers, _ = self.ask(f"run/{run_id}/")
        assert status == 307
        path = headers["location"].removeprefix(f"/{self.token}/")
        return path, self.ask(path)[2]


@contextmanager
def view_server(root: Path, folder: Path) -> Iterator[ViewServer]:
    """Serves the runs of ``root``, with rendered reports in ``folder``."""
    folder.mkdir()
    with listening("127.0.0.1", 0, "the viewer") as address:
        server = address.server(application(Viewer(RunListing(root), ReportPages(folder))))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [address.listener]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield ViewServer(address.origin, address.token)
        server.should_exit = True
        thread.join(30)
