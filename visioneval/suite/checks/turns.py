"""Checks of turns: each edits the output of the turn before, so there must be one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from visioneval.suite.entries.providers import GeneratingProvider
from visioneval.suite.loading.messages import Loc
from visioneval.suite.model import Suite
from visioneval.types import ModelRun, TaskType


def turn_problems(suite: Suite, runs: Sequence[tuple[int, ModelRun]]) -> Iterator[tuple[Loc, str]]:
    """Turns without one output to edit: of a case that is no edit, after a refusal, or of several outputs per call.

    ``runs`` are the model runs, each with the index of its entry.
    """
    edited = {case.previous_turn for case in suite.cases} - {None}
    for index, case in enumerate(suite.cases):
        if "/" in case.id and case.task_type != TaskType.IMAGE_EDITING:
            yield ("cases", index), f"only an edit has turns, but the task of {case.id!r} is {case.task_type}"
        if case.id in edited and case.expect.refusal:
            message = "the next turn edits the output of this one: only the last turn can expect a refusal"
            yield ("cases", index, "expect", "refusal"), message
    for index, run in runs if edited else ():
        outputs, entry = run.config.outputs_per_call(dict(run.params)), suite.models[index]
        if outputs > 1 and entry.does(TaskType.IMAGE_EDITING):
            key = "grid" if isinstance(entry, GeneratingProvider) and "n" in entry.grid else "params"
            message = f"a turn edits one output, but a call of {run.label!r} generates {outputs}"
            yield ("models", index, key, "n"), f"{message}: use 'samples' instead of 'n'"
