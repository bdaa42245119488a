"""Buckets and web pages on this machine: moto for ``s3://``, gcp-storage-emulator for ``gs://``, a plain web server."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from http_server import serving

MOTO = "import sys; from moto.server import main; main(['-H', '127.0.0.1', '-p', sys.argv[1]])"
GCS = (
    "import sys, time; from gcp_storage_emulator.server import create_server;"
    "create_server('127.0.0.1', int(sys.argv[1]), in_memory=True).start(); time.sleep(600)"
)


def _free_port() -> int:
    with socket.socket() as single:
        single.bind(("127.0.0.1", 0))
        port: int = single.getsockname()[1]
        return port


@contextmanager
def _started(code: str) -> Iterator[str]:
    port = _free_port()
    program = subprocess.Popen(
        [sys.executable, "-c", code, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                urlopen(url, timeout=5).close()
                break
            except HTTPError as error:  # it answers
                error.close()
                break
            except OSError:
                assert program.poll() is None, "the emulator ended"
                time.sleep(0.05)
        yield url
    finally:
        program.kill()
        program.wait()


@contextmanager
def s3_server() -> Iterator[str]:
    """An in-memory S3."""
    with _started(MOTO) as url:
        yield url


@contextmanager
def gcs_server() -> Iterator[str]:
    """A Google Cloud Storage of the same kind."""
    with _started(GCS) as url:
        yield url


def _send(method: str, url: str, data: bytes = b"", kind: str = "application/octet-stream") -> None:
    urlopen(Request(url, data=data, method=method, headers={"content-type": kind}), timeout=10).close()


def fill_s3(url: str, bucket: str, files: Mapping[str, bytes]) -> None:
    """Makes a bucket with some objects."""
    _send("PUT", f"{url}/{bucket}")
    for name, data in files.items():
        _send("PUT", f"{url}/{bucket}/{name}", data)


def fill_gcs(url: str, bucket: str, files: Mapping[str, bytes]) -> None:
    """Makes a bucket with some objects."""
    _send("POST", f"{url}/storage/v1/b?project=p", json.dumps({"name": bucket}).encode(), "application/json")
    for name, data in files.items():
        _send("POST", f"{url}/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}", data)


@contextmanager
def web_server(files: Mapping[str, bytes], *, status: int = 200, location: str | None = None) -> Iterator[str]:
    """A web server with some files; ``status`` other than 200 is what every request gets, with ``files[""]``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = files.get(self.path.split("?")[0].lstrip("/"), files.get(""))
            self.send_response(status if data is not None else 404)
            if location:
                self.send_header("location", location)
            self.send_header("content-length", str(len(data or b"")))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data or b"")

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *args: object) -> None:
            pass

    with serving(Handler) as url:
        yield url
