"""Gathers the cases of a suite from its own text, case files and datasets, and the pinned questions of its grader."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from visioneval.errors import Problem, SuiteError, TemplateError, UsageError, did_you_mean
from visioneval.media.urls import public_address
from visioneval.suite.case import TestCase, Turns, rendered, with_inherited_tasks
from visioneval.suite.entries.graders import BaseGrader
from visioneval.suite.files import CaseDataset, CaseRows, QuestionRows, Trust, rebased_case
from visioneval.suite.filters import CASE_ID, TURN, turn_id
from visioneval.suite.loading.datasets import (
    DatasetEntry,
    Variables,
    case_field_problems,
    default_problems,
    is_template,
    line_reporter,
    note_python,
    pin_field_problems,
)
from visioneval.suite.loading.document import Document, Origin, Source, Written, decode, read_yaml
from visioneval.suite.loading.row_cases import RowReader, grouped_rows, raw_case, with_defaults
from visioneval.suite.loading.tables import SUFFIXES
from visioneval.suite.messages import Loc, format_value
from visioneval.suite.model import CaseFile, Suite, suite_schema
from visioneval.suite.questions import (
    GeckoQuestion,
    PinnedQuestions,
    dependency_problems,
    id_problems,
    without_bad_dependencies,
)
from visioneval.templates.steps import suite_counted
from visioneval.types import TaskType

_TURNS: TypeAdapter[Any] = TypeAdapter(Turns)
_NOT_SHARED = {
    "prompt": "each turn has its own prompt: move this one to a turn",
    "outputs": "each turn has its own outputs: move these to the turns",
    "output_of": "a case with 'output_of' generates nothing, so it has no turns: remove one of the two",
}


def _replace_turns(document: Document) -> None:
    """Replaces the cases with ``turns`` in ``document``. Cases whose turns are not valid are reported and left out."""
    cases: list[Any] = []
    origins: list[Origin] = []
    for index, (case, origin) in enumerate(zip(document.cases, document.origins, strict=True)):
        if not isinstance(case, dict) or ("turns" not in case and not _is_turn(case)):
            cases.append(case)
            origins.append(origin)
        elif _check(case, index, document):
            for number, turn in enumerate(_turn_cases(case), 1):
                cases.append(turn)
                origins.append(replace(origin, turn=number - 1))
    document.cases, document.origins = cases, origins


def _check(case: Mapping[str, Any], index: int, document: Document) -> bool:
    """Whether the turns of a raw case can replace it. Reports why not."""
    before = len(document.problems)
    case_id, turns = case.get("id"), case.get("turns")
    if _is_turn(case):
        message = "is the ID of a turn: write the turns of a case under 'turns'"
        document.report(("cases", index, "id"), f"id: {case_id!r:.60} {message}")
    if "turns" not in case:
        return False
    try:
        _TURNS.validate_python(turns)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        located = [{**entry, "loc": ("cases", index, "turns", *entry["loc"])} for entry in errors]
        document.report_errors(located, suite_schema())
    if not isinstance(case_id, str):
        document.report(("cases", index), "a case with turns needs an 'id', as text")
    for key, message in _NOT_SHARED.items():
        if key in case:
            document.report(("cases", index, key), f"turns: {message}", of_key=True)
    task = case.get("task")
    if task not in (None, TaskType.IMAGE_EDITING):
        document.report(("cases", index, "turns"), f"only an edit has turns, but the task of this case is {task}")
    elif task is None and not case.get("images"):
        document.report(("cases", index, "turns"), "turns edit an image: add 'images' to the case")
    return len(document.problems) == before


def _is_turn(case: Mapping[str, Any]) -> bool:
    """Whether a raw case has an id that only turns have."""
    return isinstance(case.get("id"), str) and re.fullmatch(f"{CASE_ID}{TURN}", case["id"]) is not None


def _turn_cases(case: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The raw cases of a case's turns. The first edits the images of the case, and each may have more of its own."""
    shared = _with_masks({key: value for key, value in case.items() if key not in ("id", "turns", "images")})
    shared["task"] = str(TaskType.IMAGE_EDITING)
    for number, turn in enumerate(case["turns"], 1):
        values = _with_masks({"prompt": turn} if isinstance(turn, str) else turn)
        images = values.get("images", [])
        if number == 1:
            first = case.get("images", [])
            images = [*first, *images] if isinstance(first, list) else first
        yield {**with_defaults(values, shared), "id": turn_id(case["id"], number), "images": images}


