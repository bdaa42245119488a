"""Checks of files with recorded answers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from visioneval.errors import Problem, SuiteError, VisionEvalError
from visioneval.providers.recorded.config import YES_NO, RecordedJudge, is_empty
from visioneval.suite.cases.case import TestCase
from visioneval.suite.entries.graders import BaseGrader
from visioneval.suite.loading.datasets.rows import Row, missing_columns
from visioneval.suite.loading.datasets.tables import read_rows
from visioneval.suite.loading.messages import Loc
from visioneval.suite.loading.paths import Trust
from visioneval.types import Metric

_LISTED = 5
Asked = Sequence[tuple[TestCase, BaseGrader]]


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
        yield ("path",), f"{judge.path}: {error}"
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


def answer_warnings(judge: RecordedJudge, folder: Path, trust: Trust, asked: Asked) -> Iterator[tuple[Loc, str]]:
    """Yields cases without any answer, and answers that are no score of their metric.

    ``asked`` are the cases, each with a grader that asks this judge. Says nothing about a file with problems.
    """
    if not asked or any(True for _ in problems(judge, folder, trust)):
        return
    by_case: dict[str, list[Row]] = defaultdict(list)
    for row in read_rows(folder / judge.path, judge.path):
        by_case[str(row.get(judge.fields.case))].append(row)
    ids = list(dict.fromkeys(case.id for case, _ in asked))
    if missing := [case_id for case_id in ids if case_id not in by_case]:
        yield ("path",), f"{judge.path} has no answer for {len(missing)} of {len(ids)} cases: {_listed(missing)}"
    bad = [
        f"line {row.line}: {row.get(judge.fields.answer)!r} is no {_kind(metric)} ({name})"
        for case, grader in asked
        for name, metric in grader.metrics(case).items()
        for row in by_case.get(case.id, ())
        if row.get(judge.fields.question) == name and not _is_score(row.get(judge.fields.answer), metric)
    ]
    if bad:
        yield ("path",), f"{judge.path} has answers that count as not measured: {_listed(bad, '; ')}"


def _is_score(answer: Any, metric: Metric) -> bool:
    """Whether an answer is a score of its metric. An empty one is: the question was not answered."""
    if is_empty(answer) or isinstance(answer, (Mapping, list)):
        return True
    text = str(answer).strip().lower()
    if metric.type == "bool":
        return text in YES_NO
    try:
        number = float(text)
    except ValueError:
        return False
    low, high = metric.range or (None, None)
    return math.isfinite(number) and (low is None or number >= low) and (high is None or number <= high)


def _kind(metric: Metric) -> str:
    if metric.type == "bool":
        return "yes or no"
    low, high = metric.range or (None, None)
    return "number" if low is None or high is None else f"number from {low:g} to {high:g}"


def _listed(texts: Sequence[str], separator: str = ", ") -> str:
    more = len(texts) - _LISTED
    return separator.join(texts[:_LISTED]) + (f" and {more:,} more" if more > 0 else "")
