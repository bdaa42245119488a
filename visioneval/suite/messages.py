"""What loading and checks report about a suite: warnings, notes, values in messages, and validation errors in words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import compress
from typing import Any, Self

from pydantic import BaseModel, ValidationError

from visioneval.errors import count_of, did_you_mean
from visioneval.media.urls import public_address
from visioneval.plugins import NAME, plugin_names
from visioneval.suite.case import PRINTABLE, TAG
from visioneval.suite.files import ONE_LINE
from visioneval.suite.remote import SECRET_NAME


class WrittenFloat(float):
    """A number that remembers its text in the suite, so that labels keep ``1.10`` unchanged."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Self:
        number = super().__new__(cls, text)
        number.text = text
        return number


def as_written(value: object) -> str:
    """A parameter's value in a label."""
    if isinstance(value, WrittenFloat):
        return value.text
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


Loc = tuple[str | int, ...]
WARNING, NOTE = "warning: ", "note: "
"""Begin the messages of problems with which a suite can be run. ``validate --strict`` refuses warnings, never notes."""


@dataclass(frozen=True, slots=True)
class SuiteWarning:
    """What may not be intended, although the suite can be run."""

    loc: Loc
    message: str


@dataclass(frozen=True, slots=True)
class SuiteNote:
    """How something is read, which only ``validate`` shows."""

    loc: Loc
    message: str


def untrusted_code_message(name: str, options: object = None) -> str:
    """The message for a custom class in an untrusted suite. ``options`` are not checked without the class."""
    unchecked = "; until then, its options are not checked" if options else ""
    return f"{name!r} runs code from the suite: pass --trust-suite if you trust it{unchecked}"


def format_value(value: Any) -> str:
    """Formats a value of a suite for an error message: short, on one line, in YAML notation."""
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, str):
        text = repr(public_address(value))
    else:
        text = as_written(value) if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_QUOTE = "'"
_EXPECTED = {
    "string_type": "text",
    "string_unicode": "valid text (no lone surrogates)",
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
    "id": "use letters, digits, '_', '-' and '.' (not '-' or '.' first), at most 120 characters",
    "label": "control characters are not allowed",
    "size": "write a size such as 1024x1536",
    "project": "use a-z, 0-9 and '-'",
    "location": "use a-z, 0-9 and '-'",
    "aspect_ratio": "write a ratio such as 2:3",
    "provider": "write a custom class as package.module:Class",
    "type": "write a custom class as package.module:Class",
    "uri": "no spaces and no control characters",
    "vars": "use letters, digits and '_' (no digit first)",
}
_SCHEMES = {"^https?://": "write a URL such as https://example.com/v1", "^gs://": "write gs://BUCKET/FOLDER"}
_LIMITS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}
_ALTERNATIVE = re.compile(r"(literal|tuple|list|dict|constrained-\w+|function-\w+|lax-or-strict)(\[.*\])?", re.DOTALL)
_TAGS = ("provider", "type", "to")
_TAG_ERRORS = ("union_tag_invalid", "union_tag_not_found")
_TAG_LABELS = {("graders", 2): "grader type", ("tracking", 1): "tracker"}
"""What the value of a tag is called, by the top-level key and the length of the path."""
_GROUPS = {"graders": "visioneval.graders", "models": "visioneval.providers", "judges": "visioneval.judges"}
"""The group of plug-ins that each top-level key may name."""
_SHORT_FORMS = ("verdict", "gates", "images", "turns")


def document_path(loc: Sequence[str | int]) -> Loc:
    """A pydantic location without the steps that name an alternative of a union, which no document contains."""
    return tuple(step for step in loc if not (isinstance(step, str) and _ALTERNATIVE.fullmatch(step)))


