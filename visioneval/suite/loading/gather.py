"""Gathers the cases of a suite from its own text, case files and datasets, each with its origin."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from visioneval.errors import Problem, SuiteError, UsageError
from visioneval.media.urls import is_url
from visioneval.suite.cases.outputs import output_of_cell
from visioneval.suite.loading.datasets import (
    Row,
    case_of,
    field_problems,
    file_stem,
    missing_columns,
    read_cell_rows,
    row_id,
)
from visioneval.suite.loading.document import Document, Origin, Source
from visioneval.suite.loading.messages import Loc
from visioneval.suite.loading.paths import Trust, located, rebased_case
from visioneval.suite.loading.yaml_reader import decode, read_yaml
from visioneval.suite.model import CaseDataset, CaseFile
from visioneval.suite.output_of import with_inherited_tasks
from visioneval.types import TaskType

MAX_BYTES = 64 * 1024 * 1024


def read_bytes(path: Path) -> bytes:
    """Reads a YAML file. Raises ``UsageError`` if it cannot be read."""
    try:
        if path.is_dir():
            raise UsageError("is a folder: name a file in it")
        if path.exists() and not path.is_file():
            raise UsageError("is not a regular file")
        if path.stat().st_size > MAX_BYTES:
            raise UsageError(f"over the limit of {MAX_BYTES:,} bytes: move the cases to a dataset")
        return path.read_bytes()
    except OSError as error:
        raise UsageError((error.strerror or str(error)).lower()) from None
    except ValueError:
        raise UsageError("not a valid path") from None


def gather_cases(document: Document, trust: Trust) -> None:
    """Replaces ``cases`` by the cases of all files and sets the suite's task in cases without one."""
    entries = document.data.get("cases")
    if not isinstance(entries, list):
        return
    _Gatherer(document, trust).walk(document.source, entries, ("cases",), trust.folder)
    task = document.data.get("task")
    if task in tuple(TaskType):
        document.cases = [{"task": task, **case} if isinstance(case, dict) else case for case in document.cases]
    document.cases = with_inherited_tasks(document.cases)
    document.data = {**document.data, "cases": document.cases}


@dataclass(slots=True)
class _Gatherer:
    document: Document
    trust: Trust
    included: set[str] = field(default_factory=set)

    def walk(self, source: Source, entries: Sequence[Any], loc: Loc, folder: Path) -> None:
        """Adds the cases of the list at ``loc`` of a file in ``folder``."""
        for index, entry in enumerate(entries):
            entry_loc = (*loc, index)
            if isinstance(entry, dict) and "file" in entry and "id" not in entry:
                if self.fits(CaseFile, entry, source, entry_loc):
                    self.file(source, (*entry_loc, "file"), entry["file"], folder)
            elif isinstance(entry, dict) and "dataset" in entry and "id" not in entry:
                if self.fits(CaseDataset, entry, source, entry_loc):
                    self.dataset(source, (*entry_loc, "dataset"), entry["dataset"], folder)
            else:
                case = rebased_case(entry, folder, self.trust.folder) if isinstance(entry, dict) else entry
                self.document.cases.append(case)
                self.document.origins.append(Origin(source, entry_loc))

    def fits(self, model: type[CaseFile | CaseDataset], entry: Any, source: Source, loc: Loc) -> bool:
        try:
            model.model_validate(entry)
        except ValidationError as error:
            errors = error.errors(include_url=False)
            self.document.report_errors(errors, model.model_json_schema(), source, loc)
            return False
        return True

    def report(self, source: Source, loc: Loc, message: str, *, of_key: bool = False) -> None:
        self.document.problems.append(Problem(*source.position(loc, of_key=of_key), message))

    def file(self, source: Source, loc: Loc, name: str, folder: Path) -> None:
        path = Path(os.path.realpath(folder / name))
        if refusal := self.trust.refusal(name, folder):
            return self.report(source, loc, f"file: {refusal}")
        if str(path) in self.included:
            return self.report(source, loc, f"file: {name} is already included")
        self.included.add(str(path))
        display_name = self.document.display_name(name, folder, self.trust.folder)
        try:
            inner = Source(display_name, decode(read_bytes(folder / name), display_name))
            cases = read_yaml(inner.text, display_name)
        except UsageError as error:
            return self.report(source, loc, f"file: {name}: {error}")
        except SuiteError as error:
            self.document.problems.extend(error.problems)
            return None
        if not isinstance(cases, list):
            return self.report(inner, (), "a case file must be a list: '- id: ...'")
        return self.walk(inner, cases, (), (folder / name).parent)

    def dataset(self, source: Source, loc: Loc, spec: Mapping[str, Any], folder: Path) -> None:
        name, fields = spec["path"], spec["fields"]
        if refusal := self.trust.refusal(name, folder, remote=True):
            return self.report(source, (*loc, "path"), f"dataset: {refusal}")
        bad_fields = list(field_problems(fields))
        for key, message in bad_fields:
            self.report(source, (*loc, "fields", key), message, of_key=True)
        display_name = self.document.display_name(name, folder, self.trust.folder)
        try:
            rows = read_cell_rows(located(name, folder), display_name)
        except UsageError as error:
            return self.report(source, (*loc, "path"), f"dataset: {name}: {error}")
        except SuiteError as error:
            self.document.problems.extend(error.problems)
            return None
        missing = list(missing_columns(rows, fields))
        for key, message in missing:
            self.report(source, (*loc, "fields", key), message)
        if not bad_fields and not missing:
            self.rows(rows, spec, display_name, folder)
        return None

    def rows(self, rows: Sequence[Row], spec: Mapping[str, Any], name: str, folder: Path) -> None:
        base = name if is_url(name) else (folder / spec["path"]).parent
        for line, case in _cases_of_rows(self.document, rows, spec, name):
            self.document.cases.append(rebased_case(case, base, self.trust.folder))
            self.document.origins.append(Origin(name, line=line))


def _cases_of_rows(
    document: Document, rows: Sequence[Row], spec: Mapping[str, Any], name: str
) -> Iterator[tuple[int, dict[str, Any]]]:
    """One case per id, with its outputs by label in the order of the rows."""
    fields: Mapping[str, str] = spec["fields"]
    cases: dict[str, tuple[int, dict[str, Any]]] = {}
    images: dict[str, dict[str, list[Any]]] = {}
    for row in rows:
        key = row_id(row, fields)
        if not key:
            document.problems.append(Problem(name, row.line, 1, "the row has no id and no prompt: fill in one of them"))
            continue
        case = case_of(row, fields)
        line, first = cases.setdefault(key, (row.line, case))
        if different := sorted(k for k in case.keys() | first.keys() if case.get(k) != first.get(k)):
            message = f"{', '.join(different)} of {key!r} differs from line {line}: rows of the same case must match"
            document.problems.append(Problem(name, row.line, 1, message))
        label = row.cells.get(fields["model"]) if "model" in fields else file_stem(name)
        if "output" in fields and label not in (None, ""):
            image = output_of_cell(row.cells.get(fields["output"]), f"{spec['path']}:{row.line}")
            images.setdefault(key, {}).setdefault(str(label), []).append(image)
    for key, (line, case) in cases.items():
        yield line, {**case, "outputs": images[key]} if key in images else case
