"""JSON schemas as the providers take them: what strict mode allows, and an instance of a schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import jsonschema  # type: ignore[import-untyped]

STRICT_KEYWORDS: Final = frozenset(
    [
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "enum",
        "const",
        "anyOf",
        "$ref",
        "$defs",
        "definitions",
        "description",
        "title",
        "pattern",
        "format",
        "multipleOf",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "minItems",
        "maxItems",
    ]
)
"""OpenAI's "Supported schemas" for Structured Outputs."""

STRICT_FORMATS: Final = frozenset(
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"]
)
STRICT_TYPES: Final = frozenset(["string", "number", "boolean", "integer", "object", "array", "null"])
GEMINI_KEYWORDS: Final = frozenset(
    [
        "$id",
        "$defs",
        "$ref",
        "$anchor",
        "type",
        "format",
        "title",
        "description",
        "enum",
        "items",
        "prefixItems",
        "minItems",
        "maxItems",
        "minimum",
        "maximum",
        "anyOf",
        "oneOf",
        "properties",
        "additionalProperties",
        "required",
        "propertyOrdering",
    ]
)
"""What ``responseJsonSchema`` takes, as the google-genai SDK documents it."""

MAX_DEPTH: Final = 10
MAX_PROPERTIES: Final = 5000
MAX_ENUM_VALUES: Final = 1000


class SchemaError(Exception):
    """A schema that the service would refuse, in its words."""


def check_strict(schema: Mapping[str, Any]) -> None:
    """``SchemaError`` where OpenAI's strict mode refuses the schema."""
    problem = _strict_problem(json.dumps(schema))
    if problem:
        raise SchemaError(problem)


@lru_cache(maxsize=128)
def _strict_problem(text: str) -> str | None:
    """The first problem: cached, as a run sends the same schema in every call."""
    schema = json.loads(text)
    try:
        _check_root(schema)
        _check_limits(schema)
        _check_node(schema, (), schema)
    except SchemaError as error:
        return str(error)
    return None


def _check_root(schema: Mapping[str, Any]) -> None:
    if "anyOf" in schema or schema.get("type") != "object":
        kind = json.dumps(schema.get("type", "None"))
        raise SchemaError(f"schema must be a JSON Schema of 'type: \"object\"', got 'type: {kind}'.")


def _check_limits(schema: Mapping[str, Any]) -> None:
    names, values, depth = _count(schema)
    if names > MAX_PROPERTIES:
        raise SchemaError(f"schema has {names} properties, more than the limit of {MAX_PROPERTIES}.")
    if values > MAX_ENUM_VALUES:
        raise SchemaError(f"schema has {values} enum values, more than the limit of {MAX_ENUM_VALUES}.")
    if depth > MAX_DEPTH:
        raise SchemaError(f"schema exceeds the maximum nesting depth of {MAX_DEPTH}.")


def _count(node: Mapping[str, Any]) -> tuple[int, int, int]:
    """Properties, enum values and object levels of a schema and all below it."""
    names, values, below = len(node.get("properties", {})), len(node.get("enum", ())), 0
    for _, child in _children(node):
        more, also, depth = _count(child)
        names, values, below = names + more, values + also, max(below, depth)
    return names, values, below + ("properties" in node)


