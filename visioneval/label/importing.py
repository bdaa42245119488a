"""Imports labels from files whose columns it recognizes. Ambiguous rows are reported and skipped, never guessed."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from visioneval.analysis.run_lookup import Warn, read_run
from visioneval.errors import SHOWN_PROBLEMS, ExitCode, Problem, UsageError, did_you_mean
from visioneval.records.labels import AS_FORMULA, LABELS, PAIR_ANSWERS, Label, append_labels, read_labels
from visioneval.records.model import CellKey, RunInfo
from visioneval.suite.files import split_run
from visioneval.suite.labels import WHY, LabelQuestion, Labels
from visioneval.suite.loading.rows import Row, other_spelling
from visioneval.suite.loading.tables import scan_rows
from visioneval.types import declared_word

_YES, _NO = ("true", "yes", "1"), ("false", "no", "0")
_SHORT_NAMES = {"case": "test_id", "model": "model_label", "sample": "sample_index"}
_OTHERS = ("rater", "question", "answer", "other", "seconds", "at", "artifact_sha256", "other_sha256")
_NAMES = _SHORT_NAMES | {name: name for name in (*_SHORT_NAMES.values(), *_OTHERS)}
"""The fields of a label by the names that columns may have."""
_MAX_COLUMNS = 12


class _BadRowError(Exception):
    """The reason why a row or an answer is not a valid label."""


@dataclass(slots=True)
class Imported:
    """The result of an import: new labels, the number of known labels, and problems.

    ``again`` counts new labels that repeat another row of a file without times.
    """

    labels: list[Label] = field(default_factory=list)
    known: int = 0
    again: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def exit_code(self) -> ExitCode:
        """0 if all rows are valid, 3 if some are, 2 if none is."""
        if not self.problems:
            return ExitCode.PASSED
        return ExitCode.INCOMPLETE if self.labels or self.known else ExitCode.USAGE


def import_into_run(
    path: Path, run: str, runs: Path, mapped: Mapping[str, str], fixed: Mapping[str, str], warn: Warn
) -> tuple[Path, Imported]:
    """Adds the labels of a JSONL, CSV or TSV file to a run. Returns the run's folder and the result.

    ``mapped`` and ``fixed`` are as in ``find_layout``. Importing a file again adds only new labels. Raises
    ``UsageError`` and ``SuiteError`` for an unreadable file or missing columns.
    """
    folder, info, records = read_run(run, runs, warn)
    try:
        scanned = list(scan_rows(path, str(path)))
        rows = [row for row in scanned if isinstance(row, Row)]
        result = Imported(problems=[problem for problem in scanned if isinstance(problem, Problem)])
        asked, available = info.selected_suite.resolved_labels, {column for row in rows for column in row.cells}
        layout = find_layout(available, mapped, fixed, asked) if rows else None
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    if not scanned:
        raise UsageError(f"{path}: the file has no rows")
    if layout is None:
        return folder, result
    reader = _Reader(layout, info, {record.cell: record.artifact_sha256 for record in records})
    has_quotes = path.suffix.lower() in (".csv", ".tsv")
    read = (label for row in rows for label in reader.labels(row, str(path), has_quotes=has_quotes))
    _add(read, read_labels(folder / LABELS), layout, result)
    append_labels(folder / LABELS, result.labels)
    return folder, result


def _add(labels: Iterable[Label | Problem], before: Sequence[Label], layout: Layout, result: Imported) -> None:
    """Adds labels and problems to the result, without labels that the run has.

    With times, equal answers at the same time are one label. Without times, each label that was imported before matches
    one equal row. Without hashes, rows get that of the current image, which must not make them new after another one
    was generated.
    """
    has_times, has_hashes = layout.has("at"), layout.has("artifact_sha256")

    def identity(label: Label) -> tuple[Any, ...]:
        image, at = label.artifact_sha256 if has_hashes else None, label.at if has_times else None
        return (*label.key, type(label.answer), label.answer, image, at)

    existing = Counter(identity(label) for label in before if has_times or label.source == "import")
    added: set[tuple[Any, ...]] = set()
    for label in labels:
        if isinstance(label, Problem):
            result.problems.append(label)
            continue
        key = identity(label)
        if existing[key] > 0 or (has_times and key in added):
            existing[key] -= not has_times
            result.known += 1
        else:
            result.again += key in added
            added.add(key)
            result.labels.append(label)


class _Reader:
    """Converts rows to labels of a run. ``cells`` are its cells with their image hashes."""

    def __init__(self, layout: Layout, info: RunInfo, cells: Mapping[CellKey, str | None]) -> None:
        self.layout = layout
        self.run_id = info.run_id
        self.asked = info.selected_suite.resolved_labels
        self.cells = cells
        self.now = datetime.now(UTC).isoformat(timespec="seconds")
        self.hints = 0
        self.samples: dict[tuple[str, str], list[int]] = {}
        for test_id, label, sample in cells:
            self.samples.setdefault((test_id, label), []).append(sample)
        self.models = {label for _, label in self.samples}
        self.cases = {test_id for test_id, _ in self.samples}
        self.keys = {question.ask: question.key for question in self.asked.questions}

    def labels(self, row: Row, name: str, *, has_quotes: bool) -> Iterator[Label | Problem]:
        """The labels of a row, and a problem for each unreadable one; nothing for a row that nobody filled in."""
        cells = dict(row.cells)
        for column, cell in cells.items() if has_quotes else ():
            if isinstance(cell, str) and AS_FORMULA.match(cell):
                cells[column] = cell.removeprefix("'")  # it marks text in a spreadsheet
        try:
            answers = list(self._answers(cells))
            if not answers:
                return
            shared = self._shared(cells)
        except _BadRowError as error:
            yield Problem(name, row.line, 1, str(error))
            return
        for key, value in answers:
            try:
                yield self._label(shared, key, value)
            except _BadRowError as error:
                yield Problem(name, row.line, 1, str(error))

    def _hint(self, name: str, choices: Collection[str]) -> str:
        """A suggestion, only for as many rows as are reported, because the search is slow."""
        self.hints += 1
        return did_you_mean(name, choices) if self.hints <= SHOWN_PROBLEMS else ""

    def _answers(self, cells: Mapping[str, object]) -> Iterator[tuple[str, object]]:
        """Questions and answers; an empty cell in a question's column is skipped."""
        if not self.layout.wide:
            yield _text(self.layout.value("question", cells)), self.layout.value("answer", cells)
        for key, column in self.layout.wide.items():
            value = cells.get(column)
            if value is not None and value != "":
                yield key, value

    def _shared(self, cells: Mapping[str, object]) -> dict[str, Any]:
        def text(field: str) -> str:
            return _text(self.layout.value(field, cells))

        test_id, rater, seconds = text("test_id"), text("rater"), self.layout.value("seconds", cells)
        if not test_id or not rater:
            raise _BadRowError("no rater" if test_id else "no case")
        if test_id not in self.cases:
            raise _BadRowError(f"this run has no case {test_id!r}{self._hint(test_id, self.cases)}")
        model = self._model(text("model_label"), test_id)
        sample = self._sample(self.layout.value("sample_index", cells), test_id, model)
        image = self.cells[test_id, model, sample]
        labeled_sha256 = text("artifact_sha256") or image
        if labeled_sha256 != image and image is not None:
            raise _BadRowError("belongs to an older image of this cell")
        return {
            "rater": rater,
            "test_id": test_id,
            "model_label": model,
            "sample_index": sample,
            "artifact_sha256": labeled_sha256,
            "other_sha256": text("other_sha256") or None,
            "other": self._other(text("other"), f"{self.run_id}@{model}"),
            "seconds": None if seconds is None else _number(seconds, "seconds"),
            "at": text("at") or self.now,
        }

    def _other(self, other: str, side: str) -> str | None:
        """The other side of a pair. Sides of this run must exist; those of another run are not known here."""
        run, label = split_run(other)
        if other == side:
            raise _BadRowError(f"compares {side} with itself")
        if other and run == self.run_id and label not in self.models:
            raise _BadRowError(f"this run has no model run {label!r}{self._hint(str(label), self.models)}")
        return other or None

    def _model(self, label: str, test_id: str) -> str:
        if not label and len(self.models) > 1:
            raise _BadRowError(f"no model run given, and this run has {len(self.models)}")
        label = label or next(iter(self.models))
        if label not in self.models:
            raise _BadRowError(f"this run has no model run {label!r}{self._hint(label, self.models)}")
        if (test_id, label) not in self.samples:
            raise _BadRowError(f"this run has no cell of {test_id!r} on {label!r}")
        return label

    def _sample(self, value: object, test_id: str, model: str) -> int:
        samples = self.samples[test_id, model]
        if value is None and len(samples) > 1:
            raise _BadRowError(f"no sample given, and {test_id!r} on {model!r} has {len(samples)}")
        sample = samples[0] if value is None else _number(value, "sample")
        if sample not in samples:
            raise _BadRowError(f"this run has no sample {sample:g} of {test_id!r} on {model!r}")
        return int(sample)

    def _label(self, shared: Mapping[str, Any], name: str, value: object) -> Label:
        key = name if self.asked.question(name) else self.keys.get(name, name)
        question = self.asked.question(key)
        pairs = {pair.key for pair in self.asked.pairs}
        if question is not None:
            if value is None or (isinstance(value, str) and not value.strip()):
                raise _BadRowError(f"{question.key}: no answer")
            answer = _typed(question, value)
            if message := question.answer_problem(answer):
                raise _BadRowError(f"{question.key}: {message}")
            if shared["other"] is not None:
                raise _BadRowError(f"{key}: a question about one image takes no 'other'")
        elif key in pairs or key.removesuffix(WHY) in pairs:
            answer = _pair_answer(key, value, shared["other"])
        else:
            raise _BadRowError(f"the suite has no question {name!r}{self._hint(name, {*pairs, *self.keys.values()})}")
        try:
            return Label(**shared, question=key, answer=answer, source="import")
        except ValidationError as error:
            part = error.errors(include_url=False)[0]
            raise _BadRowError(f"{part['loc'][0]}: {part['msg'].removeprefix('Value error, ')}") from None


