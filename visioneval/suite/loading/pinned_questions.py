"""Pinned questions of a grader: reads and checks its file or dataset, and adds the questions to the suite's cases."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from visioneval.errors import Problem, SuiteError, TemplateError, UsageError, did_you_mean
from visioneval.media.urls import public_address
from visioneval.suite.cases.case import TestCase
from visioneval.suite.cases.prompts import rendered
from visioneval.suite.cases.questions import (
    GeckoQuestion,
    PinnedQuestions,
    dependency_problems,
    id_problems,
    without_bad_dependencies,
)
from visioneval.suite.entries.datasets import QuestionRows
from visioneval.suite.entries.graders import BaseGrader
from visioneval.suite.findings import Loc
from visioneval.suite.loading.datasets.cases import RowReader
from visioneval.suite.loading.datasets.entry import (
    DatasetEntry,
    Variables,
    line_reporter,
    note_python,
    pin_field_problems,
)
from visioneval.suite.loading.datasets.grouping import grouped_rows, raw_case
from visioneval.suite.loading.document import Document, Origin, Source
from visioneval.suite.loading.gather import read_bytes
from visioneval.suite.loading.paths import Trust
from visioneval.suite.loading.yaml_reader import decode, read_yaml
from visioneval.suite.model import Suite
from visioneval.templates.steps import suite_counted


@dataclass(slots=True)
class _Pins:
    """The questions of a file by case and by prompt, each with its place in the file."""

    is_dataset: bool
    cases: dict[str, tuple[Origin, tuple[GeckoQuestion, ...]]] = field(default_factory=dict)
    prompts: dict[str, tuple[Origin, tuple[GeckoQuestion, ...]]] = field(default_factory=dict)

    def of(self, case: TestCase, prompt: str | None) -> tuple[Origin, tuple[GeckoQuestion, ...]] | None:
        """The entry for a case, else the entry for its prompt."""
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
        entries = _read(str(file), loc, document, trust)
    if entries is None:
        return suite
    pins = _checked(document, entries, grader, is_dataset=isinstance(file, QuestionRows))
    return _merged(suite, document, pins, loc)


def _read(name: str, loc: Loc, document: Document, trust: Trust) -> _Entries | None:
    if refusal := trust.refusal(name, trust.folder):
        document.report(loc, f"questions: {refusal}")
        return None
    display_name = document.display_name(name, trust.folder, trust.folder)
    try:
        source = Source(display_name, decode(read_bytes(trust.folder / name), display_name))
        entries = read_yaml(source.text, display_name)
    except UsageError as error:
        document.report(loc, f"questions: {public_address(name)}: {error}")
    except SuiteError as error:
        document.problems.extend(error.problems)
    else:
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
    return [
        (
            {key: group.case_id, "questions": raw_case(group).get("questions", [])},
            Origin(table.name, line=group.first.line),
        )
        for group in groups[: rows.limit]
    ]


def _report(document: Document, origin: Origin, loc: Loc, message: str) -> None:
    document.problems.append(Problem(*origin.position(loc), message))


def _checked(document: Document, entries: _Entries, grader: BaseGrader, *, is_dataset: bool) -> _Pins:
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
        duplicates = list(id_problems(entry.questions))
        bad_dependencies = (
            [] if duplicates or grader.drops_bad_dependencies else list(dependency_problems(entry.questions))
        )
        for question_index, message in (*duplicates, *bad_dependencies):
            _report(document, origin, ("questions", question_index, "id" if duplicates else "depends_on"), message)
        if not duplicates:  # reported once, at the position in the file
            table[str(key)] = (
                origin,
                without_bad_dependencies(entry.questions) if bad_dependencies else entry.questions,
            )
    return pins


def _merged(suite: Suite, document: Document, pins: _Pins, loc: Loc) -> Suite:
    used: set[int] = set()
    cases = []
    for case in suite.cases:
        pinned_entry = pins.of(case, _prompt(case, suite))
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


def _prompt(case: TestCase, suite: Suite) -> str | None:
    try:
        return rendered(case, suite.vars)[0]
    except TemplateError:
        return None  # reported for the case itself
