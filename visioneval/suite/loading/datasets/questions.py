"""Questions in the columns of rows: one question per row, or several in lists or objects of equal length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from visioneval.suite.cases.question_forms import parallel_questions
from visioneval.suite.loading.datasets.cell_lists import cell_data
from visioneval.suite.loading.datasets.rows import Row


def row_questions(row: Row, columns: Mapping[str, str]) -> list[dict[str, Any]]:
    """The raw questions of a row. Raises ``ValueError`` if its lists have different lengths."""
    values = {key: _decoded(row.get(column)) for key, column in columns.items()}
    if values.get("question") in (None, "") and values.get("id") in (None, ""):
        return []
    return parallel_questions(values)


def _decoded(value: Any) -> Any:
    """A cell's list or object, since all cells of a table are text."""
    is_data = isinstance(value, str) and value.lstrip()[:1] in ("[", "{")
    return cell_data(value) if is_data else value
