"""How many model runs and cells a suite stands for, worked out before any of them is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod

from visioneval.bounds import CELLS, MODEL_RUNS
from visioneval.suite.loading.messages import Loc
from visioneval.suite.model import Suite
from visioneval.suite.providers import BaseProvider, GeneratingProvider
from visioneval.types import ModelRun


def grid_problems(suite: Suite) -> Iterator[tuple[Loc, str]]:
    """Says where grids make more model runs than a suite may have; nothing is expanded for it."""
    sizes = [_combinations(entry) for entry in suite.models]
    if sum(sizes) <= MODEL_RUNS.limit:
        return
    largest = max(range(len(sizes)), key=sizes.__getitem__)
    has_grid = isinstance(entry := suite.models[largest], GeneratingProvider) and entry.grid
    loc: Loc = ("models", largest, "grid") if has_grid else ("models",)
    yield loc, f"the suite has {sum(sizes):,} model runs, over the limit of {MODEL_RUNS.limit:,} ({MODEL_RUNS.hint})"


def _combinations(entry: BaseProvider) -> int:
    return prod(map(len, entry.grid.values())) if isinstance(entry, GeneratingProvider) else 1


def cell_problem(suite: Suite, runs: Sequence[ModelRun]) -> str | None:
    """What is wrong with a suite of too many cells, ``None`` for any other."""
    cells = count_cells(suite, runs)
    if cells <= CELLS.limit:
        return None
    return (
        f"{len(suite.cases):,} cases on {len(runs):,} model runs make {cells:,} cells,"
        f" over the limit of {CELLS.limit:,} ({CELLS.hint})"
    )


def count_cells(suite: Suite, runs: Sequence[ModelRun]) -> int:
    """The cells of a suite. Finished images are read from files that are bounded: one a case is counted."""
    cases = Counter(case.task_type for case in suite.cases)
    return sum(
        many * _samples(run, suite.samples) for run in runs for task, many in cases.items() if run.config.does(task)
    )


def _samples(run: ModelRun, samples: int) -> int:
    config = run.config
    if config.reads_outputs:
        return samples if config.path_of("", "", 0) is not None or not config.has_outputs else 1
    if not isinstance(config, GeneratingProvider):
        return samples
    params = dict(run.params)
    if not isinstance(params.get("n") or 1, int):  # which is a problem of its own
        return samples
    return samples * config.outputs_per_call(params) * config.calls_per_sample(params)
