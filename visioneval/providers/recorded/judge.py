"""A judge with recorded answers. It makes no calls; records mark its replies as ``recorded``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from visioneval.errors import ProviderError
from visioneval.providers.base import CellRef, Question, Reply
from visioneval.providers.recorded.config import RecordedJudge, cell_text, is_empty, recorded_value
from visioneval.suite.loading.tables import read_rows

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
                cell_text(row, fields.case),
                None if fields.model is None else cell_text(row, fields.model),
                None if fields.sample is None else cell_text(row, fields.sample),
            )
            answer, answers = row.get(fields.answer), self._answers.setdefault(key, {})
            if not is_empty(answer):  # an empty row replaces no answer
                answers[cell_text(row, fields.question)] = answer

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
        answers = {name: recorded_value(recorded[name], shapes.get(name, {})) for name in names}
        for name, text in question.texts.items():
            if (answer := recorded.get(name, recorded.get(text))) is not None:
                answers[name] = answer
        return Reply(text=json.dumps(answers), model="recorded", shape="recorded")
