"""Files of pinned questions: reads and checks them, and adds the questions to the suite's cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from visioneval.errors import Problem, SuiteError, TemplateError, UsageError
from visioneval.suite.cases.case import TestCase
from visioneval.suite.cases.prompts import rendered
from visioneval.suite.cases.questions import (
    GeckoQuestion,
    PinnedQuestions,
    dependency_problems,
    id_problems,
    without_bad_dependencies,
)
from visioneval.suite.entries.graders import BaseGrader
from visioneval.suite.loading.document import Document, Source
from visioneval.suite.loading.gather import read_bytes
from visioneval.suite.loading.messages import Loc, did_you_mean
from visioneval.suite.loading.paths import Trust
from visioneval.suite.loading.yaml_reader import decode, read_yaml
from visioneval.suite.model import Suite


@dataclass(slots=True)
class _Pins:
    """The questions of a file by case and by prompt, each with the index of its entry."""

    cases: dict[str, tuple[int, tuple[GeckoQuestion, ...]]] = field(default_factory=dict)
    prompts: dict[str, tuple[int, tuple[GeckoQuestion, ...]]] = field(default_factory=dict)

    def of(self, case: TestCase, prompt: str | None) -> tuple[int, tuple[GeckoQuestion, ...]] | None:
        """The entry for a case, else the entry for its prompt."""
        return self.cases.get(case.id) or (self.prompts.get(prompt) if prompt else None)


def with_pinned_questions(suite: Suite, document: Document, trust: Trust) -> Suite:
    """Adds the questions of the suite's file to the cases without pinned questions. The document gets the problems."""
    naming = [(index, grader) for index, grader in enumerate(suite.graders) if grader.question_file]
    for index, grader in naming[1:]:
        if grader.question_file != naming[0][1].question_file:
            message = (
                f"questions: a suite can use only one question file, but another grader uses"
                f" {naming[0][1].question_file!r}"
            )
            document.report(("graders", index, "questions"), message)
    if not naming:
        return suite
    index, grader = naming[0]
    source, entries = _read(str(grader.question_file), ("graders", index, "questions"), document, trust)
    if source is None:
        return suite
    return _merged(suite, document, source, _checked(document, source, entries, grader))


def _read(name: str, loc: Loc, document: Document, trust: Trust) -> tuple[Source | None, list[Any]]:
    if refusal := trust.refusal(name, trust.folder):
        document.report(loc, f"questions: {refusal}")
        return None, []
    display_name = document.display_name(name, trust.folder, trust.folder)
    try:
        source = Source(display_name, decode(read_bytes(trust.folder / name), display_name))
        entries = read_yaml(source.text, display_name)
    except UsageError as error:
        document.report(loc, f"questions: {name}: {error}")
    except SuiteError as error:
        document.problems.extend(error.problems)
    else:
        if isinstance(entries, list):
            return source, entries
        _report(document, source, (), "a question file must be a list: '- prompt: ...'")
    return None, []


def _report(document: Document, source: Source, loc: Loc, message: str) -> None:
    document.problems.append(Problem(*source.position(loc), message))


def _checked(document: Document, source: Source, entries: Sequence[Any], grader: BaseGrader) -> _Pins:
    pins = _Pins()
    for index, raw in enumerate(entries):
        try:
            entry = PinnedQuestions.model_validate(raw)
        except ValidationError as error:
            errors = error.errors(include_url=False)
            document.report_errors(errors, PinnedQuestions.model_json_schema(), source, (index,))
            continue
        key, table = (entry.case, pins.cases) if entry.case else (entry.prompt, pins.prompts)
        if str(key) in table:
            _report(document, source, (index,), f"an earlier entry already has the questions of {str(key)[:60]!r}")
        duplicates = list(id_problems(entry.questions))
        bad_dependencies = (
            [] if duplicates or grader.drops_bad_dependencies else list(dependency_problems(entry.questions))
        )
        for question_index, message in (*duplicates, *bad_dependencies):
            _report(
                document, source, (index, "questions", question_index, "id" if duplicates else "depends_on"), message
            )
        if not duplicates:  # reported once, at the position in the file
            table[str(key)] = (
                index,
                without_bad_dependencies(entry.questions) if bad_dependencies else entry.questions,
            )
    return pins


def _merged(suite: Suite, document: Document, source: Source, pins: _Pins) -> Suite:
    used: set[int] = set()
    cases = []
    for case in suite.cases:
        pinned_entry = pins.of(case, _prompt(case, suite))
        if pinned_entry is not None:
            used.add(pinned_entry[0])
        applies = pinned_entry is not None and case.questions is None
        cases.append(case.model_copy(update={"questions": pinned_entry[1]}) if pinned_entry and applies else case)
    suite = suite.model_copy(update={"cases": tuple(cases)})
    if document.problems:  # an invalid case is missing, so its entry would seem unused
        return suite
    ids = [case.id for case in suite.cases]
    for name, (index, _) in pins.cases.items():
        if index not in used:
            _report(document, source, (index, "case"), f"there is no case {name!r}{did_you_mean(name, ids)}")
    for prompt, (index, _) in pins.prompts.items():
        if index not in used:
            _report(document, source, (index, "prompt"), f"no case has this prompt: {prompt[:80]!r}")
    return suite


def _prompt(case: TestCase, suite: Suite) -> str | None:
    try:
        return rendered(case, suite.vars)[0]
    except TemplateError:
        return None  # reported for the case itself
