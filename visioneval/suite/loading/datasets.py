"""Reads a dataset of a suite: its file with variables in the path, joins and filters, and the checks of its keys."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from jinja2 import TemplateSyntaxError, meta

from visioneval.errors import Problem, SuiteError, TemplateError, UsageError, count_of, did_you_mean
from visioneval.media.urls import is_url, public_address
from visioneval.suite.case import TestCase
from visioneval.suite.files import Join, Rows, TableFile, Trust
from visioneval.suite.loading.document import Document, Source
from visioneval.suite.loading.rows import (
    NUMBER,
    Row,
    filtered,
    holds_images,
    image_column,
    joined,
    missing_column,
    unmatched_values,
)
from visioneval.suite.loading.tables import located_table, read_cell_rows
from visioneval.suite.messages import NOTE, Loc, known_keys
from visioneval.suite.questions import GeckoQuestion
from visioneval.suite.remote import SECRET_NAME, environment_secrets
from visioneval.templates.render import render, text_sandbox
from visioneval.templates.steps import TooMuchWorkError


@lru_cache(maxsize=4096)
def is_template(text: str) -> bool:
    """Whether a text contains an expression or a statement."""
    return "{{" in text or "{%" in text


@lru_cache(maxsize=1024)
def uses_row(text: str) -> bool:
    """Whether a text is a template that reads ``row``."""
    if "row" not in text or not is_template(text):
        return False
    try:
        return "row" in meta.find_undeclared_variables(text_sandbox().parse(text))
    except TemplateSyntaxError:
        return True  # rendering it reports the error


@dataclass(slots=True)
class TemplateFaults:
    """The templates of a dataset that fail: each is one problem, at its own place, for however many rows it fails."""

    _first: dict[Loc, tuple[int, str]] = field(default_factory=dict)
    """The line of the first row, and what is wrong there."""
    _rows: Counter[Loc] = field(default_factory=Counter)
    _has_too_much_work: bool = False

    def add(self, loc: Loc, line: int, error: TemplateError) -> None:
        """Notes that the template at ``loc``, a path below the dataset, fails for the row in a line.

        Where one of them took too much work, the suite's budget is spent by it, and not by those that fail after it.
        """
        if isinstance(error, TooMuchWorkError):
            if error.is_of_suite and self._has_too_much_work and loc not in self._first:
                return
            self._has_too_much_work = True
        self._first.setdefault(loc, (line, f"{loc[1]}: {error}"))
        self._rows[loc] += 1

    def problems(self, name: str) -> Iterator[tuple[Loc, str]]:
        """What is wrong with each template for its first row in the file ``name``."""
        for loc, (line, message) in self._first.items():
            others = self._rows[loc] - 1
            more = f", and {count_of(others, 'more row')}" if others else ""
            yield loc, f"{message} (line {line} of {name}{more})"


class Variables:
    """The suite's variables, in the templates of datasets. Secret ones are left out, as runs store what is rendered."""

    def __init__(self, values: Any) -> None:
        declared = values if isinstance(values, dict) else {}
        secrets = environment_secrets()
        public = {
            name: value
            for name, value in declared.items()
            if not SECRET_NAME.fullmatch(str(name)) and not any(secret in str(value) for secret in secrets)
        }
        self._context = {**public, "vars": public}

    def path(self, text: str) -> str:
        """A path or URL with its variables replaced. Raises ``TemplateError``."""
        return render(text, self._context)

    def text(self, text: str, row: Row) -> str:
        """A text with values of ``row``. Raises ``TemplateError``."""
        return render(text, {**self._context, "row": {NUMBER: row.number, **row.cells}})

    def filled(self, value: Any, row: Row) -> Any:
        """A value with every text that reads ``row`` rendered. Raises ``TemplateError``."""
        if isinstance(value, str):
            return self.text(value, row) if uses_row(value) else value
        if isinstance(value, dict):
            return {key: self.filled(item, row) for key, item in value.items()}
        return [self.filled(item, row) for item in value] if isinstance(value, list) else value


OUTPUT_KEYS = frozenset({"output", "model"})
QUESTION_KEYS = frozenset({"questions", "add_questions"})
PIN_KEYS = frozenset({"case", "prompt", "questions"})
"""The keys of ``fields`` of a file of pinned questions."""

Misfit = tuple[Loc, str]
"""The path of a key below the dataset, and what is wrong with it."""


@cache
def _case_schema() -> Mapping[str, Any]:
    return TestCase.model_json_schema()


def case_field_problems(fields: Mapping[str, Any]) -> Iterator[Misfit]:
    """Each key of ``fields`` that is not a key of a case, or has a source that does not fit it."""
    for key, source in fields.items():
        steps = key.split(".")
        parents = (".".join(steps[:end]) for end in range(1, len(steps)))
        above = next((parent for parent in parents if parent in fields), None)
        if above:
            yield ("fields", key), f"{key!r} cannot have a column because {above!r} has one: remove one of them"
        elif message := _unknown_key(key):
            yield ("fields", key), message
        else:
            yield from _source_problems(key, source)


