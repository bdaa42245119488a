"""Imports labels from files. Ambiguous rows are reported and skipped, never guessed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from visioneval.analysis.run_lookup import Warn, read_run
from visioneval.errors import SHOWN_PROBLEMS, ExitCode, Problem, UsageError
from visioneval.label.layout import Layout, find_layout
from visioneval.records.labels import AS_FORMULA, LABELS, PAIR_ANSWERS, Label, append_labels, read_labels
from visioneval.records.model import CellKey
from visioneval.suite.cases.outputs import split_run
from visioneval.suite.labels import WHY, LabelQuestion, Labels
from visioneval.suite.loading.datasets.rows import Row
from visioneval.suite.loading.datasets.tables import scan_rows
from visioneval.suite.loading.messages import did_you_mean

_YES, _NO = ("true", "yes", "1"), ("false", "no", "0")


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


@dataclass(frozen=True, slots=True)
class Target:
    """The run that labels belong to: its questions, its cells with their image hashes, and its labels."""

    run_id: str
    asked: Labels
    cells: Mapping[CellKey, str | None]
    labels: Sequence[Label]


def import_into_run(
    path: Path, run: str, runs: Path, mapped: Mapping[str, str], fixed: Mapping[str, str], warn: Warn
) -> tuple[Path, Imported]:
    """Adds the labels of a file to a run, as ``import_labels`` reads them. Returns the run's folder and the result."""
    folder, info, records = read_run(run, runs, warn)
    images = {record.cell: record.artifact_sha256 for record in records}
    target = Target(info.run_id, info.selected_suite.resolved_labels, images, read_labels(folder / LABELS))
    result = import_labels(path, target, mapped, fixed, now=datetime.now(UTC).isoformat(timespec="seconds"))
    append_labels(folder / LABELS, result.labels)
    return folder, result


def import_labels(
    path: Path, target: Target, mapped: Mapping[str, str], fixed: Mapping[str, str], now: str
) -> Imported:
    """Reads a JSONL, CSV or TSV file of labels.

    ``mapped`` and ``fixed`` are as in ``find_layout``; ``now`` is the time of rows without one. Importing a
    file again adds only new labels. Raises ``UsageError`` and ``SuiteError`` for an unreadable file or missing
    columns.
    """
    try:
        rows, problems = _rows(path)
        result = Imported(problems=problems)
        if not rows:
            return result
        layout = find_layout({column for row in rows for column in row.cells}, mapped, fixed, target.asked)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    reader = _Reader(layout, target, now)
    has_times = "at" in layout.columns or "at" in layout.fixed
    has_hashes = "artifact_sha256" in layout.columns or "artifact_sha256" in layout.fixed
    deduplicator = _Deduplicator(target.labels, has_times=has_times, has_hashes=has_hashes)
    for row in rows:
        for label in reader.labels(row, str(path)):
            if isinstance(label, Problem):
                result.problems.append(label)
            elif deduplicator.is_duplicate(label):
                result.known += 1
            else:
                result.labels.append(label)
    result.again = deduplicator.again
    return result


def _rows(path: Path) -> tuple[list[Row], list[Problem]]:
    scanned = list(scan_rows(path, str(path)))
    if not scanned:
        raise UsageError("the file has no rows")
    table = path.suffix.lower() in (".csv", ".tsv")
    rows = [
        Row(
            row.line, {name: _strip_apostrophe(cell) if table else cell for name, cell in row.cells.items()}, row.number
        )
        for row in scanned
        if isinstance(row, Row)
    ]
    return rows, [problem for problem in scanned if isinstance(problem, Problem)]


def _strip_apostrophe(cell: object) -> object:
    """Removes the apostrophe that marks text in a spreadsheet."""
    return cell[1:] if isinstance(cell, str) and AS_FORMULA.match(cell) and cell.startswith("'") else cell


