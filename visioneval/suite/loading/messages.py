"""What the suite's model says of bad data, in the words of somebody who writes suites."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from visioneval.suite.case import PRINTABLE
from visioneval.suite.outputs import ONE_LINE

Loc = tuple[str | int, ...]

_QUOTE = "'"
_EXPECTED = {
    "string_type": "text",
    "string_unicode": "text without lone surrogates",
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
    "label": "text without control characters",
    "size": "a size such as 1024x1536",
    "project": "a-z, 0-9 and -",
    "location": "a-z, 0-9 and -",
    "aspect_ratio": "a ratio such as 2:3",
    "provider": "a class of your own is written package.module:Class",
    "type": "a class of your own is written package.module:Class",
    "vars": "templates know names of letters, digits and _, not first a digit",
}
_LIMITS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("over", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("under", "lt"),
}
_NEAR, _SHOWN, _LONGEST = 1000, 20, 200
_ALTERNATIVE = re.compile(r"(literal|tuple|list|dict|constrained-\w+|function-\w+|lax-or-strict)(\[.*\])?", re.DOTALL)
_TAGS = ("provider", "type")
_SHORT_FORMS = ("verdict", "gates", "images")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` for the nearest known word, else what is known, else nothing."""
    words = sorted(known)
    near = get_close_matches(word[:_LONGEST], words[:_NEAR], n=1, cutoff=0.6)
    if near:
        return f" (did you mean {near[0]!r}?)"
    more = ", ..." if len(words) > _SHOWN else ""
    return f" (known: {', '.join(words[:_SHOWN])}{more})" if words else ""


def in_document(loc: Sequence[str | int]) -> Loc:
    """A pydantic location without the steps that name an alternative of a union: no document has them."""
    return tuple(step for step in loc if not (isinstance(step, str) and _ALTERNATIVE.fullmatch(step)))