def pin_field_problems(fields: Mapping[str, Any]) -> Iterator[Misfit]:
    """Each key of ``fields`` that no file of pinned questions has, and missing ones."""
    for key, source in fields.items():
        if key not in PIN_KEYS:
            yield ("fields", key), f"a question file has no key {key!r}{did_you_mean(key, PIN_KEYS)}"
        else:
            yield from _source_problems(key, source)
    if "questions" not in fields or ("case" in fields) == ("prompt" in fields):
        yield ("fields",), "fields: map 'questions', and either 'case' or 'prompt'"


def _source_problems(key: str, source: Any) -> Iterator[Misfit]:
    if isinstance(source, list | tuple) and key not in ("id", "case", "tags"):
        yield ("fields", key), f"{key}: only an ID and tags can have a list of columns"
    elif isinstance(source, Mapping):
        yield from _mapping_problems(key, source)


def _mapping_problems(key: str, columns: Mapping[str, str]) -> Iterator[Misfit]:
    """What is wrong with a mapping of the keys of questions, or of a turn, to columns."""
    needed = "prompt" if key == "turns" else "question"
    if key != "turns" and key not in QUESTION_KEYS:
        yield ("fields", key), f"{key}: only questions and turns can have a mapping of keys to columns"
        return
    for name in columns:
        known = GeckoQuestion.model_fields
        if key == "turns" and (message := _unknown_key(name, ("turns", 0), "a turn")):
            yield ("fields", key, name), message
        elif key != "turns" and name not in known:
            yield ("fields", key, name), f"a question has no key {name!r}{did_you_mean(name, known)}"
    if needed not in columns:
        yield ("fields", key), f"{key}: map {needed!r}"


def default_problems(defaults: Mapping[str, Any]) -> Iterator[Misfit]:
    """Each key of ``defaults`` that is not a key of a case, or cannot be equal in all cases."""
    if "id" in defaults:
        yield ("defaults", "id"), "defaults: cases cannot share an ID: put a column or a template in fields"
    yield from _unknown_defaults(defaults, ())


