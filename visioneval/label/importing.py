"""Labels that were made elsewhere, row by row: what cannot be read for certain is named and skipped, never guessed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from visioneval.errors import SHOWN_PROBLEMS, Problem, UsageError
from visioneval.label.layout import Layout, find_layout
from visioneval.records.labels import AS_FORMULA, PAIR_ANSWERS, Label
from visioneval.records.model import CellKey
from visioneval.suite.labels import WHY, LabelQuestion, Labels
from visioneval.suite.loading.datasets import Row, scan_rows
from visioneval.suite.loading.messages import did_you_mean

_YES, _NO = ("true", "yes", "1"), ("false", "no", "0")


class _BadRowError(Exception):
    """Why a row, or one of its answers, is no label."""


@dataclass(slots=True)
class Imported:
    """What came of a file: new labels, those that were there before, and what is wrong with the rest.

    ``again`` counts the new ones that say what another row has said already, without a time that tells them apart.
    """

    labels: list[Label] = field(default_factory=list)
    known: int = 0
    again: int = 0
    problems: list[Problem] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Target:
    """The run that labels are for: what its suite asks, its cells with their images' hashes, the labels it has."""

    asked: Labels
    cells: Mapping[CellKey, str | None]
    labels: Sequence[Label]


def import_labels(
    path: Path, target: Target, mapped: Mapping[str, str], fixed: Mapping[str, str], now: str
) -> Imported:
    """Reads a JSONL, CSV or TSV file of labels.

    ``mapped`` and ``fixed`` are as in ``find_layout``; ``now`` is when an answer was given where no row says it. A file
    that is imported again adds only what is new in it. Raises ``UsageError`` and ``SuiteError`` for a file that cannot
    be read at all, or whose columns do not say enough.
    """
    try:
        rows, problems = _rows(path)
        found = Imported(problems=problems)
        if not rows:
            return found
        layout = find_layout({column for row in rows for column in row.cells}, mapped, fixed, target.asked)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    reader = _Reader(layout, target, now)
    timed = "at" in layout.columns or "at" in layout.fixed
    hashed = "artifact_sha256" in layout.columns or "artifact_sha256" in layout.fixed
    sieve = _Sieve(target.labels, timed=timed, hashed=hashed)
    for row in rows:
        for one in reader.labels(row, str(path)):
            if isinstance(one, Problem):
                found.problems.append(one)
            elif sieve.knows(one):
                found.known += 1
            else:
                found.labels.append(one)
    found.again = sieve.again
    return found


def _rows(path: Path) -> tuple[list[Row], list[Problem]]:
    read = list(scan_rows(path, str(path)))
    if not read:
        raise UsageError("the file has no rows")
    table = path.suffix.lower() in (".csv", ".tsv")
    rows = [
        Row(row.line, {name: _plain(cell) if table else cell for name, cell in row.cells.items()})
        for row in read
        if isinstance(row, Row)
    ]
    return rows, [bad for bad in read if isinstance(bad, Problem)]


def _plain(cell: object) -> object:
    """A cell of a table without the sign that keeps a spreadsheet from taking it for a formula."""
    return cell[1:] if isinstance(cell, str) and AS_FORMULA.match(cell) and cell.startswith("'") else cell


class _Sieve:
    """Keeps back what a run has already. With times an answer of the same moment is the same answer, from wherever.

    Without them it is the same as one that was imported before, each of those being good for one row.
    """

    def __init__(self, labels: Sequence[Label], *, timed: bool, hashed: bool) -> None:
        self._timed = timed
        self._hashed = hashed  # else every row got the hash of today's image, and is no news after a new generation
        self._before = Counter(self._same(label) for label in labels if timed or label.source == "import")
        self._taken: set[tuple[Any, ...]] = set()
        self.again = 0

    def knows(self, label: Label) -> bool:
        """Whether a label of the file is there already; one that is not is taken in."""
        same = self._same(label)
        if self._before[same] > 0 or (self._timed and same in self._taken):
            self._before[same] -= not self._timed
            return True
        self.again += same in self._taken
        self._taken.add(same)
        return False

    def _same(self, label: Label) -> tuple[Any, ...]:
        at = label.at if self._timed else None
        return (*label.key, type(label.answer), label.answer, label.artifact_sha256 if self._hashed else None, at)


