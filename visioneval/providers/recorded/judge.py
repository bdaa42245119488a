"""A judge with recorded answers. It makes no calls; records mark its replies as ``recorded``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from visioneval.errors import ProviderError
from visioneval.providers.base import CellRef, Question, Reply
from visioneval.providers.recorded.config import YES_NO, RecordedJudge, is_empty
from visioneval.suite.loading.datasets.rows import Row
from visioneval.suite.loading.datasets.tables import read_rows

Key = tuple[str, str | None, str | None]


class Recorded:
    """Looks answers up by case, model run, sample and question. The file is read once, at the start of a run."""

    def __init__(self, config: RecordedJudge) -> None:
        """``config.path`` is absolute, or relative to the working directory.

        Raises ``UsageError`` or ``SuiteError`` if the file cannot be read.
        """
        self._config = config
        self._answers: dict[Key, dict[str, Any]] = {}
        fields = config.fields
        for row in read_rows(Path(config.path), config.path):
            key = (
                _text(row, fields.case),
                None if fields.model is None else _text(row, fields.model),
                None if fields.sample is None else _text(row, fields.sample),
            )
            answer, answers = row.get(fields.answer), self._answers.setdefault(key, {})
            if not is_empty(answer):  # an empty row replaces no answer
                answers[_text(row, fields.question)] = answer

    async def ask(self, question: Question, about: CellRef) -> Reply:
        """Returns a JSON object with the recorded answers to ``question.names`` and to other keys of its schema.

        Names without an answer are omitted. Raises ``ProviderError`` if the cell has no answers, unless the question
        consists of questions in words: those count as unanswered.
        """
        fields = self._config.fields
        key = (
            about.test_id,
            None if fields.model is None else about.model_label,
            None if fields.sample is None else str(about.sample_index),
        )
        recorded = self._answers.get(key, {})
        if not recorded and not question.texts:
            cell = f"case {about.test_id!r}, model {about.model_label!r}, sample {about.sample_index}"
            raise ProviderError(f"{Path(self._config.path).name}: no recorded answer for {cell}", kind="invalid")
        shapes = (question.schema or {}).get("properties", {})
        names = [name for name in dict.fromkeys((*question.names, *shapes)) if name in recorded]
        answers = {name: _value(recorded[name], shapes.get(name, {})) for name in names}
        for name, text in question.texts.items():
            if (answer := recorded.get(name, recorded.get(text))) is not None:
                answers[name] = answer
        return Reply(text=json.dumps(answers), model="recorded", shape="recorded")


def _text(row: Row, column: str) -> str:
    value = row.get(column)
    return "" if value is None else str(value)


def _value(value: Any, schema: Mapping[str, Any]) -> Any:
    """Parses a table cell as JSON if possible: ``true``, ``4``, or a spreadsheet's ``TRUE``; other text stays text.

    Where the metric is a yes or no, the usual words and numbers for it are converted too, also in JSONL.
    """
    if schema.get("type") == "boolean" and not isinstance(value, bool):
        answer = YES_NO.get(f"{value:g}" if isinstance(value, (int, float)) else str(value).strip().lower())
        if answer is not None:
            return answer
    if not isinstance(value, str) or schema.get("type") == "string":
        return value
    text = value.strip()
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return json.loads(text, parse_constant=lambda _: value)
    except (ValueError, RecursionError):
        return value