def _typed(question: LabelQuestion, value: object) -> Any:
    """The value as the question's type, if it can be one."""
    if question.type == "tags":
        return question.in_order(_tags(value, question.choices))
    if question.type == "scale":
        with suppress(_BadRowError):
            return _number(value, "answer")
        return value
    if question.type == "yes_no":
        word = "" if isinstance(value, (list, dict)) else _text(value).lower()
        return word in _YES if word in (*_YES, *_NO) else value
    return question.in_order(_text(value))


def _pair_answer(key: str, value: object, other: str | None) -> str:
    text = _text(value)
    if other is None or "@" not in other:
        raise _BadRowError(f"{key}: a pair needs 'other': RUN_ID@LABEL of the second image")
    if key.endswith(WHY) and text:
        return text
    if text.lower() not in PAIR_ANSWERS:
        raise _BadRowError(f"{key}: {text!r} is not one of {', '.join(PAIR_ANSWERS)}")
    return text.lower()


def _tags(value: object, choices: Sequence[str]) -> object:
    """Tags from a list, a JSON list, or text separated by semicolons or commas."""
    if not isinstance(value, str):
        return value
    text = str(declared_word(value, choices)).strip()
    if text.startswith("[") and text not in choices:
        with suppress(ValueError, RecursionError):
            return json.loads(text)
        return value
    separator = ";" if ";" in text else ","
    return [text] if text in choices else [word.strip() for word in text.split(separator)]


