"""Checks of cells without an image, and of cases without a prompt."""

from __future__ import annotations

from visioneval.suite.checks.rules import Found, SuiteContext
from visioneval.suite.loading.messages import Loc
from visioneval.suite.model import Suite


def no_image_problems(view: SuiteContext) -> Found:
    """Graders that would look at cells without an image."""
    suite = view.suite
    blind = [run for run in view.runs if not run.config.has_outputs]
    for index, entry in enumerate(suite.models):
        if entry.has_outputs:
            continue
        for grader in suite.graders:
            judge = suite.judges.get(grader.judge_name or "")
            cases = [case for case in suite.cases if any(run.config.does(case.task_type) for run in blind)]
            by_record = grader.grades_records and judge is not None and judge.is_recorded
            if not by_record and any(grader.is_for(case) and grader.metrics(case) for case in cases):
                message = (
                    f"the grader {grader.key!r} looks at images: without any there are recorded answers only,"
                    " to a gecko or a rubric grader"
                )
                yield ("models", index, "outputs"), message


def prompt_problems(suite: Suite) -> Found:
    """Cases without a prompt that something generates or shows."""
    for index, case in enumerate(suite.cases):
        if not case.prompt and any(entry.has_outputs and entry.does(case.task_type) for entry in suite.models):
            written = "prompt" in case.model_fields_set
            loc: Loc = ("cases", index, "prompt") if written else ("cases", index)
            yield loc, "prompt: must not be empty" if written else "the key 'prompt' is missing"
