"""Reads a dataset of a suite: its file with variables in the path, joins and filters, and the checks of its columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visioneval.errors import Problem, SuiteError, TemplateError, UsageError
from visioneval.media.urls import is_url, public_address
from visioneval.suite.entries.datasets import Join, Rows, TableFile
from visioneval.suite.loading.datasets.fields import Misfit
from visioneval.suite.loading.datasets.filtering import filtered, unmatched_values
from visioneval.suite.loading.datasets.joining import joined
from visioneval.suite.loading.datasets.rows import Row, holds_images, image_column, missing_column
from visioneval.suite.loading.datasets.tables import located_table, read_cell_rows
from visioneval.suite.loading.datasets.templating import Variables, is_template
from visioneval.suite.loading.document import Document, Source
from visioneval.suite.loading.messages import NOTE, Loc
from visioneval.suite.loading.paths import Trust


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of a dataset after joins and filters, the name of its file in messages, and where its paths begin."""

    rows: Sequence[Row]
    path: str
    name: str
    base: Path | str


_File = tuple[list[Row], str, str]
"""The rows of a file, its path and its name in messages."""


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
        rows = self._all_joined(spec, file) if file else None
        if file is None or rows is None:
            return None
        for loc, column in _named_columns(spec):
            is_text = loc[0] != "fields" or not str(loc[1]).startswith("metadata")  # metadata can be anything
            problem = missing_column(rows, column) or (image_column(rows, column) if is_text else None)
            if loc not in unfit and problem:
                self.report(loc, problem)
        for loc, column in _images_in_templates(spec, rows):
            self.report(loc, holds_images(column))
        _, path, name = file
        if len(self.document.problems) == before:
            rows = self._filtered(rows, spec.filter, name)
        if len(self.document.problems) > before:
            return None
        return Table(rows, path, name, path if is_url(path) else (self.folder / path).parent)

    def report(self, loc: Loc, message: str, *, of_key: bool = False) -> None:
        """Adds a problem at a path below the dataset."""
        self.document.problems.append(Problem(*self.source.position((*self.loc, *loc), of_key=of_key), message))

    def _rows(self, file: TableFile, loc: Loc) -> _File | None:
        """Reads a file; ``None`` if it cannot be read, which is reported."""
        loc = (*loc, "path")
        try:
            written = self.variables.path(file.path)
            where: Path | str
            path, where, refusal = written, written, self._refusal(written)
            if refusal is None:
                path, where = located_table(written, self.folder)
                refusal = self._refusal(path)
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

    def _refusal(self, path: str) -> str | None:
        return self.trust.refusal(path, self.folder, remote=True)

    def _all_joined(self, spec: Rows, file: _File) -> list[Row] | None:
        """The rows with the columns of all joins; ``None`` if one fails, as its columns would seem to be missing."""
        rows, _, name = file
        before = len(self.document.problems)
        for index, join in enumerate(spec.join):
            rows = self._joined(rows, name, join, ("join", index))
        return rows if len(self.document.problems) == before else None

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
