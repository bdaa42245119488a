"""Checks of model runs without images, and of cases without a prompt."""

from __future__ import annotations

from visioneval.suite.checks.rules import Problems, SuiteContext
from visioneval.suite.loading.messages import Loc
from visioneval.suite.model import Suite


def no_image_problems(context: SuiteContext) -> Problems:
    """Graders that need an image where a model run has none."""
    suite = context.suite
    without_images = [run for run in context.runs if not run.config.has_outputs]
    for index, entry in enumerate(suite.models):
        if entry.has_outputs:
            continue
        for grader in suite.graders:
            judges = [suite.judges.get(name) for name in grader.judge_names]
            cases = [case for case in suite.cases if any(run.config.does(case.task_type) for run in without_images)]
            is_recorded = bool(judges) and all(judge is not None and judge.is_recorded for judge in judges)
            reads_records = grader.grades_records and is_recorded
            if not reads_records and any(grader.is_for(case) and grader.metrics(case) for case in cases):
                message = (
                    f"the grader {grader.key!r} needs images, but this model has none (outputs: none): use only gecko"
                    " or rubric graders with a recorded judge"
                )
                yield ("models", index, "outputs"), message


def prompt_problems(suite: Suite) -> Problems:
    """Cases without a prompt that some model generates or reads images for."""
    for index, case in enumerate(suite.cases):
        if not case.prompt and any(entry.has_outputs and entry.does(case.task_type) for entry in suite.models):
            is_written = "prompt" in case.model_fields_set
            loc: Loc = ("cases", index, "prompt") if is_written else ("cases", index)
            yield loc, "prompt: must not be empty" if is_written else "the key 'prompt' is missing"