def _with_masks(case: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a case with ``masks`` in the place of ``mask``, so that a turn can replace the case's."""
    if "mask" not in case or "masks" in case:
        return dict(case)
    return {**{key: value for key, value in case.items() if key != "mask"}, "masks": {"editable": case["mask"]}}


MAX_BYTES = 64 * 1024 * 1024
Entry = TypeVar("Entry", CaseFile, CaseDataset)


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
    """Replaces ``cases`` by the cases of all files and sets the suite's task in cases without one.

    A case with turns becomes a case for each turn.
    """
    entries = document.data.get("cases")
    if not isinstance(entries, list):
        name = entries.get("file") if isinstance(entries, dict) else entries
        hint = _entry_with(name) if isinstance(name, str) else None
        if isinstance(entries, dict) and "dataset" in entries:
            hint = "{dataset: ...}"
        if hint:  # a file or a dataset alone
            document.report(("cases",), f"cases: expected a list: write [{hint}]")
            document.data = {**document.data, "cases": []}
        return
    gatherer = _Gatherer(document, trust, Variables(document.data.get("vars")))
    gatherer.walk(document.source, entries, ("cases",), trust.folder)
    task = document.data.get("task")
    if task in tuple(TaskType):
        document.cases = [{"task": task, **case} if isinstance(case, dict) else case for case in document.cases]
    _replace_turns(document)
    document.cases = with_inherited_tasks(document.cases)
    document.data = {**document.data, "cases": document.cases}


def _entry_with(name: str) -> str | None:
    """The entry that was meant by the name of a file; ``None`` for any other text, such as a prompt."""
    if len(name.split()) != 1 or PurePosixPath(name).suffix.lower() not in {".yaml", ".yml", *SUFFIXES}:
        return None
    shown = public_address(name)
    return f"{{dataset: {{path: {shown}}}}}" if _is_table(name) else f"{{file: {shown}}}"


def _is_table(name: str) -> bool:
    """Whether a file has rows; a JSON file may also be a list of cases."""
    suffix = PurePosixPath(name).suffix.lower()
    return suffix in SUFFIXES and suffix != ".json"


def _read(
    document: Document, trust: Trust, name: str, folder: Path, report: Callable[[str], None]
) -> tuple[Source, Any] | None:
    """A YAML file that a file in ``folder`` names, and its data; ``None`` if it cannot be read, which is reported."""
    display_name = document.display_name(name, folder, trust.folder)
    try:
        source = Source(display_name, decode(read_bytes(folder / name), display_name))
        return source, read_yaml(source.text, display_name)
    except UsageError as error:
        report(f"{public_address(name)}: {error}")
    except SuiteError as error:
        document.problems.extend(error.problems)
    return None


def render_output_paths(document: Document) -> None:
    """Replaces the variables in the paths of the datasets of existing outputs."""
    variables = Variables(document.data.get("vars"))
    models = document.data.get("models")
    entries = list(models) if isinstance(models, list) else []
    for index, entry in enumerate(entries):
        dataset = entry.get("dataset") if isinstance(entry, dict) else None
        path = dataset.get("path") if isinstance(dataset, dict) else None
        if not isinstance(dataset, dict) or not isinstance(path, str) or not is_template(path):
            continue
        try:
            entries[index] = {**entry, "dataset": {**dataset, "path": variables.path(path)}}
        except TemplateError as error:
            document.report(("models", index, "dataset", "path"), f"dataset: {public_address(path)}: {error}")
    document.data |= {"models": entries} if entries else {}


@dataclass(slots=True)
class _Gatherer:
    document: Document
    trust: Trust
    variables: Variables
    included: set[str] = field(default_factory=set)

    def walk(self, source: Source, entries: Sequence[Any], loc: Loc, folder: Path) -> None:
        """Adds the cases of the list at ``loc`` of a file in ``folder``."""
        for index, entry in enumerate(entries):
            entry_loc = (*loc, index)
            if isinstance(entry, dict) and "file" in entry and "id" not in entry:
                if self.fits(CaseFile, entry, source, entry_loc):
                    self.file(source, (*entry_loc, "file"), entry["file"], folder)
            elif isinstance(entry, dict) and "dataset" in entry and "id" not in entry:
                if dataset := self.fits(CaseDataset, entry, source, entry_loc):
                    self.dataset(source, (*entry_loc, "dataset"), dataset.dataset, folder)
            elif isinstance(entry, str) and (hint := _entry_with(entry)):
                self.report(source, entry_loc, f"expected a case, not {format_value(entry)}: write {hint}")
            else:
                case = rebased_case(entry, folder, self.trust.folder) if isinstance(entry, dict) else entry
                self.document.cases.append(case)
                self.document.origins.append(Origin(source, entry_loc))

    def fits(self, model: type[Entry], entry: Any, source: Source, loc: Loc) -> Entry | None:
        try:
            return model.model_validate(entry)
        except ValidationError as error:
            errors = error.errors(include_url=False)
            self.document.report_errors(errors, model.model_json_schema(), Origin(source, loc))
            return None

    def report(self, source: Source, loc: Loc, message: str, *, of_key: bool = False) -> None:
        self.document.problems.append(Problem(*source.position(loc, of_key=of_key), message))

    def file(self, source: Source, loc: Loc, name: str, folder: Path) -> None:
        path = Path(os.path.realpath(folder / name))
        if refusal := self.trust.refusal(name, folder):
            return self.report(source, loc, f"file: {refusal}")
        shown = public_address(name)
        if _is_table(name):
            hint = f"write {{dataset: {{path: {shown}}}}}"
            return self.report(source, loc, f"file: {shown} is a table, not a YAML list of cases: {hint}")
        if str(path) in self.included:
            return self.report(source, loc, f"file: {shown} is already included")
        self.included.add(str(path))
        content = _read(self.document, self.trust, name, folder, lambda why: self.report(source, loc, f"file: {why}"))
        if content is None:
            return None
        inner, cases = content
        if not isinstance(cases, list):
            return self.report(inner, (), "a case file must be a list: '- id: ...'")
        return self.walk(inner, cases, (), (folder / name).parent)

    def dataset(self, source: Source, loc: Loc, spec: CaseRows, folder: Path) -> None:
        entry = DatasetEntry(self.document, self.trust, source, loc, folder, self.variables)
        table = entry.read(spec, [*case_field_problems(spec.fields), *default_problems(spec.defaults)])
        if table is None:
            return
        reader = RowReader(spec.fields, spec.group_by, self.variables)
        report = line_reporter(self.document, table.name)
        with suite_counted(len(table.rows)):
            groups = grouped_rows(table, reader, report)
            note_python(self.document, table.name, reader.python_lines)
            origin = Written(source, (*loc, "defaults"), frozenset(key.split(".")[0] for key in spec.fields))
            for group in groups[: spec.limit]:
                try:
                    defaults = reader.defaults(spec.defaults, group.first)
                except TemplateError:
                    continue  # one of the reader's faults
                except ValueError as error:
                    report(group.first.line, f"defaults: {error}")
                    continue
                case = rebased_case(raw_case(group), table.base, self.trust.folder)
                self.document.cases.append(with_defaults(case, rebased_case(defaults, folder, self.trust.folder)))
                self.document.origins.append(Origin(table.name, line=group.first.line, defaults=origin))
        for fault_loc, message in reader.faults.problems(table.name):
            entry.report(fault_loc, message)


@dataclass(slots=True)
class _Pins:
    """The questions of a file by case and by prompt, each with its place in the file."""

    is_dataset: bool
    cases: dict[str, tuple[Origin, tuple[GeckoQuestion, ...]]] = field(default_factory=dict)
    prompts: dict[str, tuple[Origin, tuple[GeckoQuestion, ...]]] = field(default_factory=dict)

    def of(self, case: TestCase, suite: Suite) -> tuple[Origin, tuple[GeckoQuestion, ...]] | None:
        """The entry for a case, else the entry for its prompt."""
        prompt = ""
        with suppress(TemplateError):  # reported for the case itself
            prompt = rendered(case, suite.vars)[0]
        return self.cases.get(case.id) or (self.prompts.get(prompt) if prompt else None)


_Entries = list[tuple[Any, Origin]]


def with_pinned_questions(suite: Suite, document: Document, trust: Trust) -> Suite:
    """Adds the questions of the suite's file to the cases without pinned questions. The document gets the problems."""
    naming = [(index, grader) for index, grader in enumerate(suite.graders) if grader.question_file]
    for index, grader in naming[1:]:
        if grader.question_file != (first := naming[0][1].question_file):
            name = first.path if isinstance(first, QuestionRows) else first
            message = f"questions: a suite can use only one question file, but another grader uses {name!r}"
            document.report(("graders", index, "questions"), message)
    if not naming:
        return suite
    index, grader = naming[0]
    loc, file = ("graders", index, "questions"), grader.question_file
    if isinstance(file, QuestionRows):
        entries = _read_dataset(file, loc, document, trust)
    else:
        entries = _read_questions(str(file), loc, document, trust)
    if entries is None:
        return suite
    pins = _pins(document, entries, grader, is_dataset=isinstance(file, QuestionRows))
    return _with_pins(suite, document, pins, loc)


def _read_questions(name: str, loc: Loc, document: Document, trust: Trust) -> _Entries | None:
    if refusal := trust.refusal(name, trust.folder):
        document.report(loc, f"questions: {refusal}")
        return None
    content = _read(document, trust, name, trust.folder, lambda error: document.report(loc, f"questions: {error}"))
    if content is None:
        return None
    source, entries = content
    if isinstance(entries, list):
        return [(entry, Origin(source, (index,))) for index, entry in enumerate(entries)]
    _report(document, Origin(source), (), "a question file must be a list: '- prompt: ...'")
    return None


def _read_dataset(rows: QuestionRows, loc: Loc, document: Document, trust: Trust) -> _Entries | None:
    """An entry for each case or prompt of a dataset."""
    variables = Variables(document.data.get("vars"))
    entry = DatasetEntry(document, trust, document.source, loc, trust.folder, variables, "questions")
    table = entry.read(rows, pin_field_problems(rows.fields))
    if table is None:
        return None
    key = "case" if "case" in rows.fields else "prompt"
    reader = RowReader({"id": rows.fields[key], "questions": rows.fields["questions"]}, rows.group_by, variables)
    with suite_counted(len(table.rows)):
        groups = grouped_rows(table, reader, line_reporter(document, table.name))
    for (_, field_key), message in reader.faults.problems(table.name):
        entry.report(("fields", key if field_key == "id" else field_key), message)
    note_python(document, table.name, reader.python_lines)
    used = groups[: rows.limit]
    values = ({key: group.case_id, "questions": raw_case(group).get("questions", [])} for group in used)
    return [(value, Origin(table.name, line=group.first.line)) for value, group in zip(values, used, strict=True)]


def _report(document: Document, origin: Origin, loc: Loc, message: str) -> None:
    document.problems.append(Problem(*origin.position(loc), message))


def _pins(document: Document, entries: _Entries, grader: BaseGrader, *, is_dataset: bool) -> _Pins:
    pins = _Pins(is_dataset)
    for raw, origin in entries:
        try:
            entry = PinnedQuestions.model_validate(raw)
        except ValidationError as error:
            document.report_errors(error.errors(include_url=False), PinnedQuestions.model_json_schema(), origin)
            continue
        key, table = (entry.case, pins.cases) if entry.case else (entry.prompt, pins.prompts)
        if str(key) in table:
            _report(document, origin, (), f"an earlier entry already has the questions of {str(key)[:60]!r}")
        questions, duplicates = entry.questions, list(id_problems(entry.questions))
        for question_index, message in duplicates:
            _report(document, origin, ("questions", question_index, "id"), message)
        if duplicates:
            continue
        bad_dependencies = [] if grader.drops_bad_dependencies else list(dependency_problems(questions))
        for question_index, message in bad_dependencies:  # reported once, at the position in the file
            _report(document, origin, ("questions", question_index, "depends_on"), message)
        table[str(key)] = origin, without_bad_dependencies(questions) if bad_dependencies else questions
    return pins


def _with_pins(suite: Suite, document: Document, pins: _Pins, loc: Loc) -> Suite:
    used: set[int] = set()
    cases = []
    for case in suite.cases:
        pinned_entry = pins.of(case, suite)
        if pinned_entry is not None:
            used.add(id(pinned_entry[0]))
        applies = pinned_entry is not None and case.questions is None
        cases.append(case.model_copy(update={"questions": pinned_entry[1]}) if pinned_entry and applies else case)
    suite = suite.model_copy(update={"cases": tuple(cases)})
    if document.problems:  # an invalid case is missing, so its entry would seem unused
        return suite
    if pins.is_dataset:  # it may have more prompts than the suite, but not only others
        if not used:
            document.report(loc, "questions: the dataset has no case and no prompt of this suite")
        return suite
    ids = [case.id for case in suite.cases]
    for name, (origin, _) in pins.cases.items():
        if id(origin) not in used:
            _report(document, origin, ("case",), f"there is no case {name!r}{did_you_mean(name, ids)}")
    for prompt, (origin, _) in pins.prompts.items():
        if id(origin) not in used:
            _report(document, origin, ("prompt",), f"no case has this prompt: {prompt[:80]!r}")
    return suite
