"""Checks of what model runs are asked to generate: parameters and input images that do not fit their cases."""

from __future__ import annotations

from collections.abc import Sequence

from visioneval.suite.checks.rules import Problems, SuiteContext
from visioneval.suite.entries.providers import GeneratingProvider
from visioneval.suite.loading.messages import Loc
from visioneval.suite.model import Suite
from visioneval.types import ModelRun, TaskType


def generation_problems(context: SuiteContext, entries: Sequence[int]) -> Problems:
    """Yields parameters that do nothing, and images that a model does not take. ``entries`` has the index of each run's
    entry of ``models``.
    """
    suite = context.suite
    tasks = [case.task_type for case in suite.cases]
    with_images = (index for index, case in enumerate(suite.cases) if case.images)
    videos = {index for index in with_images if tasks[index] is TaskType.VIDEO_GENERATION}
    problems: dict[tuple[Loc, str], None] = {}
    for index, run, (_, cases) in zip(entries, context.runs, context.labels, strict=True):
        if cases:
            problems |= dict.fromkeys(_unused_params(suite, index, run, {tasks[at] for at in cases}))
        for at in sorted(videos & cases):
            if message := run.config.inputs_problem(run.params, suite.cases[at]):
                problems[("cases", at, "images"), message] = None
    yield from problems


def _unused_params(suite: Suite, index: int, run: ModelRun, tasks: set[TaskType]) -> Problems:
    entry = suite.models[index]
    grid = entry.grid if isinstance(entry, GeneratingProvider) else {}
    for name, message in run.config.unused_params(run.params, tasks):
        yield ("models", index, "grid" if name in grid else "params", name), message
