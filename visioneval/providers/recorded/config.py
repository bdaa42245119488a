"""Recorded answers: where they are, and which column holds what."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field

from visioneval.suite.case import Text
from visioneval.suite.judges import BaseJudge
from visioneval.types import Frozen


class RecordedFields(Frozen):
    """The column of each fact in a file of recorded answers."""

    case: Text = "case"
    model: Text | None = Field(default=None, description="Without it, an answer is for every model run.")
    sample: Text | None = Field(default=None, description="Without it, an answer is for every sample.")
    question: Text = Field(default="question", description="A question's id or text, or a metric's name.")
    answer: Text = "answer"


class RecordedJudge(BaseJudge):
    """Answers that somebody recorded, in a JSONL, CSV or TSV file. Nothing is called, and the record says so."""

    is_free: ClassVar[bool] = True
    watches: ClassVar[bool] = True
    is_recorded: ClassVar[bool] = True

    provider: Literal["recorded"]
    path: Text
    fields: RecordedFields = RecordedFields()

    def located(self, folder: Path) -> Self:
        return self.model_copy(update={"path": str(folder / self.path)})
