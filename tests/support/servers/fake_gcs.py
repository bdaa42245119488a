"""A Google Cloud Storage for tests that honors ``ifGenerationMatch=0``, which gcp-storage-emulator ignores."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from http_server import serving

_NO_OBJECT = b'{"error": {"message": "no such object"}}'
_NO_BUCKET = b'{"error": {"message": "no such bucket"}}'


class Bucket:
    """The objects of one bucket, ``bkt``."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._objects: dict[str, tuple[dict[str, Any], bytes]] = {}
        self._generation = 0

    def put(self, name: str, data: bytes, *, is_new: bool) -> dict[str, Any] | None:
        """Stores an object; ``None`` if it must be new and is not."""
        if is_new and name in self._objects:
            return None
        self._generation += 1
        stamp = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime())}.000000Z"
        about = {"bucket": "bkt", "name": name, "id": name, "size": str(len(data)), "kind": "storage#object"}
        about |= {"updated": stamp, "timeCreated": stamp, "generation": str(self._generation)}
        self._objects[name] = about, data
        return about

    def get(self, name: str) -> tuple[dict[str, Any], bytes] | None:
        """An object and what is known about it."""
        return self._objects.get(name)

    def delete(self, name: str) -> bool:
        """Whether the object existed."""
        return self._objects.pop(name, None) is not None

    def listed(self, prefix: str, delimiter: str) -> dict[str, Any]:
        """The objects and folders below a prefix."""
        items, prefixes = [], dict[str, None]()
        for name in sorted(name for name in self._objects if name.startswith(prefix)):
            rest = name[len(prefix) :]
            if delimiter and delimiter in rest:
                prefixes[prefix + rest.partition(delimiter)[0] + delimiter] = None
            else:
                items.append(self._objects[name][0])
        return {"kind": "storage#objects", "items": items, "prefixes": list(prefixes)}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    bucket: Bucket

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query, name = parse_qs(parts.query), unquote(parts.path.partition("/b/bkt/o/")[2])
        with self.bucket.lock:
            if name:
                self._send_object(self.bucket.get(name), is_content="media" in query.get("alt", []))
            elif parts.path.endswith("/b/bkt/o"):
                listed = self.bucket.listed(query.get("prefix", [""])[0], query.get("delimiter", [""])[0])
                self._send(200, json.dumps(listed).encode())
            elif parts.path.endswith("/b/bkt"):
                self._send(200, b'{"name": "bkt"}')
            else:
                self._send(404, _NO_BUCKET)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        query = parse_qs(urlsplit(self.path).query)
        boundary = self.headers["content-type"].partition('boundary="')[2].rstrip('"').encode()
        _, about, media, _ = body.split(b"--" + boundary)
        name = json.loads(about.partition(b"\n\n")[2])["name"]
        data = media.partition(b"\n\n")[2].removesuffix(b"\n")
        with self.bucket.lock:
            stored = self.bucket.put(name, data, is_new=query.get("ifGenerationMatch") == ["0"])
        if stored is None:
            self._send(412, b'{"error": {"message": "conditionNotMet"}}')
        else:
            self._send(200, json.dumps(stored).encode())

    def do_DELETE(self) -> None:
        with self.bucket.lock:
            is_deleted = self.bucket.delete(unquote(urlsplit(self.path).path.partition("/b/bkt/o/")[2]))
        self._send(204 if is_deleted else 404, b"" if is_deleted else _NO_OBJECT)

    def _send_object(self, stored: tuple[dict[str, Any], bytes] | None, *, is_content: bool) -> None:
        if stored is None:
            self._send(404, _NO_OBJECT)
        else:
            self._send(200, stored[1] if is_content else json.dumps(stored[0]).encode())

    def _send(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def gcs_with_preconditions() -> Iterator[str]:
    """A storage with one empty bucket, ``bkt``."""
    with serving(type("Storage", (_Handler,), {"bucket": Bucket()})) as url:
        yield url
