"""The `recorded` judge: a file of answers, its checks, and the answers that it gives.

It makes no calls; records mark its replies as ``recorded``.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field

from visioneval.errors import Problem, ProviderError, SuiteError, VisionEvalError, count_of, did_you_mean
from visioneval.media.urls import public_address
from visioneval.providers.base import CellRef, Question, Reply
from visioneval.providers.reply_json import YES_NO, yes_or_no
from visioneval.suite.case import Text
from visioneval.suite.entries.judges import BaseJudge
from visioneval.suite.files import Trust
from visioneval.suite.loading.cells import cell_items
from visioneval.suite.loading.rows import Row, missing_columns
from visioneval.suite.loading.tables import read_rows
from visioneval.suite.messages import Loc, SuiteWarning
from visioneval.types import Frozen, declared_word

if TYPE_CHECKING:
    from visioneval.suite.checks.rules import SuiteContext
    from visioneval.suite.entries.graders import BaseGrader
    from visioneval.suite.entries.judges import RecordedAnswer

_LISTED = 5
_Cell = tuple[str, ...]
"""The case, the model run and the sample of an answer; empty where the file does not tell them apart."""


class RecordedFields(Frozen):
    """The columns of a file of recorded answers."""

    case: Text = Field(default="case", description="The column with the id of the case.")
    model: Text | None = Field(
        default=None,
        description="The column with the label of the model run. Without it, an answer is for all model runs.",
    )
    sample: Text | None = Field(
        default=None, description="The column with the sample. Without it, an answer is for all samples."
    )
    question: Text = Field(
        default="question", description="The column with the name of a metric, or the id or the text of a question."
    )
    answer: Text = Field(
        default="answer",
        description="The column with the answer. Yes is `true`, `yes`, `pass` or `1`, no is `false`, `no`, `fail` or "
        "`0`, in any case. A list is written as in a dataset.",
    )


class RecordedJudge(BaseJudge):
    """Recorded answers in a file of rows. Makes no calls; records mark the answers as ``recorded``."""

    is_free: ClassVar[bool] = True
    watches: ClassVar[bool] = True
    is_recorded: ClassVar[bool] = True

    provider: Literal["recorded"]
    path: Text = Field(description="The file, one answer per row: JSONL, JSON, CSV, TSV or Parquet.")
    fields: RecordedFields = Field(default=RecordedFields(), description="The names of its columns.")

    def located(self, folder: Path) -> Self:
        return self.model_copy(update={"path": str(folder / self.path)})

    def grading_options(self, folder: Path) -> dict[str, Any]:
        """With the hash of the file instead of its path: a file with other answers counts, a moved one does not."""
        try:
            with (folder / self.path).open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            digest = None  # which is an error as soon as the judge is built
        return {**self.model_dump(exclude={"path"}), "file": digest}


class Recorded:
    """Looks answers up by case, model run, sample and question. The file is read once, at the start of a run."""

    def __init__(self, config: RecordedJudge) -> None:
        """``config.path`` is absolute, or relative to the working directory.

        Raises ``UsageError`` or ``SuiteError`` if the file cannot be read.
        """
        self._config = config
        self._answers = _answers(config.fields, read_rows(Path(config.path), config.path))

    async def ask(self, question: Question, about: CellRef) -> Reply:
        """Returns a JSON object with the recorded answers to ``question.names`` and to other keys of its schema.

        Names without an answer are omitted. Raises ``ProviderError`` if the cell has no answers, unless the question
        consists of questions in words: those count as unanswered.
        """
        fields = self._config.fields
        key = (
            about.test_id,
            "" if fields.model is None else about.model_label,
            "" if fields.sample is None else str(about.sample_index),
        )
        recorded = {name: answer for name, (_, answer) in self._answers.get(key, {}).items()}
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


def _answers(fields: RecordedFields, rows: Sequence[Row]) -> dict[_Cell, dict[str, tuple[int, Any]]]:
    """The line and the answer to each question about each cell. The last row of a question wins."""
    answers: dict[_Cell, dict[str, tuple[int, Any]]] = {}
    for row in rows:
        answer = row.get(fields.answer)
        if not is_empty(answer):  # an empty row replaces no answer
            key = tuple(_cell_text(row, column) for column in (fields.case, fields.model, fields.sample))
            answers.setdefault(key, {})[_cell_text(row, fields.question)] = (row.line, answer)
    return answers


def _cell_text(row: Row, column: str | None) -> str:
    """The text in a column of a row; empty without one."""
    value = None if column is None else row.get(column)
    return "" if value is None else str(value)


def is_empty(answer: object) -> bool:
    """Whether a question was not answered."""
    return answer is None or (isinstance(answer, str) and not answer.strip())


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
        try:
            items = cell_items(value)
        except ValueError:
            return value
        is_single = items is None and schema.get("items", {}).get("type") == "string"
        return [value] if is_single else value if items is None else items
    text = value.strip()
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return json.loads(text, parse_constant=lambda _: value)
    except (ValueError, RecursionError):
        return value


def problems(judge: RecordedJudge, folder: Path, trust: Trust) -> Iterator[tuple[Loc, str] | Problem]:
    """Yields unreadable files, missing columns and conflicting answers. Locations are relative to the judge's entry."""
    if refusal := trust.refusal(judge.path, folder):
        yield ("path",), refusal
        return
    try:
        rows = read_rows(folder / judge.path, judge.path)
    except SuiteError as error:
        yield from error.problems
    except VisionEvalError as error:
        yield ("path",), f"{public_address(judge.path)}: {error}"
    else:
        missing = list(missing_columns(rows, judge.fields.model_dump(exclude_none=True)))
        yield from ((("fields", key), message) for key, message in missing)
        if not missing:
            yield from islice(_conflicts(judge, rows), _LISTED)


