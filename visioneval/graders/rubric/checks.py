"""Checks of rubric graders."""

from __future__ import annotations

from collections.abc import Sequence

from visioneval.graders.rubric.config import RubricGrader
from visioneval.suite.checks.rules import Problems, SuiteContext, empty_scope
from visioneval.suite.entries.graders import is_video
from visioneval.suite.model import Suite


def problems(suite: Suite, graders: Sequence[tuple[int, RubricGrader]]) -> Problems:
    """Yields a problem for each grader with ``zoom`` and a case with a video."""
    for index, grader in graders:
        if grader.zoom is None:
            continue
        when = grader.when
        cases = (case for case in suite.cases if when is None or when.fits(case.id, case.task_type, case.tags))
        videos = (case.id for case in cases if is_video(case))
        if name := next(videos, None):
            yield ("graders", index, "zoom"), f"zoom works on images only, but the case {name!r} is about a video"


def run_problems(view: SuiteContext, graders: Sequence[tuple[int, RubricGrader]]) -> Problems:
    """Yields a problem for each metric with a scope that matches no case."""
    for index, grader in graders:
        for name, metric in grader.asked.items():
            loc = ("graders", index, "metrics", name, "when")
            messages = list(empty_scope(view, metric.when)) if metric.when else []
            yield from ((loc, message) for message in messages)
            cases = (case for case in view.suite.cases if grader.is_for(case))
            if metric.when and not messages and not any(name in grader.metrics(case) for case in cases):
                yield loc, f"no case of the grader {grader.key!r} has the metric {name!r}: check its scope"


def warnings(_: Suite, graders: Sequence[tuple[int, RubricGrader]]) -> Problems:
    """Yields a warning for each even number of votes."""
    for index, grader in graders:
        if grader.votes % 2 == 0:
            has_words = any(metric.type == "one_of" for metric in grader.asked.values())
            message = (
                f"{grader.votes} votes can be tied: the first vote then decides, or the mean of the two middle scores;"
                f" {grader.votes + 1} votes {'are tied more rarely' if has_words else 'cannot'}"
            )
            yield ("graders", index, "votes"), message
