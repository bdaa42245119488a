"""The model runs of a suite: sweeps expanded, and finished pictures found by label. Pure but for reading datasets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from visioneval.errors import UsageError
from visioneval.media.urls import is_url
from visioneval.suite.loading.datasets import Row, file_stem, prompt_id, read_cell_rows
from visioneval.suite.loading.paths import located, rebased
from visioneval.suite.model import Suite
from visioneval.suite.outputs import FinishedPicture, picture_of_cell
from visioneval.suite.prompts import rendered
from visioneval.suite.providers import BaseProvider, DrawingProvider, FilesProvider, PictureDataset
from visioneval.suite.sweep import grid_sweep
from visioneval.types import ModelRun

RunLabels = Callable[[str], Sequence[str]]
"""Labels of the model runs of a finished run, by RUN; raises a ``VisionEvalError`` where there is no such run."""


def split_run(text: str) -> tuple[str, str | None]:
    """``RUN@label`` as run and label; ``RUN`` alone means all of its model runs."""
    run, _, label = text.partition("@")
    return run, label or None


def model_runs(entry: BaseProvider, suite: Suite, folder: Path, run_labels: RunLabels) -> list[ModelRun]:
    """Every model run that one entry of ``models:`` stands for, in order.

    Each has a config of its own with its label and no sweep left, so that the resolved suite expands to the same.
    Raises ``VisionEvalError`` where another run or a dataset cannot be read.
    """
    if isinstance(entry, DrawingProvider):
        sweep = grid_sweep(entry.base_label, entry.params, entry.grid)
        return [_run(entry, label, params=params, grid={}) for label, params in sweep]
    if not isinstance(entry, FilesProvider):
        return [_run(entry, entry.base_label)]
    if entry.run is not None:
        run, label = split_run(entry.run)
        labels = [label] if label else run_labels(run)
        return [_run(entry, entry.label if label and entry.label else each, run=f"{run}@{each}") for each in labels]
    if entry.dataset is not None:
        return [_run(entry, label) for label in _dataset_labels(entry.dataset, entry.label, folder)]
    if entry.path is not None or not entry.has_pictures:
        return [_run(entry, entry.base_label)]
    labels = list(dict.fromkeys(label for case in suite.cases for label in case.pictures))
    return [_run(entry, label) for label in labels if entry.label in (None, label)]


def _run(entry: BaseProvider, label: str, **changes: Any) -> ModelRun:
    config = entry.model_copy(update={"label": label, **changes})
    return ModelRun(label, str(getattr(entry, "provider", "")), changes.get("params", {}), config)


def _dataset_labels(dataset: PictureDataset, wanted: str | None, folder: Path) -> list[str]:
    rows = dataset_rows(dataset, folder)
    column = dataset.fields.get("model")
    if column is None:
        return [wanted or file_stem(dataset.path)]
    labels = dict.fromkeys(str(row.cells[column]) for row in rows if row.cells.get(column) not in (None, ""))
    return [label for label in labels if wanted in (None, label)]


def dataset_rows(dataset: PictureDataset, folder: Path) -> Sequence[Row]:
    """The rows of a dataset of finished pictures. Raises as ``read_rows``; an unchanged file is read once."""
    path = located(dataset.path, folder)
    if isinstance(path, str):
        return _rows(path, dataset.path, (0, 0))
    try:
        now = path.stat()
        return _rows(path, dataset.path, (now.st_mtime_ns, now.st_size))
    except OSError as error:
        raise UsageError((error.strerror or str(error)).lower()) from None


@lru_cache(maxsize=2)
def _rows(path: Path | str, name: str, _state: tuple[int, int]) -> Sequence[Row]:
    return read_cell_rows(path, name)


Finished = Mapping[str, Sequence[FinishedPicture | None]]
"""Finished pictures, whose paths are from the suite's folder, by case id, in sample order."""


def dataset_pictures(run: ModelRun, suite: Suite, folder: Path) -> Finished:
    """The pictures that a ``files`` model run finds in its own dataset, or in the cases' ``pictures``."""
    config: FilesProvider = run.config
    if config.dataset is None:
        return {case.id: case.pictures[run.label] for case in suite.cases if run.label in case.pictures}
    found: dict[str, list[FinishedPicture]] = {}
    name = config.dataset.path
    start = name if is_url(name) else (folder / name).parent
    for key, cell, row in _rows_of(config.dataset, run.label, suite, folder):
        raw = picture_of_cell(cell, row)
        if "path" in raw:
            raw["path"] = rebased(raw["path"], start, folder)
        found.setdefault(key, []).append(FinishedPicture.model_validate(raw))
    return found


def _rows_of(dataset: PictureDataset, label: str, suite: Suite, folder: Path) -> Iterator[tuple[str, Any, str]]:
    """Case, picture cell and place of every row of a model run that meets a case."""
    fields = dataset.fields
    by_prompt = _ids_by_prompt(suite) if "prompt" in fields else {}
    for row in dataset_rows(dataset, folder):
        cell = {key: "" if (value := row.cells.get(column)) is None else str(value) for key, column in fields.items()}
        if "model" in fields and cell["model"] != label:
            continue
        key = cell.get("id") or by_prompt.get(prompt_id(cell.get("prompt", "")), "")
        if key:
            yield key, row.cells.get(fields["image"]), f"{dataset.path}:{row.line}"


def _ids_by_prompt(suite: Suite) -> dict[str, str]:
    return {prompt_id(rendered(case, suite.vars)[0]): case.id for case in suite.cases if case.picture_of is None}