def _conflicts(judge: RecordedJudge, rows: Sequence[Row]) -> Iterator[Problem]:
    """Rows that answer the same question differently than an earlier row: no order of rows says which one is right."""
    fields = judge.fields.model_dump(exclude_none=True)
    keys = [column for name, column in fields.items() if name != "answer"]
    unmapped = [name for name in ("model", "sample") if name not in fields and rows and rows[0].has(name)]
    hint = f"add {', '.join(f'{name}: {name}' for name in unmapped)} to the judge's fields" if unmapped else "keep one"
    answers: dict[tuple[str, ...], tuple[int, str | float]] = {}
    for row in rows:
        if is_empty(answer := row.get(judge.fields.answer)):
            continue
        plain = _plain(str(answer).strip())
        line, first = answers.setdefault(tuple(str(row.get(column)) for column in keys), (row.line, plain))
        if plain != first:
            about = f"{row.get(judge.fields.question)!r} of case {row.get(judge.fields.case)!r}"
            yield Problem(judge.path, row.line, 1, f"answers {about} differently than line {line}: {hint}")


def _plain(text: str) -> str | float:
    """An answer in the form in which equal ones are equal. Text keeps its case: copy is checked letter by letter."""
    word = text.lower()
    try:
        number = YES_NO[word] if word in YES_NO else float(word)
    except ValueError:
        return text
    return number if math.isfinite(number) else word


def answer_problems(
    judge: RecordedJudge, folder: Path, trust: Trust, view: SuiteContext, graders: Sequence[BaseGrader]
) -> Iterator[tuple[Loc, str] | Problem | SuiteWarning]:
    """Yields answers that ``graders`` cannot use, and cells without answers. Nothing about a file with problems."""
    if not graders or any(True for _ in problems(judge, folder, trust)):
        return
    answers = _answers(judge.fields, read_rows(folder / judge.path, judge.path))
    unusable: dict[int, Problem] = {}
    for grader in graders:
        lacking: dict[_Cell, str] = {}
        cells = 0
        for cell, expected in _cells(judge, view, folder, grader):
            cells += 1
            recorded = answers.get(cell, {})
            given = {
                name: answer
                for name, item in expected.items()
                if (answer := recorded.get(name) or (None if item.text is None else recorded.get(item.text)))
            }
            missing = [name for name, item in expected.items() if item.is_required and name not in given]
            if missing or not given:
                lacking[cell] = missing[0] if missing else next(iter(expected))
            for name, (line, value) in given.items():
                item = expected[name]
                if not item.fits(value if item.schema is None else recorded_value(value, item.schema)):
                    message = f"{value!r:.60} is no answer to {name!r} of case {cell[0]!r}"
                    advice = f"write {item.expected}, or leave it empty if there is none"
                    unusable.setdefault(line, Problem(judge.path, line, 1, f"{message}: {advice}"))
        if lacking:
            yield _lacking(judge, grader, lacking, cells, {name for given in answers.values() for name in given})
    yield from islice(unusable.values(), _LISTED)
    if (more := len(unusable) - _LISTED) > 0:
        yield ("path",), f"{judge.path} has {count_of(more, 'more answer')} that cannot be used"


def _cells(
    judge: RecordedJudge, view: SuiteContext, folder: Path, grader: BaseGrader
) -> Iterator[tuple[_Cell, Mapping[str, RecordedAnswer]]]:
    """The cells that a grader grades, as the file tells them apart, each with what it asks about them."""
    from visioneval.suite.runs import dataset_outputs, samples_of

    has_model, has_sample = judge.fields.model is not None, judge.fields.sample is not None
    existing = [dataset_outputs(run, view.suite, folder) if run.config.reads_outputs else {} for run in view.runs]
    for index, case in enumerate(view.suite.cases):
        if case.expect.refusal or not grader.is_for(case) or not (expected := grader.recorded_answers(case)):
            continue
        cells: dict[_Cell, None] = {}
        for run, (_, cases), outputs in zip(view.runs, view.labels, existing, strict=True):
            # how many samples a model run has is not always known: none of a case without an output
            known = len(outputs.get(case.output_of or case.id, ()))
            count = known if outputs else samples_of(run, view.suite.samples)
            for sample in range(count if has_sample else min(count, 1)) if index in cases else ():
                cells[case.id, run.label if has_model else "", str(sample) if has_sample else ""] = None
        yield from ((cell, expected) for cell in cells)


def _lacking(
    judge: RecordedJudge, grader: BaseGrader, lacking: Mapping[_Cell, str], cells: int, names: Collection[str]
) -> tuple[Loc, str] | SuiteWarning:
    """What to say about cells without an answer: they will be errors."""
    listed = [f"{' '.join(filter(None, cell))} ({name})" for cell, name in islice(lacking.items(), _LISTED)]
    more = len(lacking) - _LISTED
    listing = ", ".join(listed) + (f" and {more:,} more" if more > 0 else "")
    message = f"{judge.path} has no answer for {len(lacking)} of {count_of(cells, 'cell')} of {grader.key!r}: {listing}"
    if len(lacking) < cells or grader.optional or grader.required_judges != len(grader.judge_names):
        return SuiteWarning(("path",), message)
    return ("path",), f"{message}{did_you_mean(next(iter(lacking.values())), names)}"
