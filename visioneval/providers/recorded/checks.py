"""Checks of files with recorded answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from visioneval.errors import Problem, SuiteError, VisionEvalError, count_of, did_you_mean
from visioneval.media.urls import public_address
from visioneval.providers.recorded.config import RecordedJudge, cell_text, is_empty, recorded_value
from visioneval.providers.reply_json import YES_NO
from visioneval.suite.case import TestCase
from visioneval.suite.checks.rules import SuiteContext
from visioneval.suite.entries.graders import BaseGrader
from visioneval.suite.entries.judges import RecordedAnswer
from visioneval.suite.files import Trust
from visioneval.suite.loading.rows import Row, missing_columns
from visioneval.suite.loading.tables import read_rows
from visioneval.suite.messages import Loc, SuiteWarning
from visioneval.suite.model import Suite
from visioneval.suite.runs import dataset_outputs, samples_of
from visioneval.types import ModelRun

_LISTED = 5
_Cell = tuple[str, ...]
"""The case, the model run and the sample of an answer; empty where the file does not tell them apart."""


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
        answer = _plain(row.get(judge.fields.answer))
        if answer is None:
            continue
        line, first = answers.setdefault(tuple(str(row.get(column)) for column in keys), (row.line, answer))
        if answer != first:
            about = f"{row.get(judge.fields.question)!r} of case {row.get(judge.fields.case)!r}"
            yield Problem(judge.path, row.line, 1, f"answers {about} differently than line {line}: {hint}")


def _plain(answer: Any) -> str | float | None:
    """An answer in the form in which equal ones are equal; ``None`` if the question was not answered.

    Text keeps its case, as copy is checked letter by letter.
    """
    if is_empty(answer):
        return None
    text = str(answer).strip()
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
    fields, answers = judge.fields, dict[_Cell, dict[str, Row]]()
    for row in read_rows(folder / judge.path, judge.path):
        if not is_empty(row.get(fields.answer)):
            key = tuple(cell_text(row, column) for column in (fields.case, fields.model, fields.sample))
            answers.setdefault(key, {})[cell_text(row, fields.question)] = row
    unusable: dict[int, Problem] = {}
    for grader in graders:
        lacking: dict[_Cell, str] = {}
        cells = 0
        for cell, expected in _cells(judge, view, folder, grader):
            cells += 1
            recorded = answers.get(cell, {})
            given = {name: answer for name, item in expected.items() if (answer := _row_of(recorded, name, item))}
            missing = [name for name, item in expected.items() if item.is_required and name not in given]
            if missing or not given:
                lacking[cell] = missing[0] if missing else next(iter(expected))
            for name, row in given.items():
                value, item = row.get(fields.answer), expected[name]
                if not item.fits(value if item.schema is None else recorded_value(value, item.schema)):
                    message = f"{value!r:.60} is no answer to {name!r} of case {cell[0]!r}"
                    advice = f"write {item.expected}, or leave it empty if there is none"
                    unusable.setdefault(row.line, Problem(judge.path, row.line, 1, f"{message}: {advice}"))
        yield from _lacking(judge, grader, lacking, cells, {name for row in answers.values() for name in row})
    yield from islice(unusable.values(), _LISTED)
    if (more := len(unusable) - _LISTED) > 0:
        yield ("path",), f"{judge.path} has {count_of(more, 'more answer')} that cannot be used"


def _cells(
    judge: RecordedJudge, view: SuiteContext, folder: Path, grader: BaseGrader
) -> Iterator[tuple[_Cell, Mapping[str, RecordedAnswer]]]:
    """The cells that a grader grades, as the file tells them apart, each with what it asks about them."""
    has_model, has_sample = judge.fields.model is not None, judge.fields.sample is not None
    pairs = zip(view.runs, view.labels, strict=True)
    runs = [(run.label, cases, _samples_by_case(run, view.suite, folder)) for run, (_, cases) in pairs]
    for index, case in enumerate(view.suite.cases):
        if case.expect.refusal or not grader.is_for(case) or not (expected := grader.recorded_answers(case)):
            continue
        samples = [(label, samples_of_case(case)) for label, cases, samples_of_case in runs if index in cases]
        cells = {
            (case.id, label if has_model else "", str(sample) if has_sample else ""): None
            for label, count in samples
            for sample in range(count if has_sample else min(count, 1))
        }
        yield from ((cell, expected) for cell in cells)


def _samples_by_case(run: ModelRun, suite: Suite, folder: Path) -> Callable[[TestCase], int]:
    """How many samples of a case a model run has, as far as that is known: none of a case without an output."""
    existing = dataset_outputs(run, suite, folder) if run.config.reads_outputs else {}
    if existing:
        return lambda case: len(existing.get(case.output_of or case.id, ()))
    count = samples_of(run, suite.samples)
    return lambda _: count


def _row_of(recorded: Mapping[str, Row], name: str, expected: RecordedAnswer) -> Row | None:
    """The row with the answer to a question, by its name or its text."""
    return recorded.get(name) or (None if expected.text is None else recorded.get(expected.text))


def _lacking(
    judge: RecordedJudge, grader: BaseGrader, lacking: Mapping[_Cell, str], cells: int, names: Collection[str]
) -> Iterator[tuple[Loc, str] | SuiteWarning]:
    """What to say about cells without an answer: they will be errors."""
    if not lacking:
        return
    listed = [f"{' '.join(filter(None, cell))} ({name})" for cell, name in lacking.items()]
    message = f"{judge.path} has no answer for {len(lacking)} of {count_of(cells, 'cell')} of {grader.key!r}"
    is_needed = grader.required_judges == len(grader.judge_names) and not grader.optional
    if len(lacking) == cells and is_needed:
        name = next(iter(lacking.values()))
        yield ("path",), f"{message}: {_listed(listed)}{did_you_mean(name, names)}"
    else:
        yield SuiteWarning(("path",), f"{message}: {_listed(listed)}")


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - _LISTED
    return ", ".join(texts[:_LISTED]) + (f" and {more:,} more" if more > 0 else "")