def _unknown_defaults(values: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[Misfit]:
    known = known_keys(_case_schema(), above)
    for key, value in values.items():
        if key not in known:
            dotted = ".".join((*above, key))
            names = (".".join((*above, name)) for name in known)
            yield ("defaults", *above, key), f"a case has no key {dotted!r}{did_you_mean(dotted, names)}"
        elif isinstance(value, Mapping) and known_keys(_case_schema(), (*above, key)):
            yield from _unknown_defaults(value, (*above, key))


def _unknown_key(key: str, above: Loc = (), owner: str = "a case") -> str | None:
    steps = key.split(".")
    if (steps[0] == "metadata" and all(steps)) or (not above and key in TestCase.model_fields):
        return None  # without the schema, which takes longer than a small dataset
    for depth, step in enumerate(steps):
        known = known_keys(_case_schema(), (*above, *steps[:depth]))
        known |= OUTPUT_KEYS if len(steps) == 1 and not above else set()
        if step not in known:
            dotted = (".".join([*steps[:depth], name]) for name in known)
            return f"{owner} has no key {key!r}{did_you_mean(key, dotted)}"
    return None


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of a dataset after joins and filters, the name of its file in messages, and where its paths begin."""

    rows: Sequence[Row]
    path: str
    name: str
    base: Path | str


@dataclass(frozen=True, slots=True)
class DatasetEntry:
    """A dataset at ``loc`` of a file in ``folder``. Problems are added to ``document``."""

    document: Document
    trust: Trust
    source: Source
    loc: Loc
    folder: Path
    variables: Variables
    label: str = "dataset"

    def read(self, spec: Rows, misfits: Iterable[Misfit]) -> Table | None:
        """The rows to use; ``None`` if there are problems, all of which are reported.

        ``misfits`` are the keys of the dataset that are wrong whatever its file contains.
        """
        before = len(self.document.problems)
        unfit: set[Loc] = set()
        for loc, message in misfits:
            unfit.add(loc)
            self.report(loc, message, of_key=True)
        file = self._rows(spec, ())
        if file is None:
            return None
        rows, path, name = file
        before_joins = len(self.document.problems)
        for index, join in enumerate(spec.join):
            rows = self._joined(rows, name, join, ("join", index))
        if len(self.document.problems) > before_joins:
            return None  # the columns of a join would seem to be missing
        for loc, column in _named_columns(spec):
            is_text = loc[0] != "fields" or not str(loc[1]).startswith("metadata")  # metadata can be anything
            problem = missing_column(rows, column) or (image_column(rows, column) if is_text else None)
            if loc not in unfit and problem:
                self.report(loc, problem)
        for loc, column in _images_in_templates(spec, rows):
            self.report(loc, holds_images(column))
        if len(self.document.problems) == before:
            rows = self._filtered(rows, spec.filter, name)
        if len(self.document.problems) > before:
            return None
        return Table(rows, path, name, path if is_url(path) else (self.folder / path).parent)

    def report(self, loc: Loc, message: str, *, of_key: bool = False) -> None:
        """Adds a problem at a path below the dataset."""
        self.document.problems.append(Problem(*self.source.position((*self.loc, *loc), of_key=of_key), message))

    def _rows(self, file: TableFile, loc: Loc) -> tuple[list[Row], str, str] | None:
        """The rows of a file, its path and its name in messages; ``None`` if it cannot be read, which is reported."""
        loc = (*loc, "path")
        try:
            written = self.variables.path(file.path)
            where: Path | str
            path, where = written, written
            refusal = self.trust.refusal(written, self.folder, remote=True)
            if refusal is None:
                path, where = located_table(written, self.folder)
                refusal = self.trust.refusal(path, self.folder, remote=True)
        except (TemplateError, UsageError) as error:
            self.report(loc, f"{self.label}: {public_address(file.path)}: {error}")
            return None
        if refusal:
            self.report(loc, f"{self.label}: {refusal}")
            return None
        name = self.document.display_name(path, self.folder, self.trust.folder)
        try:
            return read_cell_rows(where, name, separator=file.separator), path, name
        except UsageError as error:
            self.report(loc, f"{self.label}: {public_address(path)}: {error}")
        except SuiteError as error:
            self.document.problems.extend(error.problems)
        return None

    def _joined(self, rows: list[Row], name: str, join: Join, loc: Loc) -> list[Row]:
        if join.many and join.name is None:
            self.report((*loc, "many"), "join: 'many' needs 'as', the name of the list")
            return rows
        file = self._rows(join, loc)
        if file is None:
            return rows
        others, _, other_name = file
        before = len(self.document.problems)
        for column, other_column in join.on.items():
            if message := missing_column(rows, column):
                self.report((*loc, "on"), f"join: {message}")
            if message := missing_column(others, other_column):
                self.report((*loc, "on"), f"join: {other_name}: {message}")
        if len(self.document.problems) > before:
            return rows
        return joined(rows, name, others, other_name, join, self._report_line)

    def _report_line(self, name: str, line: int, message: str) -> None:
        self.document.problems.append(Problem(name, line, 1, message))

    def _filtered(self, rows: list[Row], conditions: Mapping[str, Any], name: str) -> list[Row]:
        before = len(self.document.problems)
        for column, condition in conditions.items():
            if message := unmatched_values(rows, column, condition):
                self.report(("filter", column), f"filter: {message}")
        remaining = filtered(rows, conditions, lambda line, message: self._report_line(name, line, message))
        if not remaining and len(self.document.problems) == before:
            self.report(("filter",), "filter: no row meets all conditions")
        return remaining


def line_reporter(document: Document, name: str) -> Callable[[int, str], None]:
    """Adds problems with lines of the file ``name`` to ``document``."""
    return lambda line, message: document.problems.append(Problem(name, line, 1, message))


def note_python(document: Document, name: str, lines: Mapping[str, int]) -> None:
    """Notes the columns of the file ``name`` whose data in Python's notation was read, each with its first line."""
    for column, line in lines.items():
        message = f"{NOTE}the column {column!r} has Python's notation, as pandas writes it, and is read as data"
        document.notes.append(Problem(name, line, 1, message))


def _images_in_templates(spec: Rows, rows: Sequence[Row]) -> Iterator[tuple[Loc, str]]:
    """Every column of images or other binary data that a template reads as a whole, or that is not read at all."""
    binary = rows[0].binary if rows else frozenset()
    for key, source in spec.fields.items():
        if not isinstance(source, str) or not is_template(source):
            continue
        columns = set() if key.startswith("metadata") else rows[0].cells.keys()  # metadata can be anything
        for column in sorted(binary | columns) if rows else ():
            name = rf"""\brow(?:\.|\[['"]){re.escape(column)}\b"""
            shown = re.search(rf"""\{{\{{[^{{}}]*{name}(?:['"]\])?(?:[.\[]['"]?(\w+))?""", source)
            path = f"{column}.{shown[1]}" if shown and shown[1] else column
            if column in binary and re.search(name, source):
                yield ("fields", key), column
            elif column not in binary and shown and image_column(rows, path):
                yield ("fields", key), path


def _named_columns(spec: Rows) -> Iterator[tuple[Loc, str]]:
    """Every column that a dataset names, with its place below the dataset."""
    for key, source in spec.fields.items():
        if isinstance(source, Mapping):
            yield from ((("fields", key, name), column) for name, column in source.items())
        elif isinstance(source, list | tuple):
            yield from ((("fields", key, index), column) for index, column in enumerate(source))
        elif not is_template(source):
            yield ("fields", key), source
    yield from ((("group_by",), column) for column in spec.group_by)
    yield from ((("filter", column), column) for column in spec.filter)
