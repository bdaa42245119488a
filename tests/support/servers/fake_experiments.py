"""Vertex AI's metadata store and a bucket on this machine, which refuse what the discovery document does not allow."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Json = dict[str, Any]
_STANDARD = {"$alt", "alt", "uploadType", "name", "$.xgafv"}
_TYPES = {"string": str, "object": dict, "array": list, "boolean": bool, "number": (int, float), "integer": int}


@dataclass
class FakeExperiments:
    """Where the server listens, what it stores, and the requests that it refused."""

    document: Json
    token: str
    url: str = ""
    resources: dict[str, Json] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    invalid: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    refusal: tuple[int, str] | None = None
    """What every call is answered with."""

    def answer(self, method: str, target: str, body: bytes, authorization: str) -> tuple[int, Json]:
        """The status and the JSON of an answer."""
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path.endswith("/allowedLocations"):  # google-auth asks where a service account may be used
            return _error(404, "no such account")
        self.calls.append(f"{method} {parts.path}")
        if self.refusal is not None:
            return _error(*self.refusal)
        if authorization != f"Bearer {self.token}" and not authorization.startswith("Bearer ey"):  # or one signed here
            return _error(401, "no token")
        if parts.path.startswith("/upload/storage/v1/b/"):
            self.objects[f"{parts.path.split('/')[5]}/{query['name']}"] = body
            return 200, {"name": query["name"]}
        data = json.loads(body) if body else {}
        if problem := self._problem(method, parts.path, query, data):
            self.invalid.append(problem)
            return _error(400, problem)
        return self._handle(method, unquote(parts.path).removeprefix("/v1/"), query, data)

    def _problem(self, method: str, path: str, query: dict[str, str], body: Json) -> str | None:
        """Why the document does not allow a request."""
        for entry in _methods(self.document):
            pattern = re.sub(r"\{[^}]+\}", "[^/:]+", entry["flatPath"])
            if entry["httpMethod"] == method and re.fullmatch(f"/{pattern}", path):
                known = {*entry["parameters"], *self.document["parameters"], *_STANDARD}
                if unknown := query.keys() - known:
                    return f"{method} {path}: unknown parameters {unknown}"
                return self._misfit(body, entry["request"]["$ref"], path) if "request" in entry else None
        return f"{method} {path}: no such method"

    def _misfit(self, value: Any, schema: str, where: str) -> str | None:
        properties = self.document["schemas"][schema]["properties"]
        for name, item in value.items():
            if name not in properties:
                return f"{where}: {schema} has no {name}"
            kind = properties[name]
            if kind.get("readOnly"):
                continue  # output only: ignored, as Google does
            if "$ref" in kind and (problem := self._misfit(item, kind["$ref"], f"{where}.{name}")):
                return problem
            if "type" in kind and not isinstance(item, _TYPES[kind["type"]]):
                return f"{where}.{name}: not of type {kind['type']}"
        return None

    def _handle(self, method: str, path: str, query: dict[str, str], body: Json) -> tuple[int, Json]:
        name, _, verb = path.partition(":")
        if verb:
            return self._act(name, verb, body)
        if method == "POST":
            identifier = next(query[key] for key in ("contextId", "artifactId", "metadataStoreId") if key in query)
            return self._create(f"{name}/{identifier}", body, is_operation="metadataStoreId" in query)
        if "/operations/" in name:
            return 200, {"name": name, "done": True}
        collection = name.rpartition("/")[2]
        if method == "GET" and collection in ("contexts", "artifacts", "executions"):
            return 200, {collection: self._listed(name, query.get("filter", ""))}
        if name not in self.resources:
            return _error(404, f"{name} not found")
        if method == "DELETE":
            del self.resources[name]
            return 200, {"name": f"{name}/operations/1", "done": True}
        if method == "PATCH":
            names = query["updateMask"].split(",") if "updateMask" in query else list(body)
            self.resources[name].update({key: body[key] for key in names if key in body})
        return 200, self.resources[name]

    def _create(self, name: str, body: Json, *, is_operation: bool) -> tuple[int, Json]:
        if name in self.resources:
            return _error(409, f"{name} already exists")
        times = dict.fromkeys(("createTime", "updateTime"), "2026-01-01T00:00:00Z")
        self.resources[name] = {"name": name, "etag": "1", **times, **body}
        return 200, {"name": f"{name}/operations/1", "done": False} if is_operation else self.resources[name]

    def _act(self, name: str, verb: str, body: Json) -> tuple[int, Json]:
        if name not in self.resources:
            return _error(404, f"{name} not found")
        if verb == "addContextChildren":
            for child in body["childContexts"]:
                self.resources[child].setdefault("parentContexts", []).append(name)
        elif verb == "addContextArtifactsAndExecutions":
            listed = self.resources[name].setdefault("labels", {})
            listed["artifact"] = body["artifacts"][0].rpartition("/")[2]
        return 200, {}

    def _listed(self, collection: str, query: str) -> list[Json]:
        """The resources of a collection, by the two filters of Google's client."""
        found = [item for name, item in self.resources.items() if name.startswith(f"{collection}/")]
        titles = re.findall(r'schema_title="([^"]+)"', query)
        parents = re.findall(r'parent_contexts:"([^"]+)"', query)
        return [
            item
            for item in found
            if (not titles or item["schemaTitle"] in titles)
            and all(parent in item.get("parentContexts", ()) for parent in parents)
            and "in_context" not in query
        ]


def _error(status: int, message: str) -> tuple[int, Json]:
    return status, {"error": {"code": status, "message": message, "status": "FAILED"}}


def _methods(node: Any) -> Iterator[Json]:
    for resource in node.get("resources", {}).values():
        yield from resource.get("methods", {}).values()
        yield from _methods(resource)


@contextmanager
def fake_experiments(document: Json, token: str) -> Iterator[FakeExperiments]:
    """The server, in a thread."""
    fake = FakeExperiments(document, token)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            status, data = fake.answer(self.command, self.path, body, self.headers.get("authorization", ""))
            text = json.dumps(data).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PATCH = do_DELETE = _respond  # noqa: N815

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
