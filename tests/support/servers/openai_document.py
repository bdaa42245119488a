"""OpenAI's own API document: whether the body of a request is valid against it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
from fake_api.server import LoggedRequest
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

DOCUMENT = Path(__file__).resolve().parents[4] / "shared" / "data" / "openai_spec" / "openapi.json"
_URI = "urn:openai"
_LONGEST_WORD = 24
"""Longer strings and those with a space are texts, which no schema here restricts."""
_valid_shapes: set[str] = set()


@cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(DOCUMENT.read_text(encoding="utf-8"))
    item = document["components"]["schemas"]["InputItem"]
    item["anyOf"] = item.pop("oneOf")  # its alternatives overlap
    return document


@cache
def _registry() -> Any:
    return Registry().with_resource(_URI, Resource.from_contents(_document(), default_specification=DRAFT202012))


@cache
def _validator(endpoint: str, kind: str) -> Any:
    content = _document()["paths"][endpoint]["post"]["requestBody"]["content"]
    assert kind in content, f"{endpoint} takes {', '.join(content)}, not {kind}"
    reference = content[kind]["schema"]["$ref"]
    return jsonschema.Draft202012Validator({"$ref": _URI + reference}, registry=_registry())


def invalid_bodies(requests: Iterable[LoggedRequest]) -> Iterator[str]:
    """What the document says against the requests that the server accepted, each kind of request checked once."""
    for request in requests:
        endpoint = request.path.split("?")[0].removeprefix("/v1")
        if request.method != "POST" or request.status != 200 or endpoint not in _document()["paths"]:
            continue
        kind = "multipart/form-data" if request.form else "application/json"
        body = _form_fields(request, endpoint) if request.form else request.body
        shape = f"{endpoint} {kind} {json.dumps(shape_of(body), sort_keys=True)}"
        if body is None or shape in _valid_shapes:
            continue
        problems = _validator(endpoint, kind).iter_errors(body)
        errors = [f"{endpoint}: {error.json_path}: {error.message[:300]}" for error in problems]
        if not errors:
            _valid_shapes.add(shape)
        yield from errors


def _form_fields(request: LoggedRequest, endpoint: str) -> dict[str, Any]:
    """The parts of a form as the document names them: files and texts as strings, numbers as numbers."""
    properties = _properties(endpoint)
    fields: dict[str, Any] = {}
    for part in request.form:
        name = part.name.removesuffix("[]")
        value: Any = "" if part.filename else part.data.decode()
        if properties.get(name, {}).get("type") == "integer":
            value = int(value)
        if part.name.endswith("[]"):
            fields.setdefault(name, []).append(value)
        else:
            fields[name] = value
    return fields


@cache
def _properties(endpoint: str) -> dict[str, Any]:
    content = _document()["paths"][endpoint]["post"]["requestBody"]["content"]
    reference = content["multipart/form-data"]["schema"]["$ref"]
    schema = _document()["components"]["schemas"][reference.rpartition("/")[2]]
    properties: dict[str, Any] = schema["properties"]
    return properties


def shape_of(value: Any) -> Any:
    """A body without its texts, which no schema restricts."""
    if isinstance(value, Mapping):
        return {key: shape_of(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape_of(item) for item in value]
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_WORD and " " not in value else value[:11] if value[:5] == "data:" else ""
    return value
