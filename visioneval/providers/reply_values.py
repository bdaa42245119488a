"""Values of a judge's reply in the types of its schema, where what was meant is unambiguous: ``"4"``, ``"yes"``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

YES_NO = dict.fromkeys(("true", "yes", "pass", "1", "1.0"), True) | dict.fromkeys(
    ("false", "no", "fail", "0", "0.0"), False
)
"""What counts as an answer to a yes or no, in any case."""
_NUMBER = re.compile(r"[+-]?\d{1,15}(\.\d{1,15})?")


def yes_or_no(value: object) -> bool | None:
    """The answer to a yes or no; ``None`` for anything else."""
    if isinstance(value, bool):
        return value
    return YES_NO.get(f"{value:g}" if isinstance(value, (int, float)) else str(value).strip().lower())


def typed_value(value: Any, schema: Mapping[str, Any]) -> Any:
    """A value in the type of its JSON Schema; unchanged where it may mean something else, such as ``"4/5"``.

    Converts the properties of objects and the items of lists too, and texts to the only choice that differs in case.
    """
    kind = schema.get("type")
    if isinstance(value, dict) and "properties" in schema:
        properties = schema["properties"]
        return {key: typed_value(item, properties[key]) if key in properties else item for key, item in value.items()}
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        return [typed_value(item, schema["items"]) for item in value]
    if kind == "boolean":
        answer = yes_or_no(value)
        return value if answer is None else answer
    if not isinstance(value, str):
        return value
    text = value.strip()
    if kind in ("number", "integer") and _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    if kind == "string" and value not in (choices := schema.get("enum") or (value,)):
        same = [choice for choice in choices if str(choice).lower() == text.lower()]
        return same[0] if len(same) == 1 else value
    return value
