"""Counts the model runs and cells of a suite before expanding it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from visioneval.bounds import CELLS, MODEL_RUNS
from visioneval.suite.entries.providers import BaseProvider, GeneratingProvider
from visioneval.suite.loading.messages import Loc
from visioneval.suite.model import Suite
from visioneval.suite.runs import RunCoverage
from visioneval.types import ModelRun


def grid_problems(suite: Suite) -> Iterator[tuple[Loc, str]]:
    """Reports grids and prompts that result in too many model runs, without expanding them."""
    sizes = [_combinations(entry) * max(1, len(suite.prompts_of(entry))) for entry in suite.models]
    if sum(sizes) <= MODEL_RUNS.limit:
        return
    largest = max(range(len(sizes)), key=sizes.__getitem__)
    has_grid = isinstance(entry := suite.models[largest], GeneratingProvider) and entry.grid
    loc: Loc = ("models", largest, "grid") if has_grid else ("models",)
    yield (
        loc,
        f"the suite has {sum(sizes):,} model runs, over the limit of {MODEL_RUNS.limit:,} ({MODEL_RUNS.hint})",
    )


def _combinations(entry: BaseProvider) -> int:
    return prod(map(len, entry.grid.values())) if isinstance(entry, GeneratingProvider) else 1


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