class _Deduplicator:
    """Filters labels that a run already has. With times, equal answers at the same time are duplicates.

    Without times, each earlier imported label matches one equal row.
    """

    def __init__(self, labels: Sequence[Label], *, has_times: bool, has_hashes: bool) -> None:
        self._has_times = has_times
        self._has_hashes = (
            has_hashes  # else rows get the current image's hash, which must not make them new after a regeneration
        )
        self._existing = Counter(self._identity(label) for label in labels if has_times or label.source == "import")
        self._added: set[tuple[Any, ...]] = set()
        self.again = 0

    def is_duplicate(self, label: Label) -> bool:
        """Whether the run already has this label; records it otherwise."""
        identity = self._identity(label)
        if self._existing[identity] > 0 or (self._has_times and identity in self._added):
            self._existing[identity] -= not self._has_times
            return True
        self.again += identity in self._added
        self._added.add(identity)
        return False

    def _identity(self, label: Label) -> tuple[Any, ...]:
        at = label.at if self._has_times else None
        return (*label.key, type(label.answer), label.answer, label.artifact_sha256 if self._has_hashes else None, at)


class _Reader:
    """Converts rows to labels."""

    def __init__(self, layout: Layout, target: Target, now: str) -> None:
        self.layout = layout
        self.target = target
        self.now = now
        self.hints = 0
        self.samples: dict[tuple[str, str], list[int]] = {}
        for test_id, label, sample in target.cells:
            self.samples.setdefault((test_id, label), []).append(sample)
        self.models = {label for _, label in self.samples}
        self.cases = {test_id for test_id, _ in self.samples}
        self.by_text = {question.ask: question.key for question in target.asked.questions}

    def labels(self, row: Row, name: str) -> Iterator[Label | Problem]:
        """The labels of a row, and a problem for each unreadable one; nothing for a row that nobody filled in."""
        if self.layout.wide and not any(self._answers(row)):
            return
        try:
            shared = self._shared(row)
        except _BadRowError as error:
            yield Problem(name, row.line, 1, str(error))
            return
        for key, value in self._answers(row):
            try:
                yield self._label(shared, key, value)
            except _BadRowError as error:
                yield Problem(name, row.line, 1, str(error))

    def _hint(self, name: str, choices: Collection[str]) -> str:
        """A suggestion, only for as many rows as are reported, because the search is slow."""
        self.hints += 1
        return did_you_mean(name, choices) if self.hints <= SHOWN_PROBLEMS else ""

    def _answers(self, row: Row) -> Iterator[tuple[str, object]]:
        """Questions and answers; an empty cell in a question's column is skipped."""
        if not self.layout.wide:
            yield _text(self.layout.value("question", row.cells)), self.layout.value("answer", row.cells)
        for key, column in self.layout.wide.items():
            value = row.cells.get(column)
            if value is not None and value != "":
                yield key, value

    def _shared(self, row: Row) -> dict[str, Any]:
        value_of = self.layout.value
        test_id = _text(value_of("test_id", row.cells))
        if not test_id:
            raise _BadRowError("no case")
        if test_id not in self.cases:
            raise _BadRowError(f"this run has no case {test_id!r}{self._hint(test_id, self.cases)}")
        rater = _text(value_of("rater", row.cells))
        if not rater:
            raise _BadRowError("no rater")
        model = self._model(_text(value_of("model_label", row.cells)), test_id)
        seconds = value_of("seconds", row.cells)
        sample = self._sample(value_of("sample_index", row.cells), test_id, model)
        image = self.target.cells[test_id, model, sample]
        labeled_sha256 = _text(value_of("artifact_sha256", row.cells)) or image
        if labeled_sha256 != image and image is not None:
            raise _BadRowError("belongs to an older image of this cell")
        return {
            "rater": rater,
            "test_id": test_id,
            "model_label": model,
            "sample_index": sample,
            "artifact_sha256": labeled_sha256,
            "other_sha256": _text(value_of("other_sha256", row.cells)) or None,
            "other": self._other(_text(value_of("other", row.cells)), f"{self.target.run_id}@{model}"),
            "seconds": None if seconds is None else _number(seconds, "seconds"),
            "at": _text(value_of("at", row.cells)) or self.now,
        }

    def _other(self, other: str, side: str) -> str | None:
        """The other side of a pair. Sides of this run must exist; those of another run are not known here."""
        if not other:
            return None
        run, label = split_run(other)
        if other == side:
            raise _BadRowError(f"compares {side} with itself")
        if run == self.target.run_id and label not in self.models:
            raise _BadRowError(f"this run has no model run {label!r}{self._hint(str(label), self.models)}")
        return other

    def _model(self, label: str, test_id: str) -> str:
        if not label:
            if len(self.models) > 1:
                raise _BadRowError(f"no model run given, and this run has {len(self.models)}")
            return next(iter(self.models))
        if label not in self.models:
            raise _BadRowError(f"this run has no model run {label!r}{self._hint(label, self.models)}")
        if (test_id, label) not in self.samples:
            raise _BadRowError(f"this run has no cell of {test_id!r} on {label!r}")
        return label

    def _sample(self, value: object, test_id: str, model: str) -> int:
        samples = self.samples.get((test_id, model), [])
        if value is None:
            if len(samples) != 1:
                raise _BadRowError(f"no sample given, and {test_id!r} on {model!r} has {len(samples)}")
            return samples[0]
        sample = _number(value, "sample")
        if sample not in samples:
            raise _BadRowError(f"this run has no sample {sample:g} of {test_id!r} on {model!r}")
        return int(sample)

    def _label(self, shared: Mapping[str, Any], name: str, value: object) -> Label:
        labels = self.target.asked
        key = name if labels.question(name) else self.by_text.get(name, name)
        question = labels.question(key)
        pairs = {pair.key for pair in labels.pairs}
        if question is not None:
            answer = _answer(question, value)
            if shared["other"] is not None:
                raise _BadRowError(f"{key}: a question about one image takes no 'other'")
        elif key in pairs or key.removesuffix(WHY) in pairs:
            answer = _pair_answer(key, value, shared["other"])
        else:
            keys = {*pairs, *(entry.key for entry in labels.questions)}
            raise _BadRowError(f"the suite has no question {name!r}{self._hint(name, keys)}")
        try:
            return Label(**shared, question=key, answer=answer, source="import")
        except ValidationError as error:
            part = error.errors(include_url=False)[0]
            raise _BadRowError(f"{part['loc'][0]}: {part['msg'].removeprefix('Value error, ')}") from None