class _Reader:
    """Turns rows into labels."""

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
        """Every label of a row, and in place of those that cannot be read what is wrong."""
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

    def _hint(self, word: str, known: Collection[str]) -> str:
        """What may have been meant, for as many rows as are told of: to look for it takes a while."""
        self.hints += 1
        return did_you_mean(word, known) if self.hints <= SHOWN_PROBLEMS else ""

    def _answers(self, row: Row) -> Iterator[tuple[str, object]]:
        """Questions and answers; an empty cell of a question's own column is no answer."""
        if not self.layout.wide:
            yield _text(self.layout.value("question", row.cells)), self.layout.value("answer", row.cells)
        for key, column in self.layout.wide.items():
            value = row.cells.get(column)
            if value is not None and value != "":
                yield key, value

    def _shared(self, row: Row) -> dict[str, Any]:
        say = self.layout.value
        test_id = _text(say("test_id", row.cells))
        if not test_id:
            raise _BadRowError("names no case")
        if test_id not in self.cases:
            raise _BadRowError(f"this run has no case {test_id!r}{self._hint(test_id, self.cases)}")
        rater = _text(say("rater", row.cells))
        if not rater:
            raise _BadRowError("names no rater")
        model = self._model(_text(say("model_label", row.cells)), test_id)
        seconds = say("seconds", row.cells)
        sample = self._sample(say("sample_index", row.cells), test_id, model)
        image = self.target.cells[test_id, model, sample]
        seen = _text(say("artifact_sha256", row.cells)) or image
        if seen != image and image is not None:
            raise _BadRowError("is about another image of this cell, which was generated again since")
        return {
            "rater": rater,
            "test_id": test_id,
            "model_label": model,
            "sample_index": sample,
            "artifact_sha256": seen,
            "other_sha256": _text(say("other_sha256", row.cells)) or None,
            "other": _text(say("other", row.cells)) or None,
            "seconds": None if seconds is None else _number(seconds, "seconds"),
            "at": _text(say("at", row.cells)) or self.now,
        }

    def _model(self, label: str, test_id: str) -> str:
        if not label:
            if len(self.models) > 1:
                raise _BadRowError(f"names no model run, and this run has {len(self.models)}")
            return next(iter(self.models))
        if label not in self.models:
            raise _BadRowError(f"this run has no model run {label!r}{self._hint(label, self.models)}")
        if (test_id, label) not in self.samples:
            raise _BadRowError(f"this run has no cell of {test_id!r} on {label!r}")
        return label

    def _sample(self, value: object, test_id: str, model: str) -> int:
        have = self.samples.get((test_id, model), [])
        if value is None:
            if len(have) != 1:
                raise _BadRowError(f"names no sample, and {test_id!r} on {model!r} has {len(have)}")
            return have[0]
        sample = _number(value, "sample")
        if sample not in have:
            raise _BadRowError(f"this run has no sample {sample:g} of {test_id!r} on {model!r}")
        return int(sample)

    def _label(self, shared: Mapping[str, Any], named: str, value: object) -> Label:
        asked = self.target.asked
        key = named if asked.question(named) else self.by_text.get(named, named)
        question = asked.question(key)
        pairs = {pair.key for pair in asked.pairs}
        if question is not None:
            answer = _answer(question, value)
            if shared["other"] is not None:
                raise _BadRowError(f"{key}: a question about one image has no 'other'")
        elif key in pairs or key.removesuffix(WHY) in pairs:
            answer = _pair_answer(key, value, shared["other"])
        else:
            known = {*pairs, *(each.key for each in asked.questions)}
            raise _BadRowError(f"the suite asks no question {named!r}{self._hint(named, known)}")
        try:
            return Label(**shared, question=key, answer=answer, source="import")
        except ValidationError as error:
            part = error.errors(include_url=False)[0]
            raise _BadRowError(f"{part['loc'][0]}: {part['msg'].removeprefix('Value error, ')}") from None


def _answer(question: LabelQuestion, value: object) -> Any:
    """An answer of the question's type, from a cell in which everything may be text."""
    if value is None or (isinstance(value, str) and not value.strip()):
        raise _BadRowError(f"{question.key}: no answer")
    said = _tags(value, question.choices) if question.type == "tags" else _AS.get(question.type, _text)(value)
    if message := question.answer_problem(said):
        raise _BadRowError(f"{question.key}: {message}")
    return said


def _pair_answer(key: str, value: object, other: str | None) -> str:
    text = _text(value)
    if other is None or "@" not in other:
        raise _BadRowError(f"{key}: a pair needs 'other': RUN_ID@label of the second image")
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
    """Tags in the suite's order, from a list, a list as JSON, or words between semicolons or commas."""
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
    """A cell as text, or ``_BadRowError``; JSON writes a yes as ``true``."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, dict)):
        raise _BadRowError(f"{value!r:.60} is not a text")
    return str(value).strip()


def _number(value: object, what: str) -> int | float:
    text = "" if isinstance(value, (bool, list, dict)) else str(value)
    with suppress(ValueError):
        number = float(text)
        if isfinite(number):
            return int(number) if number.is_integer() else number
    raise _BadRowError(f"{what}: {value!r} is not a number")