def explain(error: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """A one-line message for an entry of a pydantic ``errors()`` list."""
    kind, loc = error["type"], document_path([step for step in error["loc"] if step != "[key]"])
    name = str(loc[-1]) if loc else "the suite"
    if kind == "extra_forbidden":
        if SECRET_NAME.fullmatch(name):
            return f"unknown key {name!r}: a suite contains no secrets; name an environment variable with api_key_env"
        return f"unknown key {name!r}{_place_of(name, schema, loc[:-1])}"
    if kind == "missing" and isinstance(loc[-1], str):
        return f"the key {name!r} is missing"
    if kind == "value_error":
        return str(error["ctx"]["error"])
    if kind in _TAG_ERRORS:
        return _unknown_type(error, schema)
    key = next((step for step in reversed(loc) if isinstance(step, str)), "item")
    problem = _value_problem(kind, loc, error.get("ctx", {}), error["input"]) or error["msg"]
    return f"{key if key.isprintable() else repr(key)}: {problem}"


def model_problems(model: type[BaseModel], params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each parameter that does not fit a model of all parameters, with the reason."""
    try:
        model.model_validate(dict(params))
    except ValidationError as error:
        schema = model.model_json_schema()
        for entry in error.errors(include_url=False):
            yield str(entry["loc"][0]), explain(entry, schema)


def _place_of(name: str, schema: Mapping[str, Any], loc: Loc) -> str:
    """What an unknown key in the mapping at ``loc`` may be meant for."""
    known = known_keys(schema, loc)
    for key in sorted(known):
        if name in known_keys(schema, (*loc, key)):
            return f": it belongs inside {key!r}"
    guess = did_you_mean(name, known)
    is_parameter = "params" in known and "did you mean" not in guess
    return guess + (": parameters of a call belong inside 'params'" if is_parameter else "")


def root_errors(errors: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Drops errors that follow from other errors.

    A list that only lost its bad entries is not empty, a misspelled key is not missing, and the alternatives of a
    union report the same value repeatedly.
    """
    unknown: dict[Loc, list[str]] = {}
    for error in errors:
        if error["type"] == "extra_forbidden":
            unknown.setdefault(tuple(error["loc"][:-1]), []).append(str(error["loc"][-1]))
    reported: set[Loc] = set()
    for error in errors:
        loc = tuple(error["loc"])
        path = document_path(loc)
        is_consequence = error["type"] == "too_short" and bool(error["input"])
        is_misspelled = error["type"] == "missing" and get_close_matches(str(loc[-1]), unknown.get(loc[:-1], ()), n=1)
        if not is_consequence and not is_misspelled and not (path in reported and len(path) < len(loc)):
            yield error
        reported.add(path)


def _value_problem(kind: str, loc: Loc, ctx: Mapping[str, Any], value: Any) -> str | None:
    """A message about a value; ``None`` for unknown kinds of errors."""
    if kind in _EXPECTED:
        expected = _EXPECTED[kind]
        if kind == "model_type" and len(loc) > 1 and (loc[-2] in _SHORT_FORMS or loc[:-1] == ("metrics",)):
            expected = "text or a mapping of keys to values"
        return _wrong_type(expected, value, is_size=loc[-1:] == ("size",))
    if kind in _LIMITS:
        phrase, limit = _LIMITS[kind]
        return f"must be {phrase} {ctx[limit]:g}, not {format_value(value)}"
    if kind in ("literal_error", "enum"):
        return f"{format_value(value)} is not one of {ctx['expected'].replace(' or ', ', ').replace(_QUOTE, '')}"
    if kind == "string_pattern_mismatch":
        pattern = str(ctx["pattern"])
        shown = value
        if pattern.startswith(tuple(_SCHEMES)):  # an address, with or without its scheme
            shown = public_address(value if "//" in value else f"//{value}").removeprefix("//")
        return f"{format_value(shown)} is not valid: {_pattern_hint(loc, pattern)}"
    if kind == "string_too_long":
        return f"{format_value(value)} is longer than {ctx['max_length']} characters"
    if kind in ("too_short", "string_too_short"):
        least, unit = int(ctx["min_length"]), "item" if kind == "too_short" else "character"
        return "must not be empty" if least == 1 else f"must have at least {count_of(least, unit)}"
    if kind == "too_long":
        return f"must have at most {count_of(int(ctx['max_length']), 'item')}"
    return "has too few values" if kind == "missing" else None


def _wrong_type(expected: str, value: Any, *, is_size: bool) -> str:
    """What is expected instead of a value, and how to write a text that YAML reads as something else."""
    if is_size and isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"write a size such as 1024x1024, not {format_value(value)}"
    hint = ""
    if expected == "text" and isinstance(value, (bool, int, float)):
        hint = ": put it in quotes"
    elif expected == "text" and isinstance(value, dict) and len(value) == 1:
        hint = ": put text with ':' in quotes"
    return f"expected {expected}, not {format_value(value)}{hint}"


def _pattern_hint(loc: Loc, pattern: str) -> str:
    if pattern == TAG:
        return "a tag is one line without , ; | and without spaces around it: write several as a list, [a, b]"
    if pattern in (PRINTABLE, ONE_LINE):
        return "control characters are not allowed"
    if "requested" in pattern:
        return "write a size such as 1024x1536, or 'requested'"
    for scheme, hint in _SCHEMES.items():
        if pattern.startswith(scheme):
            return hint
    return next(
        (_PATTERNS[step] for step in (*loc[-1:], *loc[:1]) if step in _PATTERNS),
        "use letters, digits, '_', '-' and '.'",
    )


def error_path(error: Mapping[str, Any], schema: Mapping[str, Any]) -> Loc:
    """The path in the document of what an entry of a pydantic ``errors()`` list is about."""
    loc, data = document_path(error["loc"]), error["input"]
    if error["type"] not in _TAG_ERRORS or not isinstance(data, dict):
        return loc
    field, _ = _tags_at(schema, tuple(error["loc"]))
    return (*loc, field) if field in data else loc


def _unknown_type(error: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    loc, data = tuple(error["loc"]), error["input"]
    field, known = _tags_at(schema, loc)
    if not isinstance(data, dict):
        return f"expected a mapping with the key {field!r}, not {format_value(data)}"
    if field not in data:
        return f"the key {field!r} is missing"
    group = _GROUPS.get(loc[0]) if loc else None
    known += plugin_names(group) if group else []
    label = _TAG_LABELS.get((loc[0], len(loc)), field) if loc else field
    guess = did_you_mean(str(data[field]), known)
    may_be_plugin = group and "did you mean" not in guess and re.fullmatch(NAME, str(data[field]))
    missing = "; or is a package that adds it not installed?" if may_be_plugin else ""
    return f"unknown {label} {format_value(data[field])}{guess}{missing}"


def _tags_at(schema: Mapping[str, Any], loc: Loc) -> tuple[str, list[str]]:
    """The key that selects an alternative at ``loc``, and the values that it may have."""
    tags = [(field, const) for node in _nodes(schema, loc) for field, const in _tag_of(node)]
    return tags[0][0] if tags else "type", [const for _, const in tags]


def _tag_of(node: Mapping[str, Any]) -> list[tuple[str, str]]:
    properties = node.get("properties", {})
    return [(field, properties[field]["const"]) for field in _TAGS if "const" in properties.get(field, {})]


def known_keys(schema: Mapping[str, Any], loc: Sequence[str | int]) -> set[str]:
    """The keys that the JSON Schema allows in the mapping at ``loc``."""
    return {key for node in _nodes(schema, loc) for key in node.get("properties", {})}


def _nodes(schema: Mapping[str, Any], loc: Sequence[str | int]) -> list[Mapping[str, Any]]:
    """The schemas at ``loc``, one for each alternative."""
    nodes = _alternatives(schema, schema)
    for step in loc:
        below = [child for node in nodes for child in _children(node, step)]
        if below:
            nodes = [alt for child in below for alt in _alternatives(child, schema)]
            continue
        # the tag of a union is part of pydantic's location but not of the document
        values = [[const for _, const in _tag_of(node)] for node in nodes]
        tagged = [step in consts or (step == "module:Class" and not consts) for consts in values]
        nodes = list(compress(nodes, tagged)) or nodes
    return nodes


def _children(node: Mapping[str, Any], step: str | int) -> list[Any]:
    if isinstance(step, int):
        return [node["items"]] if "items" in node else []
    if step in node.get("properties", {}):
        return [node["properties"][step]]
    matching = [child for pattern, child in node.get("patternProperties", {}).items() if re.search(pattern, step)]
    extra = node.get("additionalProperties")
    return matching or ([extra] if isinstance(extra, dict) else [])


def _alternatives(node: Any, schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if "$ref" in node:
        return _alternatives(schema["$defs"][node["$ref"].rsplit("/", 1)[-1]], schema)
    options = node.get("anyOf", []) + node.get("oneOf", []) + node.get("allOf", [])
    return [node] + [alt for option in options for alt in _alternatives(option, schema)]
