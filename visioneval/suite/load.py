"""From a file to a checked suite, or to every problem in it with its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from visioneval.errors import Problem, SuiteError, UsageError
from visioneval.suite import check
from visioneval.suite.datasets import Row, case_of, missing_columns, read_rows, row_id
from visioneval.suite.messages import Loc, explain, suite_schema
from visioneval.suite.model import CaseDataset, CaseFile, Suite
from visioneval.suite.paths import Trust, rebased, rebased_case
from visioneval.suite.runs import RunLabels
from visioneval.suite.yaml_reader import decode, plain, positions, read_yaml

MAX_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LoadedSuite:
    """A suite that passed every check. ``folder`` is what its relative paths are relative to."""

    suite: Suite
    path: Path
    folder: Path
    source_sha256: str
    trust: Trust


@dataclass(slots=True)
class Source:
    """One file that suite text came from; positions are worked out when a problem needs them."""

    name: str
    text: str
    _positions: dict[Loc, tuple[tuple[int, int], tuple[int, int]]] | None = None

    def place(self, loc: Sequence[str | int], *, of_key: bool) -> tuple[str, int, int]:
        """File, line and column of the deepest part of ``loc`` that the text holds."""
        if self._positions is None:
            self._positions = positions(self.text, self.name)
        path: Loc = ()
        whole = True
        for step in loc:
            whole = (*path, step) in self._positions
            if whole:
                path = (*path, step)
        key_at, value_at = self._positions.get(path, ((1, 1), (1, 1)))
        return (self.name, *(key_at if of_key and whole else value_at))


@dataclass(slots=True)
class Document:
    """The raw suite with its cases gathered from everywhere, and where each came from."""

    source: Source
    data: dict[str, Any]
    cases: list[dict[str, Any]] = field(default_factory=list)
    origins: list[tuple[Source, Loc] | tuple[str, int]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def place(self, loc: Sequence[str | int], *, of_key: bool = False) -> tuple[str, int, int]:
        """Where ``loc``, a path in the gathered suite, stands in the files."""
        if len(loc) >= 2 and loc[0] == "cases" and isinstance(loc[1], int) and loc[1] < len(self.origins):
            origin = self.origins[loc[1]]
            if isinstance(origin[0], Source):
                return origin[0].place((*origin[1], *loc[2:]), of_key=of_key)
            return str(origin[0]), int(origin[1]), 1
        return self.source.place(loc, of_key=of_key)

    def report(self, loc: Sequence[str | int], message: str, *, of_key: bool = False) -> None:
        """Adds a problem at ``loc``."""
        self.problems.append(Problem(*self.place(loc, of_key=of_key), message))


def load_suite(
    path: Path, *, trust: bool = False, variables: Mapping[str, str] | None = None, run_labels: RunLabels
) -> LoadedSuite:
    """Reads and checks a suite. Raises ``SuiteError`` with all problems, ``UsageError`` for a bad path."""
    data = _read_bytes(path)
    name = str(path)
    source = Source(name, decode(data, name))
    raw = read_yaml(source.text, name)
    if raw is None:
        raise SuiteError([Problem(name, 1, 1, "the suite is empty: 'visioneval init' writes one to start from")])
    if not isinstance(raw, dict):
        raise SuiteError([Problem(name, 1, 1, "a suite is a mapping with name, cases, models, graders, verdict")])
    folder = path.absolute().parent
    document = Document(source, raw)
    _replace_variables(document, variables or {})
    boundary = Trust(folder, Path.cwd(), everything=trust)
    _gather_cases(document, boundary)
    gathered = not document.problems
    suite = _validated(document, with_cases=gathered or bool(document.cases))
    if suite is not None and gathered:
        for loc, message in check.problems(suite, folder, boundary, run_labels):
            document.report(loc, message)
    if document.problems or suite is None:
        raise SuiteError(document.problems)
    return LoadedSuite(suite, path.absolute(), folder, sha256(data).hexdigest(), boundary)


def _read_bytes(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UsageError(f"{path}: over the limit of {MAX_BYTES:,} bytes; put the cases in a dataset")
        return path.read_bytes()
    except IsADirectoryError:
        raise UsageError(f"{path}: is a directory; name the suite's file, such as {path / 'suite.yaml'}") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None


def _replace_variables(document: Document, variables: Mapping[str, str]) -> None:
    declared = document.data.get("vars")
    if not variables:
        return
    declared = declared if isinstance(declared, dict) else {}
    unknown = sorted(variables.keys() - declared.keys())
    if unknown:
        raise UsageError(
            f"--var {unknown[0]}: the suite has no such variable (it has: {', '.join(map(str, declared)) or 'none'})"
        )
    document.data["vars"] = {**declared, **{name: plain(text) for name, text in variables.items()}}


def _gather_cases(document: Document, trust: Trust) -> None:
    entries = document.data.get("cases")
    if not isinstance(entries, list):
        return
    _gather(document, document.source, entries, ("cases",), trust.folder, trust, ())
    task = document.data.get("task")
    if isinstance(task, str):
        document.cases = [{"task": task, **c} if isinstance(c, dict) else c for c in document.cases]
    document.data = {**document.data, "cases": document.cases}


def _gather(
    document: Document,
    source: Source,
    entries: list[Any],
    loc: Loc,
    folder: Path,
    trust: Trust,
    stack: tuple[Path, ...],
) -> None:
    for index, entry in enumerate(entries):
        here = (*loc, index)
        if isinstance(entry, dict) and "file" in entry and "id" not in entry:
            if _well_formed(document, source, here, entry, CaseFile):
                _gather_file(document, source, here, entry["file"], folder, trust, stack)
        elif isinstance(entry, dict) and "dataset" in entry and "id" not in entry:
            if _well_formed(document, source, here, entry, CaseDataset):
                _gather_dataset(document, source, here, entry["dataset"], folder, trust)
        else:
            document.cases.append(rebased_case(entry, folder, trust.folder) if isinstance(entry, dict) else entry)
            document.origins.append((source, here))


def _well_formed(
    document: Document, source: Source, loc: Loc, entry: Any, model: type[CaseFile] | type[CaseDataset]
) -> bool:
    try:
        model.model_validate(entry)
    except ValidationError as error:
        for part in error.errors():
            at = source.place((*loc, *part["loc"]), of_key=part["type"] == "extra_forbidden")
            document.problems.append(Problem(*at, explain(part, model.model_json_schema())))
        return False
    return True


def _gather_file(
    document: Document,
    source: Source,
    loc: Loc,
    name: str,
    folder: Path,
    trust: Trust,
    stack: tuple[Path, ...],
) -> None:
    path = (folder / name).resolve()
    at = source.place((*loc, "file"), of_key=False)
    if (refusal := trust.refusal(name, folder)) or (refusal := _cannot_read(path, stack)):
        document.problems.append(Problem(*at, f"file: {refusal}"))
        return
    shown = rebased(name, folder, trust.folder)
    try:
        inner = Source(shown, decode(path.read_bytes(), shown))
        cases = read_yaml(inner.text, shown)
    except SuiteError as error:
        document.problems.extend(error.problems)
        return
    if not isinstance(cases, list):
        document.problems.append(Problem(shown, 1, 1, "a file of cases is a list: '- id: ...'"))
        return
    _gather(document, inner, cases, (), path.parent, trust, (*stack, path))


def _cannot_read(path: Path, stack: tuple[Path, ...]) -> str | None:
    if path in stack:
        return "this file includes itself"
    if not path.is_file():
        return f"no such file: {path.name}"
    return f"over the limit of {MAX_BYTES:,} bytes" if path.stat().st_size > MAX_BYTES else None


def _gather_dataset(
    document: Document, source: Source, loc: Loc, spec: dict[str, Any], folder: Path, trust: Trust
) -> None:
    at = source.place((*loc, "dataset", "path"), of_key=False)
    if refusal := trust.refusal(spec["path"], folder):
        document.problems.append(Problem(*at, f"dataset: {refusal}"))
        return
    path = folder / spec["path"]
    shown = rebased(spec["path"], folder, trust.folder)
    try:
        rows = read_rows(path, shown)
    except SuiteError as error:
        document.problems.extend(error.problems)
        return
    at = source.place((*loc, "dataset", "fields"), of_key=False)
    if missing := missing_columns(rows, spec["fields"]):
        document.problems.extend(Problem(*at, message) for message in missing)
        return
    for line, case in _cases_of_rows(document, rows, spec["fields"], shown):
        document.cases.append(rebased_case(case, path.parent, trust.folder))
        document.origins.append((shown, line))


def _cases_of_rows(
    document: Document, rows: list[Row], fields: Mapping[str, str], name: str
) -> Iterator[tuple[int, dict[str, Any]]]:
    """One case per id; its pictures by label, in the order of the rows."""
    cases: dict[str, tuple[int, dict[str, Any]]] = {}
    pictures: dict[str, dict[str, list[Any]]] = {}
    for row in rows:
        key = row_id(row, fields)
        if not key:
            document.problems.append(Problem(name, row.line, 1, "the row has neither an id nor a prompt"))
            continue
        case = case_of(row, fields)
        line, first = cases.setdefault(key, (row.line, case))
        if differs := [k for k in case.keys() | first.keys() if case.get(k) != first.get(k)]:
            document.problems.append(
                Problem(name, row.line, 1, f"{', '.join(sorted(differs))} of {key!r} is not what line {line} says")
            )
        image = row.cells.get(fields.get("image", ""))
        if image not in (None, ""):
            label = str(row.cells.get(fields.get("model", "")) or Path(name).stem)
            pictures.setdefault(key, {}).setdefault(label, []).append(image)
    for key, (line, case) in cases.items():
        yield line, {**case, "pictures": pictures[key]} if key in pictures else case


def _validated(document: Document, *, with_cases: bool) -> Suite | None:
    """The suite, or ``None`` with a problem for everything that its model refuses."""
    try:
        return Suite.model_validate(document.data)
    except ValidationError as error:
        for part in error.errors(include_url=False):
            loc = tuple(part["loc"])
            if loc[:1] == ("cases",) and not with_cases:
                continue
            document.report(loc, explain(part, suite_schema()), of_key=part["type"] == "extra_forbidden")
    return None
