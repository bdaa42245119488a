"""The model runs of a suite, which cases each has cells of, how many, and outputs that need no download."""

from __future__ import annotations

import mimetypes
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from visioneval.bounds import CELLS, MODEL_RUNS
from visioneval.suite.cases.case import TestCase
from visioneval.suite.cases.outputs import Finished, RunLabels
from visioneval.suite.entries.graders import BaseGrader
from visioneval.suite.entries.judges import BaseJudge
from visioneval.suite.entries.providers import BaseProvider, GeneratingProvider
from visioneval.suite.findings import Loc
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


def grid_problems(suite: Suite) -> Iterator[tuple[Loc, str]]:
    """Reports grids and prompts that result in too many model runs, without expanding them."""
    grids = [entry.grid if isinstance(entry, GeneratingProvider) else {} for entry in suite.models]
    sizes = [
        prod(map(len, grid.values())) * max(1, len(suite.prompts_of(entry)))
        for grid, entry in zip(grids, suite.models, strict=True)
    ]
    if sum(sizes) <= MODEL_RUNS.limit:
        return
    largest = max(range(len(sizes)), key=sizes.__getitem__)
    loc: Loc = ("models", largest, "grid") if grids[largest] else ("models",)
    yield (
        loc,
        f"the suite has {sum(sizes):,} model runs, over the limit of {MODEL_RUNS.limit:,} ({MODEL_RUNS.hint})",
    )


def cell_problem(suite: Suite, runs: Sequence[ModelRun]) -> str | None:
    """The message for a suite with too many cells; ``None`` otherwise."""
    cells = count_cells(suite, runs)
    if cells <= CELLS.limit:
        return None
    return (
        f"{len(suite.cases):,} cases on {len(runs):,} model runs result in {cells:,} cells,"
        f" over the limit of {CELLS.limit:,} ({CELLS.hint})"
    )


def count_cells(suite: Suite, runs: Sequence[ModelRun]) -> int:
    """The number of cells of a suite. Existing outputs count once per case, since their files are bounded."""
    coverage = RunCoverage(suite)
    return sum(len(coverage.cases_of(run.config)) * samples_of(run, suite.samples) for run in runs)


def samples_of(run: ModelRun, samples: int) -> int:
    """The number of cells of a case on a model run. Existing outputs count once, since their files are bounded."""
    config = run.config
    if config.reads_outputs:
        return samples if config.path_of("", "", 0) is not None or not config.has_outputs else 1
    if not isinstance(config, GeneratingProvider):
        return samples
    params = dict(run.params)
    if not isinstance(params.get("n") or 1, int):  # reported separately
        return samples
    return samples * config.outputs_per_call(params) * config.calls_per_sample(params)


def address_of(params: Mapping[str, Any]) -> str | None:
    """The URI under which Gemini can read an existing output."""
    path = params.get("path")
    return path if isinstance(path, str) and path.startswith("gs://") else None


def addressed(
    params: Mapping[str, Any], graders: Iterable[BaseGrader], judges: Mapping[str, BaseJudge]
) -> Mapping[str, Any]:
    """The parameters of an existing output, with ``by_address`` if it need not be downloaded.

    This is the case if its type is known and every grader has only judges that read remote URIs.
    """
    path = address_of(params)
    mime = params.get("mime") or (mimetypes.guess_type(path)[0] if path else None)
    if path is None or mime is None or not all(_reads_addresses(grader, judges) for grader in graders):
        return params
    return {**params, "mime": mime, "by_address": True}


def _reads_addresses(grader: BaseGrader, judges: Mapping[str, BaseJudge]) -> bool:
    used = [judges.get(name) for name in grader.judge_names]
    return grader.needs_no_bytes and bool(used) and all(judge is not None and judge.watches for judge in used)
