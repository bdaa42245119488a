"""The options of recorded answers: the file, its columns, and its values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from visioneval.providers.reply_json import yes_or_no
from visioneval.suite.case import Text
from visioneval.suite.entries.judges import BaseJudge
from visioneval.suite.loading.cells import cell_items
from visioneval.suite.loading.rows import Row
from visioneval.types import Frozen, declared_word


def is_empty(answer: object) -> bool:
    """Whether a question was not answered."""
    return answer is None or (isinstance(answer, str) and not answer.strip())


class RecordedFields(Frozen):
    """The columns of a file of recorded answers."""

    case: Text = Field(default="case", description="The column with the id of the case.")
    model: Text | None = Field(default=None, description="Without it, answers apply to all model runs.")
    sample: Text | None = Field(default=None, description="Without it, answers apply to all samples.")
    question: Text = Field(default="question", description="A question's ID or text, or a metric's name.")
    answer: Text = Field(default="answer", description="The column with the answer.")


class RecordedJudge(BaseJudge):
    """Recorded answers in a JSONL, CSV or TSV file. Makes no calls; the record marks them as ``recorded``."""

    is_free: ClassVar[bool] = True
    watches: ClassVar[bool] = True
    is_recorded: ClassVar[bool] = True

    provider: Literal["recorded"]
    path: Text = Field(description="The table of answers, relative to this file.")
    fields: RecordedFields = Field(default=RecordedFields(), description="The names of the table's columns.")

    def located(self, folder: Path) -> Self:
        return self.model_copy(update={"path": str(folder / self.path)})

    def grading_options(self, folder: Path) -> dict[str, Any]:
        """With the hash of the file instead of its path: a file with other answers counts, a moved one does not."""
        return {**self.model_dump(exclude={"path"}), "file": _file_sha256(folder / self.path)}


def _file_sha256(path: Path) -> str | None:
    """``None`` if the file cannot be read, which is an error as soon as the judge is built."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


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
        return declared_word(value, schema.get("enum", ()))
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
