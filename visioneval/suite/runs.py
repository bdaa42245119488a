"""The model runs of a suite: sweeps expanded, and finished images found by label. Pure but for reading datasets."""

from __future__ import annotations

from pathlib import Path

from visioneval.suite.model import Suite
from visioneval.suite.outputs import Finished, RunLabels
from visioneval.suite.providers import BaseProvider
from visioneval.types import ModelRun


def model_runs(entry: BaseProvider, suite: Suite, folder: Path, run_labels: RunLabels) -> list[ModelRun]:
    """Every model run that one entry of ``models:`` stands for, in order.

    Each has a config of its own with its label and no sweep left, so that the resolved suite expands to the same.
    Raises ``VisionEvalError`` where another run or a dataset cannot be read.
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
    """The images that a model run finds in its own dataset, or in the cases' ``outputs``."""
    config: BaseProvider = run.config
    return config.existing_outputs(run.label, suite.cases, suite.vars, folder)