def explain(error: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """One line for one entry of a pydantic ``errors()`` list."""
    kind, loc = error["type"], in_document([step for step in error["loc"] if step != "[key]"])
    name = str(loc[-1]) if loc else "the suite"
    if kind == "extra_forbidden":
        return f"unknown key {name!r}{did_you_mean(name, known_keys(schema, loc[:-1]))}"
    if kind == "missing" and isinstance(loc[-1], str):
        return f"the key {name!r} is missing"
    if kind == "value_error":
        return str(error["ctx"]["error"])
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _unknown_type(error, schema)
    return f"{_readable(loc)}: {_misfit(kind, loc, error.get('ctx', {}), error['input']) or error['msg']}"


def worth_telling(errors: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Leaves out what follows from another error.

    A list that lost its bad entries is not empty, a misspelt key is not missing, and the alternatives of a union say
    the same of one value.
    """
    unknown: dict[Loc, list[str]] = {}
    for error in errors:
        if error["type"] == "extra_forbidden":
            unknown.setdefault(tuple(error["loc"][:-1]), []).append(str(error["loc"][-1]))
    told: set[Loc] = set()
    for error in errors:
        loc = tuple(error["loc"])
        plain = in_document(loc)
        emptied = error["type"] == "too_short" and bool(error["input"])
        misspelt = error["type"] == "missing" and get_close_matches(str(loc[-1]), unknown.get(loc[:-1], ()), n=1)
        if not emptied and not misspelt and not (plain in told and len(plain) < len(loc)):
            yield error
        told.add(plain)


def _misfit(kind: str, loc: Loc, ctx: Mapping[str, Any], value: Any) -> str | None:
    """What is wrong with a value."""
    if kind in _EXPECTED:
        wanted = _EXPECTED[kind]
        if kind == "model_type" and len(loc) > 1 and loc[-2] in _SHORT_FORMS:
            wanted = "text or a mapping of keys to values"
        quote = ": put it in quotes" if wanted == "text" and isinstance(value, (bool, int, float)) else ""
        return f"expected {wanted}, not {shown(value)}{quote}"
    if kind in _LIMITS:
        words, limit = _LIMITS[kind]
        return f"must be {words} {ctx[limit]:g}, not {shown(value)}"
    if kind in ("literal_error", "enum"):
        return f"{shown(value)} is not one of {ctx['expected'].replace(' or ', ', ').replace(_QUOTE, '')}"
    if kind == "string_pattern_mismatch":
        return f"{shown(value)} does not fit: {_wanted(loc, str(ctx['pattern']))}"
    if kind == "string_too_long":
        return f"{shown(value)} is longer than {ctx['max_length']} characters"
    if kind in ("missing", "too_long"):
        return "holds too few values" if kind == "missing" else "holds too many values"
    return {"too_short": "must not be empty", "string_too_short": "must not be empty"}.get(kind)


def _wanted(loc: Loc, pattern: str) -> str:
    if pattern in (PRINTABLE, ONE_LINE):
        return "a control character is not text"
    if "requested" in pattern:
        return "a size such as 1024x1536, or 'requested'"
    return next((_PATTERNS[step] for step in (*loc[-1:], *loc[:1]) if step in _PATTERNS), "letters, digits, _ - and .")


def _unknown_type(error: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    loc, data = tuple(error["loc"]), error["input"]
    tags = [(field, const) for node in _nodes(schema, loc) for field, const in _tag_of(node)]
    field = tags[0][0] if tags else "type"
    if not isinstance(data, dict):
        return f"expected a mapping with the key {field!r}, not {shown(data)}"
    if field not in data:
        return f"the key {field!r} is missing"
    what = "grader type" if field == "type" and loc[:1] == ("graders",) and len(loc) == 2 else field
    return f"unknown {what} {shown(data[field])}{did_you_mean(str(data[field]), [const for _, const in tags])}"


def _tag_of(node: Mapping[str, Any]) -> list[tuple[str, str]]:
    properties = node.get("properties", {})
    return [(field, properties[field]["const"]) for field in _TAGS if "const" in properties.get(field, {})]


def runs_code(name: str, options: object = None) -> str:
    """What to say of a provider, grader or judge that needs trust, and of the options that its class would check."""
    unchecked = "; its options are not checked until then" if options else ""
    return f"{name!r} runs code that the suite brings: pass --trust-suite if you trust this suite{unchecked}"


def shown(value: Any) -> str:
    """A value of a suite in an error line: short, on one line, and as YAML writes it."""
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _readable(loc: Loc) -> str:
    name = next((step for step in reversed(loc) if isinstance(step, str)), "item")
    return name if name.isprintable() else repr(name)


def known_keys(schema: Mapping[str, Any], loc: Sequence[str | int]) -> set[str]:
    """The keys that the JSON Schema allows in the mapping at ``loc``."""
    return {key for node in _nodes(schema, loc) for key in node.get("properties", {})}


def _nodes(schema: Mapping[str, Any], loc: Sequence[str | int]) -> list[Mapping[str, Any]]:
    """The schemas that stand at ``loc``, one for each alternative."""
    nodes = _alternatives(schema, schema)
    for step in loc:
        below = [child for node in nodes for child in _children(node, step)]
        if below:
            nodes = [alt for child in below for alt in _alternatives(child, schema)]
        else:  # the tag of a union is part of pydantic's location, and of no document
            nodes = [node for node in nodes if _is_tagged(node, step)] or nodes
    return nodes


def _children(node: Mapping[str, Any], step: str | int) -> list[Any]:
    if isinstance(step, int):
        return [node["items"]] if "items" in node else []
    if step in node.get("properties", {}):
        return [node["properties"][step]]
    extra = node.get("additionalProperties")
    return [extra] if isinstance(extra, dict) else []


def _is_tagged(node: Mapping[str, Any], tag: str | int) -> bool:
    consts = [const for _, const in _tag_of(node)]
    return tag in consts or (tag == "module:Class" and not consts)


def _alternatives(node: Any, schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if "$ref" in node:
        return _alternatives(schema["$defs"][node["$ref"].rsplit("/", 1)[-1]], schema)
    options = node.get("anyOf", []) + node.get("oneOf", []) + node.get("allOf", [])
    return [node] + [alt for option in options for alt in _alternatives(option, schema)]
