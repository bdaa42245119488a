"""Google's own documents: whether bodies of requests are valid against Vertex AI's, and by google-genai for Gemini's API.

Vertex AI has a discovery document for each version, which google-api-python-client carries. The Developer API has none
there, so its official client is the document: its types must take the body, and it must send the same one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
from fake_api.gemini_checks import camel
from fake_api.server import LoggedRequest
from google import genai
from google.genai import types
from openai_document import shape_of
from pydantic import BaseModel, ValidationError

_VERSIONED = re.compile(r"/(v1|v1beta1)/")
_DEVELOPER = re.compile(r"/(?:v1beta|v1alpha|v1)/models/([^/:]+):(generateContent|batchGenerateContent)")
_INTERACTION = re.compile(r"/(?:v1|v1beta1?|v1alpha)/(?:projects/[^/]+/locations/[^/]+/)?interactions")
_valid_shapes: set[str] = set()


def invalid_bodies(requests: Iterable[LoggedRequest]) -> Iterator[str]:
    """What the documents say against the requests that the server accepted, each kind of request checked once."""
    for request in requests:
        path = request.path.split("?")[0]
        if request.method != "POST" or request.status != 200 or request.body is None:
            continue
        shape = f"{path} {json.dumps(shape_of(request.body), sort_keys=True)}"
        if shape in _valid_shapes:
            continue
        errors = list(_problems(path, request.body))
        if not errors:
            _valid_shapes.add(shape)
        yield from (f"{path}: {error}" for error in errors)


def _problems(path: str, body: Any) -> Iterator[str]:
    if _INTERACTION.fullmatch(path):
        yield from _interaction_problems(body)
        return
    body = camel(body)  # both services take snake_case names as well
    if developer := _DEVELOPER.fullmatch(path):
        yield from _developer_problems(developer[1], developer[2], body)
    elif method := _method(path):
        yield from (f"{error.json_path}: {error.message[:300]}" for error in _validator(*method).iter_errors(body))


def has_vertex_document() -> bool:
    """Whether google-api-python-client is installed."""
    return find_spec("googleapiclient") is not None


@cache
def _document(version: str) -> dict[str, Any]:
    """The discovery document of a version; without its package, an empty one."""
    package = find_spec("googleapiclient")
    if package is None or not package.submodule_search_locations:
        return {"schemas": {}}
    folder = Path(package.submodule_search_locations[0])
    path = folder / "discovery_cache" / "documents" / f"aiplatform.{version}.json"
    document: dict[str, Any] = json.loads(path.read_bytes())
    return document


@cache
def _methods(version: str) -> list[tuple[re.Pattern[str], str]]:
    """The patterns of all paths that take a body, and the names of its schemas."""
    methods: list[tuple[re.Pattern[str], str]] = []
    folders = [_document(version)]
    while folders:
        folder = folders.pop()
        folders += folder.get("resources", {}).values()
        for method in folder.get("methods", {}).values():
            if "$ref" in method.get("request", {}) and method["httpMethod"] == "POST":
                pattern = re.sub(r"\\{\w+\\}", "[^/:]+", re.escape(method["flatPath"]))
                methods.append((re.compile(f"/{pattern}"), method["request"]["$ref"]))
    return methods


@cache
def _method(path: str) -> tuple[str, str] | None:
    """The version and the name of the schema of the bodies that a path takes."""
    version = _VERSIONED.match(path)
    if version is None:
        return None
    names = (name for pattern, name in _methods(version[1]) if pattern.fullmatch(path))
    return next(((version[1], name) for name in names), None)


@cache
def _validator(version: str, name: str) -> Any:
    schemas: dict[str, Any] = {}
    names = [name]
    while names:
        if (schema := names.pop()) not in schemas:
            schemas[schema] = _json_schema(_document(version)["schemas"][schema], names)
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": schemas})


def _json_schema(described: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    """A schema of a discovery document as a JSON Schema that allows no other keys. ``names`` gets those it refers to."""
    if "$ref" in described:
        names.append(described["$ref"])
        return {"$ref": f"#/$defs/{described['$ref']}"}
    kind = described.get("type", "any")
    if kind == "any":
        return {}
    if kind == "array":
        return {"type": "array", "items": _json_schema(described["items"], names)}
    if kind == "object":
        return _object_schema(described, names)
    schema: dict[str, Any] = {"type": kind}
    if described.get("format") in ("int64", "uint64"):
        schema["type"] = ["string", "integer"]  # JSON has no such numbers, so texts are allowed
    if "enum" in described:
        schema["enum"] = described["enum"]
    return schema


def _object_schema(described: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    properties = described.get("properties", {})
    others = described.get("additionalProperties")
    return {
        "type": "object",
        "properties": {name: _json_schema(value, names) for name, value in properties.items()},
        "additionalProperties": False if others is None else _json_schema(others, names),
        "required": [
            name for name, value in properties.items() if str(value.get("description", "")).startswith("Required.")
        ],
    }


def _developer_problems(model: str, method: str, body: Mapping[str, Any]) -> Iterator[str]:
    if method == "generateContent":
        yield from _generation_problems(model, body, "$")
        return
    batch = body.get("batch", {})
    inline = batch.get("inputConfig", {}).get("requests", {}).get("requests", [])
    for number, entry in enumerate(inline):
        yield from _generation_problems(model, entry.get("request", {}), f"$.batch.{number}")
    if not inline and "fileName" not in batch.get("inputConfig", {}):
        yield "$.batch.inputConfig: has neither requests nor a file"


def _generation_problems(model: str, body: Mapping[str, Any], where: str) -> Iterator[str]:
    """What the official client says against a body, or what it would send differently."""
    options = {key: value for key, value in body.items() if key not in ("contents", "generationConfig", "model")}
    try:
        contents = [types.Content.model_validate(content) for content in body.get("contents", [])]
        config = types.GenerateContentConfig.model_validate({**body.get("generationConfig", {}), **options})
        sent = _sent_by_the_client(model, contents, config)
    except ValidationError as error:
        yield from (f"{where}.{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False))
        return
    except ValueError as error:
        yield f"{where}: {error}"
        return
    missing, extra = _keys(body) - _keys(sent) - {("model",)}, _keys(sent) - _keys(body)
    yield from (f"{where}.{'.'.join(path)}: the official client does not send this" for path in sorted(missing))
    yield from (f"{where}.{'.'.join(path)}: the official client also sends this" for path in sorted(extra))


def _interaction_problems(body: Any) -> Iterator[str]:
    """What the client's types say against an interaction. They take unknown keys and kinds, and tell them apart."""
    from google.genai.interactions import CreateModelInteraction  # loads 500 types

    try:
        yield from _unknown(CreateModelInteraction.model_validate(body), "$")
    except ValidationError as error:
        yield from (f"$.{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False))


def _unknown(value: Any, where: str) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _unknown(item, where)
    if not isinstance(value, BaseModel):
        return
    if type(value).__name__.startswith("Unknown"):
        yield f"{where}: is of an unknown kind"
        return
    yield from (f"{where}.{name}: is unknown" for name in value.model_extra or ())
    for name in value.model_fields_set & type(value).model_fields.keys():
        yield from _unknown(getattr(value, name), f"{where}.{name}")


def _keys(value: Any, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """The paths of all keys of a body that have a value, without the positions in lists."""
    if isinstance(value, list):
        return {key for item in value for key in _keys(item, path)}
    if not isinstance(value, Mapping):
        return set()
    inner = {key for name, item in value.items() for key in _keys(item, (*path, name))}
    return {(*path, name) for name, item in value.items() if item not in ({}, None)} | inner


def _sent_by_the_client(model: str, contents: list[types.Content], config: types.GenerateContentConfig) -> Any:
    bodies: list[Any] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        bodies.append(camel(json.loads(request.content)))  # for some fields, the client itself uses snake_case
        return httpx2.Response(200, json={})

    _transport().handler = answer
    _client().models.generate_content(model=model, contents=contents, config=config)
    return bodies[0]


@cache
def _transport() -> httpx2.MockTransport:
    return httpx2.MockTransport(lambda _: httpx2.Response(200, json={}))


@cache
def _client() -> genai.Client:
    client = httpx2.Client(transport=_transport())
    return genai.Client(vertexai=False, api_key="none", http_options=types.HttpOptions(httpx_client=client))