def _text(value: object) -> str:
    """A cell as text; ``true`` and ``false`` for booleans. Raises ``_BadRowError`` for a list or mapping."""
    if isinstance(value, (list, dict)):
        raise _BadRowError(f"{value!r:.60} is not text")
    text = "" if value is None else str(value).strip()
    return text.lower() if isinstance(value, bool) else text


def _number(value: object, field: str) -> int | float:
    text = "" if isinstance(value, (bool, list, dict)) else str(value)
    with suppress(ValueError):
        number = float(text)
        if isfinite(number):
            return int(number) if number.is_integer() else number
    raise _BadRowError(f"{field}: {value!r} is not a number")


@dataclass(frozen=True, slots=True)
class Layout:
    """The column or fixed value of each label field, and the columns of questions."""

    columns: Mapping[str, str]
    fixed: Mapping[str, str]
    wide: Mapping[str, str]

    def has(self, field: str) -> bool:
        """Whether rows have values of a field."""
        return field in self.columns or field in self.fixed

    def value(self, field: str, cells: Mapping[str, object]) -> object:
        """The value of a field in a row, or ``None`` if it is empty."""
        if field in self.fixed:
            return self.fixed[field]
        value = cells.get(self.columns.get(field, ""))
        return None if isinstance(value, str) and not value.strip() else value


