"""Checks of pinned questions, and of who could make those that are not pinned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from visioneval.graders.gecko.config import GeckoGrader
from visioneval.suite.case import TestCase
from visioneval.suite.checks.rules import Problems, SuiteContext
from visioneval.suite.loading.messages import Loc
from visioneval.suite.questions import dependency_problems, id_problems


def run_problems(view: SuiteContext, graders: Sequence[tuple[int, GeckoGrader]]) -> Problems:
    """Problems of the questions of every case that a gecko grader asks about."""
    for index, case in enumerate(view.suite.cases):
        for _, grader in graders:
            if grader.is_for(case) and grader.metrics(case):
                judge = view.suite.judges.get(grader.judge)
                for loc, message in _questions(case, grader, recorded=judge is not None and judge.is_recorded):
                    yield ("cases", index, *loc), message


def _questions(case: TestCase, grader: GeckoGrader, *, recorded: bool) -> Iterator[tuple[Loc, str]]:
    pinned = case.questions or ()
    asked = (*pinned, *case.add_questions)
    if case.questions is not None and not asked:
        yield ("questions",), "must not be empty: leave the key out to have questions made"
    if case.questions is None and recorded:
        yield (), f"the judge {grader.judge!r} is recorded and makes no questions: pin them ('questions:')"
    elif case.questions is None and not case.prompt:
        yield (), "without a prompt no questions can be made: pin them ('questions:')"
    twice = list(id_problems(asked))
    bad = list(dependency_problems(asked)) if not twice and grader.on_bad_dependency == "error" else []
    for at, message in (*twice, *bad):
        key, place = ("questions", at) if at < len(pinned) else ("add_questions", at - len(pinned))
        yield (key, place, "id" if twice else "depends_on"), message
