"""The model runs of a suite: expands sweeps and looks up existing outputs by label. Reads datasets, nothing else."""

from __future__ import annotations

from pathlib import Path

from visioneval.suite.cases.outputs import Finished, RunLabels
from visioneval.suite.entries.providers import BaseProvider
from visioneval.suite.model import Suite
from visioneval.types import ModelRun


def model_runs(entry: BaseProvider, suite: Suite, folder: Path, run_labels: RunLabels) -> list[ModelRun]:
    """Every model run of one entry of ``models``, in order.

    Each has its own config with a label and without a grid, so that the resolved suite expands to the same runs.
    Raises ``VisionEvalError`` if another run or a dataset cannot be read.
    """
    return [
        ModelRun(
            label,
            entry.provider_name,
            changes.get("params", {}),
            entry.model_copy(update={"label": label, **changes}),
        )
        for label, changes in entry.model_runs(suite.cases, folder, run_labels)
    ]


def dataset_outputs(run: ModelRun, suite: Suite, folder: Path) -> Finished:
    """The existing outputs of a model run in its dataset or in the cases' ``outputs``."""
    config: BaseProvider = run.config
    return config.existing_outputs(run.label, suite.cases, suite.vars, folder)
