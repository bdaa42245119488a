"""The configuration of recorded answers: the file and its columns."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from visioneval.suite.cases.case import Text
from visioneval.suite.entries.judges import BaseJudge
from visioneval.types import Frozen


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