def find_layout(
    available: Collection[str], mapped: Mapping[str, str], fixed: Mapping[str, str], labels: Labels
) -> Layout:
    """Determines the layout of a file with the columns ``available``.

    ``mapped`` gives the column of a field or question, ``fixed`` the value of a field for all rows. Columns named
    like a field are recognized; without an answer column, so are columns named like a question. Raises ``UsageError``.
    """
    keys = [question.key for question in labels.questions]
    columns, wide = _mapped(mapped, keys, available)
    values: dict[str, str] = {}
    for name, value in fixed.items():
        if name not in _NAMES:
            raise UsageError(f"--set {name}: not a label field{did_you_mean(name, _NAMES)}")
        if _NAMES[name] in columns:
            raise UsageError(f"--set {name}: also given as --map")
        values[_NAMES[name]] = value
    for name in sorted(_NAMES, key=_SHORT_NAMES.__contains__):  # a whole name before a short one
        if name in available and _NAMES[name] not in values:
            columns.setdefault(_NAMES[name], name)
    if not wide and not {"answer"} & {*columns, *values}:
        wide = {key: key for key in keys if key in available}
    layout = Layout(columns, values, wide)
    for needed in ("test_id", "rater") if wide else ("test_id", "rater", "question", "answer"):
        if not layout.has(needed):
            raise UsageError(_missing(needed, keys, available))
    return layout


def _mapped(
    mapped: Mapping[str, str], keys: Collection[str], available: Collection[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The given columns of fields and of questions."""
    columns: dict[str, str] = {}
    wide: dict[str, str] = {}
    for name, column in mapped.items():
        if column not in available:
            if (other := other_spelling(column, available)) is not None:
                raise UsageError(f"--map {name}={column}: the file spells the column {other!r}")
            raise UsageError(f"--map {name}={column}: no such column{did_you_mean(column, available)}")
        if name not in _NAMES and name not in keys:
            raise UsageError(f"--map {name}: not a label field or a question{did_you_mean(name, {*_NAMES, *keys})}")
        (columns if name in _NAMES else wide)[_NAMES.get(name, name)] = column
    return columns, wide


def _missing(field: str, keys: Collection[str], available: Collection[str]) -> str:
    """What to do about a field without a column."""
    name = next((short for short, whole in _SHORT_NAMES.items() if whole == field), field)
    for spelling in (name, field):
        if (other := other_spelling(spelling, available)) is not None:
            return f"the file spells the column {other!r}: --map {name}={shlex.quote(other)} reads it"
    hint = f"--map {name}=COLUMN or --set {name}=VALUE sets it"
    if field in ("question", "answer") and keys:
        hint += f"; map the answers to a question with --map KEY=COLUMN (questions: {', '.join(sorted(keys))})"
    shown = ", ".join(repr(column)[:60] for column in sorted(available)[:_MAX_COLUMNS])
    more = f" and {len(available) - _MAX_COLUMNS} more" if len(available) > _MAX_COLUMNS else ""
    return f"no column {name!r}: {hint}. The file's columns: {shown}{more}"
