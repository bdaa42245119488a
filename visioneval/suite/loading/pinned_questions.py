"""Files of pinned questions: read beside a suite, checked like it, and put into its cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from visioneval.errors import Problem, SuiteError, TemplateError, UsageError
from visioneval.suite.case import TestCase
from visioneval.suite.graders import BaseGrader
from visioneval.suite.loading.document import Document, Source
from visioneval.suite.loading.gather import read_bytes
from visioneval.suite.loading.messages import Loc, did_you_mean
from visioneval.suite.loading.paths import Trust
from visioneval.suite.loading.yaml_reader import decode, read_yaml
from visioneval.suite.model import Suite
from visioneval.suite.prompts import rendered
from visioneval.suite.questions import (
    GeckoQuestion,
    PinnedQuestions,
    dependency_problems,
    id_problems,
    without_bad_dependencies,
)


@dataclass(slots=True)
class _Pins:
    """The questions of a file by case and by prompt, each with its entry's place."""

    cases: dict[str, tuple[int, tuple[GeckoQuestion, ...]]] = field(default_factory=dict)
    prompts: dict[str, tuple[int, tuple[GeckoQuestion, ...]]] = field(default_factory=dict)

    def of(self, case: TestCase, prompt: str | None) -> tuple[int, tuple[GeckoQuestion, ...]] | None:
        """The entry of a case, else that of its prompt."""
        return self.cases.get(case.id) or (self.prompts.get(prompt) if prompt else None)


def with_pinned(suite: Suite, document: Document, trust: Trust) -> Suite:
    """The suite with the questions of its file in the cases that pin none themselves. Problems go to the document."""
    named = [(at, grader) for at, grader in enumerate(suite.graders) if grader.question_file]
    for at, grader in named[1:]:
        if grader.question_file != named[0][1].question_file:
            message = f"questions: a suite has one file of them, and {named[0][1].question_file!r} is named already"
            document.report(("graders", at, "questions"), message)
    if not named:
        return suite
    at, grader = named[0]
    source, entries = _read(str(grader.question_file), ("graders", at, "questions"), document, trust)
    if source is None:
        return suite
    return _merged(suite, document, source, _checked(document, source, entries, grader))


def _read(name: str, loc: Loc, document: Document, trust: Trust) -> tuple[Source | None, list[Any]]:
    if refusal := trust.refusal(name, trust.folder):
        document.report(loc, f"questions: {refusal}")
        return None, []
    shown = document.shown(name, trust.folder, trust.folder)
    try:
        source = Source(shown, decode(read_bytes(trust.folder / name), shown))
        entries = read_yaml(source.text, shown)
    except UsageError as error:
        document.report(loc, f"questions: {name}: {error}")
    except SuiteError as error:
        document.problems.extend(error.problems)
    else:
        if isinstance(entries, list):
            return source, entries
        _report(document, source, (), "a file of questions is a list: '- prompt: ...'")
    return None, []


def _report(document: Document, source: Source, loc: Loc, message: str) -> None:
    document.problems.append(Problem(*source.place(loc), message))


def _checked(document: Document, source: Source, entries: Sequence[Any], grader: BaseGrader) -> _Pins:
    pins = _Pins()
    for at, raw in enumerate(entries):
        try:
            entry = PinnedQuestions.model_validate(raw)
        except ValidationError as error:
            errors = error.errors(include_url=False)
            document.report_misfits(errors, PinnedQuestions.model_json_schema(), source, (at,))
            continue
        key, table = (entry.case, pins.cases) if entry.case else (entry.prompt, pins.prompts)
        if str(key) in table:
            _report(document, source, (at,), f"an earlier entry is about {str(key)[:60]!r} already")
        twice = list(id_problems(entry.questions))
        bad = [] if twice or grader.drops_bad_dependencies else list(dependency_problems(entry.questions))
        for place, message in (*twice, *bad):
            _report(document, source, (at, "questions", place, "id" if twice else "depends_on"), message)
        if not twice:  # told of here, at the place in the file, and not once more of the case
            table[str(key)] = (at, without_bad_dependencies(entry.questions) if bad else entry.questions)
    return pins


def _merged(suite: Suite, document: Document, source: Source, pins: _Pins) -> Suite:
    used: set[int] = set()
    cases = []
    for case in suite.cases:
        found = pins.of(case, _prompt(case, suite))
        if found is not None:
            used.add(found[0])
        pinned = found is not None and case.questions is None
        cases.append(case.model_copy(update={"questions": found[1]}) if found and pinned else case)
    suite = suite.model_copy(update={"cases": tuple(cases)})
    if document.problems:  # a case that is wrong is not here, so that its entry seems to be for none
        return suite
    ids = [case.id for case in suite.cases]
    for name, (at, _) in pins.cases.items():
        if at not in used:
            _report(document, source, (at, "case"), f"no case is called {name!r}{did_you_mean(name, ids)}")
    for prompt, (at, _) in pins.prompts.items():
        if at not in used:
            _report(document, source, (at, "prompt"), f"no case has this prompt: {prompt[:80]!r}")
    return suite


def _prompt(case: TestCase, suite: Suite) -> str | None:
    try:
        return rendered(case, suite.vars)[0]
    except TemplateError:
        return None  # told of the case itself
