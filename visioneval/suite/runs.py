"""The model runs of a suite, and which cases each has cells of. Reads datasets, nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from visioneval.suite.cases.case import TestCase
from visioneval.suite.cases.outputs import Finished, RunLabels
from visioneval.suite.entries.providers import BaseProvider
from visioneval.suite.model import Suite
from visioneval.suite.turns import first_turn
from visioneval.types import ModelRun, TaskType


def model_runs(entry: BaseProvider, suite: Suite, folder: Path, run_labels: RunLabels) -> list[ModelRun]:
    """Every model run of one entry of ``models``, in order: prompts vary fastest.

    Each has its own config with a label, one prompt at most and without a grid, so that the resolved suite expands to
    the same runs. Raises ``VisionEvalError`` if another run or a dataset cannot be read.
    """
    return [
        ModelRun(
            label,
            entry.provider_name,
            changes.get("params", {}),
            entry.model_copy(update={"label": label, **changes}),
        )
        for base, base_changes in entry.model_runs(suite.cases, folder, run_labels)
        for label, changes in _with_prompts(base, base_changes, entry, suite)
    ]


def _with_prompts(
    label: str, changes: dict[str, Any], entry: BaseProvider, suite: Suite
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Label and changes of a model run with each prompt of its entry that some case of its tasks has."""
    prompts = suite.prompts_of(entry)
    if not prompts:
        yield label, changes
    for prompt in prompts:
        if any(entry.does(case.task_type) and _decides_prompts(case) and prompt.is_for(case) for case in suite.cases):
            yield prompt.model_run_label(label), {**changes, "prompts": (prompt.label,)}


def _decides_prompts(case: TestCase) -> bool:
    """Whether a prompt is for a model run because of this case: no other case decides about it."""
    return case.output_of is None and case.previous_turn is None


class RunCoverage:
    """Which cases each model run of a suite has cells of: by its tasks, and by its prompt's ``when``.

    A case with ``output_of`` has the cells of the case that generates its outputs, and a later turn those of the first.
    """

    def __init__(self, suite: Suite) -> None:
        self._suite = suite
        has_scopes = any(prompt.when is not None for prompt in suite.prompts)
        self._generating = {case.id: case for case in suite.cases} if has_scopes else {}
        self._cases: dict[tuple[tuple[TaskType, ...], tuple[str, ...]], frozenset[int]] = {}

    def has_cells(self, entry: BaseProvider, case: TestCase) -> bool:
        """Whether a model run, or any model run of an entry that is not expanded, has cells of a case."""
        if not entry.does(case.task_type):
            return False
        if not self._generating or not (prompts := self._suite.prompts_of(entry)):
            return True
        generating = self._generating.get(first_turn(case.output_of or case.id), case)
        return any(prompt.is_for(generating) for prompt in prompts)

    def cases_of(self, entry: BaseProvider) -> frozenset[int]:
        """The indices of the cases that it has cells of. Computed once for all entries with the same ones."""
        prompts = self._suite.prompts_of(entry) if self._generating else ()
        key = (tuple(filter(entry.does, TaskType)), tuple(prompt.label for prompt in prompts))
        if key not in self._cases:
            indices = (index for index, case in enumerate(self._suite.cases) if self.has_cells(entry, case))
            self._cases[key] = frozenset(indices)
        return self._cases[key]


def dataset_outputs(run: ModelRun, suite: Suite, folder: Path) -> Finished:
    """The existing outputs of a model run in its dataset or in the cases' ``outputs``."""
    config: BaseProvider = run.config
    return config.existing_outputs(run.label, suite.cases, suite.vars, folder)
