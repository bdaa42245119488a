"""The cases of a suite, from its own text, from files of cases and from datasets, each with where it was written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from visioneval.errors import Problem, SuiteError, UsageError
from visioneval.media.urls import is_url
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
from visioneval.suite.output_of import shared_tasks
from visioneval.suite.outputs import output_of_cell
from visioneval.types import TaskType

MAX_BYTES = 64 * 1024 * 1024


def read_bytes(path: Path) -> bytes:
    """A file of YAML. Raises ``UsageError`` in one line where it cannot be read."""
    try:
        if path.is_dir():
            raise UsageError("is a directory; name the file in it")
        if path.exists() and not path.is_file():
            raise UsageError("is not a regular file")
        if path.stat().st_size > MAX_BYTES:
            raise UsageError(f"over the limit of {MAX_BYTES:,} bytes; put the cases in a dataset")
        return path.read_bytes()
    except OSError as error:
        raise UsageError((error.strerror or str(error)).lower()) from None
    except ValueError:
        raise UsageError("not a path") from None


def gather_cases(document: Document, trust: Trust) -> None:
    """Replaces ``cases`` by the cases of all files, with the suite's task in each that states none."""
    entries = document.data.get("cases")
    if not isinstance(entries, list):
        return
    _Gatherer(document, trust).walk(document.source, entries, ("cases",), trust.folder)
    task = document.data.get("task")
    if task in tuple(TaskType):
        document.cases = [{"task": task, **case} if isinstance(case, dict) else case for case in document.cases]
    document.cases = shared_tasks(document.cases)
    document.data = {**document.data, "cases": document.cases}


@dataclass(slots=True)
class _Gatherer:
    document: Document
    trust: Trust
    included: set[str] = field(default_factory=set)

    def walk(self, source: Source, entries: Sequence[Any], loc: Loc, folder: Path) -> None:
        """Takes the cases of a list that stands at ``loc`` of a file in ``folder``."""
        for index, entry in enumerate(entries):
            here = (*loc, index)
            if isinstance(entry, dict) and "file" in entry and "id" not in entry:
                if self.fits(CaseFile, entry, source, here):
                    self.file(source, (*here, "file"), entry["file"], folder)
            elif isinstance(entry, dict) and "dataset" in entry and "id" not in entry:
                if self.fits(CaseDataset, entry, source, here):
                    self.dataset(source, (*here, "dataset"), entry["dataset"], folder)
            else:
                case = rebased_case(entry, folder, self.trust.folder) if isinstance(entry, dict) else entry
                self.document.cases.append(case)
                self.document.origins.append(Origin(source, here))

    def fits(self, model: type[CaseFile | CaseDataset], entry: Any, source: Source, loc: Loc) -> bool:
        try:
            model.model_validate(entry)
        except ValidationError as error:
            errors = error.errors(include_url=False)
            self.document.report_misfits(errors, model.model_json_schema(), source, loc)
            return False
        return True

    def report(self, source: Source, loc: Loc, message: str, *, of_key: bool = False) -> None:
        self.document.problems.append(Problem(*source.place(loc, of_key=of_key), message))

    def file(self, source: Source, loc: Loc, name: str, folder: Path) -> None:
        path = Path(os.path.realpath(folder / name))
        if refusal := self.trust.refusal(name, folder):
            return self.report(source, loc, f"file: {refusal}")
        if str(path) in self.included:
            return self.report(source, loc, f"file: {name} is included already, here or further up")
        self.included.add(str(path))
        shown = self.document.shown(name, folder, self.trust.folder)
        try:
            inner = Source(shown, decode(read_bytes(folder / name), shown))
            cases = read_yaml(inner.text, shown)
        except UsageError as error:
            return self.report(source, loc, f"file: {name}: {error}")
        except SuiteError as error:
            self.document.problems.extend(error.problems)
            return None
        if not isinstance(cases, list):
            return self.report(inner, (), "a file of cases is a list: '- id: ...'")
        return self.walk(inner, cases, (), (folder / name).parent)

    def dataset(self, source: Source, loc: Loc, spec: Mapping[str, Any], folder: Path) -> None:
        name, fields = spec["path"], spec["fields"]
        if refusal := self.trust.refusal(name, folder, remote=True):
            return self.report(source, (*loc, "path"), f"dataset: {refusal}")
        wrong = list(field_problems(fields))
        for key, message in wrong:
            self.report(source, (*loc, "fields", key), message, of_key=True)
        shown = self.document.shown(name, folder, self.trust.folder)
        try:
            rows = read_cell_rows(located(name, folder), shown)
        except UsageError as error:
            return self.report(source, (*loc, "path"), f"dataset: {name}: {error}")
        except SuiteError as error:
            self.document.problems.extend(error.problems)
            return None
        missing = list(missing_columns(rows, fields))
        for key, message in missing:
            self.report(source, (*loc, "fields", key), message)
        if not wrong and not missing:
            self.rows(rows, spec, shown, folder)
        return None

    def rows(self, rows: Sequence[Row], spec: Mapping[str, Any], name: str, folder: Path) -> None:
        start = name if is_url(name) else (folder / spec["path"]).parent
        for line, case in _cases_of_rows(self.document, rows, spec, name):
            self.document.cases.append(rebased_case(case, start, self.trust.folder))
            self.document.origins.append(Origin(name, line=line))


def _cases_of_rows(
    document: Document, rows: Sequence[Row], spec: Mapping[str, Any], name: str
) -> Iterator[tuple[int, dict[str, Any]]]:
    """One case per id; its images by label, in the order of the rows."""
    fields: Mapping[str, str] = spec["fields"]
    cases: dict[str, tuple[int, dict[str, Any]]] = {}
    images: dict[str, dict[str, list[Any]]] = {}
    for row in rows:
        key = row_id(row, fields)
        if not key:
            document.problems.append(Problem(name, row.line, 1, "the row has neither an id nor a prompt"))
            continue
        case = case_of(row, fields)
        line, first = cases.setdefault(key, (row.line, case))
        if differs := sorted(k for k in case.keys() | first.keys() if case.get(k) != first.get(k)):
            message = f"{', '.join(differs)} of {key!r}: not what line {line} says"
            document.problems.append(Problem(name, row.line, 1, message))
        label = row.cells.get(fields["model"]) if "model" in fields else file_stem(name)
        if "output" in fields and label not in (None, ""):
            image = output_of_cell(row.cells.get(fields["output"]), f"{spec['path']}:{row.line}")
            images.setdefault(key, {}).setdefault(str(label), []).append(image)
    for key, (line, case) in cases.items():
        yield line, {**case, "outputs": images[key]} if key in images else case