def _answer(question: LabelQuestion, value: object) -> Any:
    """Converts a cell, which may be text, to an answer of the question's type."""
    if value is None or (isinstance(value, str) and not value.strip()):
        raise _BadRowError(f"{question.key}: no answer")
    answer = _tags(value, question.choices) if question.type == "tags" else _AS.get(question.type, _text)(value)
    if message := question.answer_problem(answer):
        raise _BadRowError(f"{question.key}: {message}")
    return answer


def _pair_answer(key: str, value: object, other: str | None) -> str:
    text = _text(value)
    if other is None or "@" not in other:
        raise _BadRowError(f"{key}: a pair needs 'other': RUN_ID@LABEL of the second image")
    if key.endswith(WHY) and text:
        return text
    if text.lower() not in PAIR_ANSWERS:
        raise _BadRowError(f"{key}: {text!r} is not one of {', '.join(PAIR_ANSWERS)}")
    return text.lower()


def _yes_or_no(value: object) -> object:
    if isinstance(value, (list, dict)):
        return value
    text = _text(value).lower()
    return text in _YES if text in (*_YES, *_NO) else value


def _on_scale(value: object) -> object:
    with suppress(_BadRowError):
        return _number(value, "answer")
    return value


_AS = {"yes_no": _yes_or_no, "scale": _on_scale}


def _tags(value: object, choices: Sequence[str]) -> Any:
    """Tags in the order of the suite, from a list, a JSON list, or text separated by semicolons or commas."""
    if isinstance(value, str):
        text = value.strip()
        if text in choices:
            value = [text]
        elif text.startswith("["):
            with suppress(ValueError, RecursionError):
                value = json.loads(text)
        else:
            value = [word.strip() for word in text.split(";" if ";" in text else ",")]
    if not isinstance(value, list) or any(tag not in choices for tag in value):
        return value
    return tuple(sorted(value, key=choices.index))


def _text(value: object) -> str:
    """A cell as text; ``true`` and ``false`` for booleans. Raises ``_BadRowError`` for a list or mapping."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, dict)):
        raise _BadRowError(f"{value!r:.60} is not text")
    return str(value).strip()


def _number(value: object, field: str) -> int | float:
    text = "" if isinstance(value, (bool, list, dict)) else str(value)
    with suppress(ValueError):
        number = float(text)
        if isfinite(number):
            return int(number) if number.is_integer() else number
    raise _BadRowError(f"{field}: {value!r} is not a number")
