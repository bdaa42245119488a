"""What the suite's model says of bad data, in the words of somebody who writes suites."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any

Loc = tuple[str | int, ...]

_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping of keys to values",
    "model_type": "a mapping of keys to values",
    "model_attributes_type": "a mapping of keys to values",
}
_PATTERNS = {
    "id": "letters, digits, _ - and . (not first), at most 120",
    "size": "a size such as 1024x1536, or 'requested'",
    "aspect_ratio": "a ratio such as 2:3",
}


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` for the nearest known word, else what is known, else nothing."""
    words = sorted(known)
    near = get_close_matches(word, words, n=1, cutoff=0.6)
    if near:
        return f" (did you mean {near[0]!r}?)"
    return f" (known: {', '.join(words)})" if words else ""


def explain(error: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """One line for one entry of a pydantic ``errors()`` list."""
    kind, loc = error["type"], tuple(error["loc"])
    name = str(loc[-1]) if loc else "the suite"
    if kind == "extra_forbidden":
        return f"unknown key {name!r}{did_you_mean(name, known_keys(schema, loc[:-1]))}"
    if kind == "missing":
        return f"the key {name!r} is missing"
    if kind == "value_error":
        return str(error["ctx"]["error"])
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _unknown_type(error)
    where = f"{_readable(loc)}: " if loc else ""
    if kind in _EXPECTED:
        return f"{where}expected {_EXPECTED[kind]}, not {shown(error['input'])}"
    if kind == "string_pattern_mismatch":
        wanted = _PATTERNS.get(name) or "letters, digits, _ - and ."
        return f"{where}{shown(error['input'])} does not fit: {wanted}"
    if kind in ("literal_error", "enum"):
        wanted = error["ctx"].get("expected", "").replace("'", "")
        return f"{where}{shown(error['input'])} is not one of {wanted.replace(' or ', ', ')}"
    if kind in ("too_short", "string_too_short"):
        return f"{where}must not be empty"
    return f"{where}{error['msg'][:1].lower()}{error['msg'][1:]}, not {shown(error['input'])}"


def _unknown_type(error: Mapping[str, Any]) -> str:
    field = "provider" if "models" in error["loc"] else "type"
    data = error["input"]
    if not isinstance(data, dict):
        return f"expected a mapping with the key {field!r}, not {shown(data)}"
    if field not in data:
        return f"the key {field!r} is missing"
    from visioneval.suite.graders import GRADERS
    from visioneval.suite.providers import PROVIDERS

    known: Sequence[str] = [*(PROVIDERS if field == "provider" else GRADERS)]
    what = "provider" if field == "provider" else "grader type"
    return f"unknown {what} {shown(data[field])}{did_you_mean(str(data[field]), known)}"


def shown(value: Any) -> str:
    """A value of a suite in an error line: short, and on one line."""
    text = repr(value) if not isinstance(value, float) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _readable(loc: Loc) -> str:
    return next((str(step) for step in reversed(loc) if isinstance(step, str)), "item")


def known_keys(schema: Mapping[str, Any], loc: Sequence[str | int]) -> set[str]:
    """The keys that the JSON Schema allows in the mapping at ``loc``."""
    nodes = _alternatives(schema, schema)
    for step in loc:
        below = [child for node in nodes for child in _children(node, step)]
        if below:
            nodes = [alt for child in below for alt in _alternatives(child, schema)]
        else:  # the tag of a union is part of pydantic's location, and of no document
            nodes = [node for node in nodes if _is_tagged(node, step)] or nodes
    return {key for node in nodes for key in node.get("properties", {})}


def _children(node: Mapping[str, Any], step: str | int) -> list[Any]:
    if isinstance(step, int):
        return [node["items"]] if "items" in node else []
    if step in node.get("properties", {}):
        return [node["properties"][step]]
    extra = node.get("additionalProperties")
    return [extra] if isinstance(extra, dict) else []


def _is_tagged(node: Mapping[str, Any], tag: str | int) -> bool:
    properties = node.get("properties", {})
    consts = [properties.get(field, {}).get("const") for field in ("provider", "type")]
    return tag in consts or (tag == "module:Class" and consts == [None, None])


def _alternatives(node: Any, schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if "$ref" in node:
        return _alternatives(schema["$defs"][node["$ref"].rsplit("/", 1)[-1]], schema)
    options = node.get("anyOf", []) + node.get("oneOf", []) + node.get("allOf", [])
    return [node] + [alt for option in options for alt in _alternatives(option, schema)]


@cache
def suite_schema() -> Mapping[str, Any]:
    """The suite's JSON Schema, made once."""
    from visioneval.suite.model import json_schema

    return json_schema()
