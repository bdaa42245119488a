"""Checks of pinned questions, of who could make those that are not pinned, and of cells without a picture."""

from __future__ import annotations

from collections.abc import Iterator

from visioneval.suite.case import TestCase
from visioneval.suite.checks.rules import Found, View
from visioneval.suite.graders import BaseGrader, GeckoGrader, RubricGrader
from visioneval.suite.judges import RecordedJudge
from visioneval.suite.loading.messages import Loc
from visioneval.suite.model import Suite
from visioneval.suite.questions import dependency_problems, id_problems


def question_problems(view: View, broken: frozenset[str]) -> Found:
    """Problems of questions and of cells without a picture, where graders and judges are all there."""
    if not broken & {"graders", "judges"}:
        yield from _all_questions(view.suite)
        yield from _no_picture(view)


def _all_questions(suite: Suite) -> Found:
    """Problems of the questions of every case that a gecko grader asks about."""
    graders = [grader for grader in suite.graders if isinstance(grader, GeckoGrader)]
    for index, case in enumerate(suite.cases):
        asking = [grader for grader in graders if _is_for(grader, case)]
        told: set[tuple[Loc, str]] = set()
        for grader in asking:
            for problem in _questions(case, grader, recorded=_is_recorded(suite, grader)):
                if problem not in told:
                    told.add(problem)
                    yield ("cases", index, *problem[0]), problem[1]


def _is_for(grader: BaseGrader, case: TestCase) -> bool:
    fits = grader.when is None or grader.when.fits(case.id, case.task_type, case.tags)
    return fits and bool(grader.metrics(case))


def _is_recorded(suite: Suite, grader: GeckoGrader) -> bool:
    return isinstance(suite.judges.get(grader.judge), RecordedJudge)


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


def _no_picture(view: View) -> Found:
    """Graders that would look at cells without a picture."""
    suite = view.suite
    blind = [run for run in view.runs if not run.config.has_pictures]
    for index, entry in enumerate(suite.models):
        if entry.has_pictures:
            continue
        for grader in suite.graders:
            judge = suite.judges.get(grader.judge_name or "")
            cases = [case for case in suite.cases if any(run.config.does(case.task_type) for run in blind)]
            by_record = isinstance(grader, (GeckoGrader, RubricGrader)) and isinstance(judge, RecordedJudge)
            if not by_record and any(_is_for(grader, case) for case in cases):
                message = (
                    f"the grader {grader.key!r} looks at pictures: without any there are recorded answers only,"
                    " to a gecko or a rubric grader"
                )
                yield ("models", index, "pictures"), message


def prompt_problems(suite: Suite) -> Found:
    """Cases without a prompt that something draws or shows."""
    for index, case in enumerate(suite.cases):
        if not case.prompt and any(entry.has_pictures and entry.does(case.task_type) for entry in suite.models):
            written = "prompt" in case.model_fields_set
            loc: Loc = ("cases", index, "prompt") if written else ("cases", index)
            yield loc, "prompt: must not be empty" if written else "the key 'prompt' is missing"
