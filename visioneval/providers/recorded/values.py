"""Reads the values of a file of recorded answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from visioneval.providers.reply_values import yes_or_no
from visioneval.suite.loading.datasets.cells import cell_items
from visioneval.suite.loading.datasets.rows import Row


def cell_text(row: Row, column: str | None) -> str:
    """The text in a column of a row; empty without one."""
    value = None if column is None else row.get(column)
    return "" if value is None else str(value)


def recorded_value(value: Any, schema: Mapping[str, Any]) -> Any:
    """Parses a table cell as JSON if possible: ``true``, ``4``, or a spreadsheet's ``TRUE``; other text stays text.

    Where the metric is a yes or no, the usual words and numbers for it are converted too, also in JSONL. Where a list
    is wanted, it is read as in a dataset.
    """
    if schema.get("type") == "boolean" and (answer := yes_or_no(value)) is not None:
        return answer
    if not isinstance(value, str) or schema.get("type") == "string":
        return value
    if schema.get("type") == "array":
        return _listed(value, schema)
    text = value.strip()
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return json.loads(text, parse_constant=lambda _: value)
    except (ValueError, RecursionError):
        return value


def _listed(text: str, schema: Mapping[str, Any]) -> Any:
    """The list in a cell, or its text as the only item of a list of texts. Text that may be either stays text."""
    try:
        items = cell_items(text)
    except ValueError:
        return text
    is_single = items is None and schema.get("items", {}).get("type") == "string"
    return [text] if is_single else text if items is None else items
