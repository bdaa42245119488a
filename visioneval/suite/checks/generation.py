"""Checks of what model runs are asked to generate: parameters and input images that do not fit their cases."""

from __future__ import annotations

from collections.abc import Sequence

from visioneval.suite.cases.case import SIZE, TestCase
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
    sized = {
        at for at, case in enumerate(suite.cases) if case.expect.size == "requested" and _measures_size(suite, case)
    }
    problems: dict[tuple[Loc, str], None] = {}
    for index, run, (_, cases) in zip(entries, context.runs, context.labels, strict=True):
        if cases:
            problems |= dict.fromkeys(_unused_params(suite, index, run, {tasks[at] for at in cases}))
        for at in sorted(videos & cases):
            if message := run.config.inputs_problem(run.params, suite.cases[at]):
                problems[("cases", at, "images"), message] = None
        problems |= dict.fromkeys(_unknown_sizes(run, sorted(sized & cases)))
    yield from problems


def _measures_size(suite: Suite, case: TestCase) -> bool:
    """Whether a grader compares the size of a case's output with the expected one."""
    graders = (grader for grader in suite.graders if grader.is_for(case))
    return any(f"{grader.key}.size" in grader.metrics(case) for grader in graders)


def _unknown_sizes(run: ModelRun, cases: Sequence[int]) -> Problems:
    """Cases that expect the size that was requested, where a model run requests none.

    The mock has a size of its own, and a class may report one.
    """
    size = run.params.get("size")
    if run.config.stand_in or ":" in run.provider or (isinstance(size, str) and SIZE.fullmatch(size)):
        return
    requests = "no size" if size is None else f"the size {size!r:.60}"
    for at in cases:
        message = f"expect.size is 'requested', but the model run {run.label!r} requests {requests}"
        yield ("cases", at, "expect", "size"), f"{message}: write the size, as in 1024x1536"


def _unused_params(suite: Suite, index: int, run: ModelRun, tasks: set[TaskType]) -> Problems:
    entry = suite.models[index]
    grid = entry.grid if isinstance(entry, GeneratingProvider) else {}
    for name, message in run.config.unused_params(run.params, tasks):
        yield ("models", index, "grid" if name in grid else "params", name), message