def _children(node: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    for group in ("properties", "$defs", "definitions"):
        for name, child in node.get(group, {}).items():
            yield (group, name), child
    for position, child in enumerate(node.get("anyOf", ())):
        yield ("anyOf", str(position)), child
    if isinstance(node.get("items"), Mapping):
        yield ("items",), node["items"]


def _check_node(node: Mapping[str, Any], path: tuple[str, ...], root: Mapping[str, Any]) -> None:
    here = f"In context={path!r}, "
    for keyword in node:
        if keyword not in STRICT_KEYWORDS:
            raise SchemaError(f"{here}'{keyword}' is not permitted.")
    if "$ref" in node:
        _check_ref(node, here, root)
    elif "anyOf" not in node:
        _check_type(node, here)
    if node.get("type") == "object" or "properties" in node:
        _check_object(node, here)
    if "array" in _types(node) and "items" not in node:
        raise SchemaError(f"{here}array schema missing items.")
    for step, child in _children(node):
        _check_node(child, path + step, root)


def _check_ref(node: Mapping[str, Any], here: str, root: Mapping[str, Any]) -> None:
    others = sorted(set(node) - {"$ref"})
    if others:
        raise SchemaError(f"{here}$ref cannot have keywords {{{', '.join(repr(name) for name in others)}}}.")
    if resolve(node["$ref"], root) is None:
        raise SchemaError(f"{here}reference can only point to definitions defined at the top level of the schema.")


def _check_type(node: Mapping[str, Any], here: str) -> None:
    if "type" not in node:
        raise SchemaError(f"{here}schema must have a 'type' key.")
    for kind in _types(node):
        if kind not in STRICT_TYPES:
            raise SchemaError(f"{here}'{kind}' is not a valid type.")
    if "format" in node and node["format"] not in STRICT_FORMATS:
        raise SchemaError(f"{here}'{node['format']}' is not a valid format.")


def _check_object(node: Mapping[str, Any], here: str) -> None:
    if node.get("additionalProperties") is not False:
        raise SchemaError(f"{here}'additionalProperties' is required to be supplied and to be false.")
    names, required = list(node.get("properties", {})), node.get("required")
    if not isinstance(required, list) and names:
        required = []
    missing = next((name for name in names if name not in (required or ())), None)
    if missing is not None:
        raise SchemaError(
            f"{here}'required' is required to be supplied and to be an array including every key in properties. "
            f"Missing '{missing}'."
        )
    extra = next((name for name in required or () if name not in names), None)
    if extra is not None:
        raise SchemaError(f"{here}'required' is required to be supplied and to be an array including every key in "
                          f"properties. Extra required key '{extra}' supplied.")  # fmt: skip


def _types(node: Mapping[str, Any]) -> tuple[str, ...]:
    kind = node.get("type", ())
    return (kind,) if isinstance(kind, str) else tuple(kind)


def resolve(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What ``#/$defs/name`` or ``#`` points to."""
    node: Any = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        if step:
            node = node.get(step) if isinstance(node, Mapping) else None
    return node if reference.startswith("#") else None


def check_gemini(node: object, path: str) -> None:
    """``SchemaError`` for a keyword that ``responseJsonSchema`` does not take."""
    if not isinstance(node, Mapping):
        raise SchemaError(f"{path}: a schema is an object.")
    for keyword in node:
        if keyword not in GEMINI_KEYWORDS:
            raise SchemaError(f"Unknown name \"{keyword}\" at '{path}': Cannot find field.")
    for step, child in _children(node):
        check_gemini(child, f"{path}.{'.'.join(step)}")


def instance_error(instance: object, schema: Mapping[str, Any]) -> str | None:
    """Why an object is not an instance of a schema, ``None`` when it is one."""
    return next((error.message for error in _validator(json.dumps(schema)).iter_errors(instance)), None)


@lru_cache(maxsize=64)
def _validator(text: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads(text))


@lru_cache(maxsize=64)
def example_text(text: str) -> str:
    """An instance, as JSON, of a JSON schema: every number at its maximum, every flag set, no tags."""
    schema = json.loads(text)
    return json.dumps(_example(schema, schema, 0))


def _example(node: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    if "$ref" in node:
        return _example(resolve(node["$ref"], root) or {}, root, depth + 1)
    if "const" in node:
        return node["const"]
    if node.get("enum"):
        return node["enum"][0]
    for either in ("anyOf", "oneOf"):
        if node.get(either):
            return _example(node[either][-1 if depth > MAX_DEPTH else 0], root, depth + 1)
    kinds = [kind.lower() for kind in _types(node)]
    kind = next((kind for kind in kinds if kind != "null"), "object" if "properties" in node else "null")
    if kind == "object":
        return {name: _example(child, root, depth + 1) for name, child in node.get("properties", {}).items()}
    if kind == "array":
        return [_example(node.get("items", {}), root, depth + 1) for _ in range(int(node.get("minItems", 0)))]
    return _example_scalar(kind, node)


def _example_scalar(kind: str, node: Mapping[str, Any]) -> Any:
    if kind in ("integer", "number"):
        most, least = node.get("maximum"), node.get("minimum")
        if most is None and "exclusiveMaximum" in node:
            most = node["exclusiveMaximum"] - 1
        value = most if most is not None else (least if least is not None else 1)
        return int(value) if kind == "integer" else value
    if kind == "string":
        return {"date": "2026-01-31", "date-time": "2026-01-31T12:00:00Z"}.get(node.get("format", ""), "As asked.")
    return True if kind == "boolean" else None
