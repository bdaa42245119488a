"""Checks pinned questions, and that the others can be generated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from visioneval.graders.gecko.config import GeckoGrader
from visioneval.suite.cases.case import TestCase
from visioneval.suite.cases.questions import dependency_problems, id_problems
from visioneval.suite.checks.rules import Problems, SuiteContext
from visioneval.suite.findings import Loc


def run_problems(view: SuiteContext, graders: Sequence[tuple[int, GeckoGrader]]) -> Problems:
    """Yields the problems with the questions of each case that a gecko grader applies to."""
    for index, case in enumerate(view.suite.cases):
        for _, grader in graders:
            if grader.is_for(case) and grader.metrics(case):
                judge = view.suite.judges.get(grader.question_writer)
                for loc, message in _questions(case, grader, recorded=judge is not None and judge.is_recorded):
                    yield ("cases", index, *loc), message


def _questions(case: TestCase, grader: GeckoGrader, *, recorded: bool) -> Iterator[tuple[Loc, str]]:
    pinned = case.questions or ()
    questions = (*pinned, *case.add_questions)
    if case.questions is not None and not questions:
        yield ("questions",), "must not be empty; remove the key to have questions generated"
    if case.questions is None and recorded:
        yield (
            (),
            f"the judge {grader.question_writer!r} replays recorded answers: add 'questions:' to the case",
        )
    elif case.questions is None and not case.prompt:
        yield (), "questions cannot be generated without a prompt: add 'questions:' to the case"
    duplicates = list(id_problems(questions))
    bad_dependencies = [] if duplicates or grader.drops_bad_dependencies else list(dependency_problems(questions))
    for index, message in (*duplicates, *bad_dependencies):
        key, position = ("questions", index) if index < len(pinned) else ("add_questions", index - len(pinned))
        yield (key, position, "id" if duplicates else "depends_on"), message
