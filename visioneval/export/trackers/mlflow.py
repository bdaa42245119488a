"""MLflow: a run for the whole run, with a nested run for each model run. Needs the extra ``mlflow``."""

from __future__ import annotations

import csv
import json
import os
import posixpath
from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import islice, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from visioneval.errors import TrackerError
from visioneval.export.csv import csv_cell
from visioneval.export.trackers.cells import CellTable
from visioneval.export.trackers.content import (
    GATE,
    MODEL_RUN,
    PREFIX,
    RUN_ID,
    STARTED_AT,
    SafeNames,
    TrackedEntry,
    TrackedRun,
    description,
    shortened,
)
from visioneval.export.trackers.environment import client_environment
from visioneval.export.trackers.files import TrackedFiles
from visioneval.suite.tracking import MlflowTracking

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as MlflowRun

LIMITS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
}
"""Where the environment does not set them: MLflow's own defaults wait minutes for a server that is down."""
SETTINGS = {
    "MLFLOW_ALLOW_HTTP_REDIRECTS": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
"""Credentials and results go to the named host only, and MLflow prints nothing."""
MAX_PARAM, MAX_TAG, MAX_NAME = 6_000, 5_000, 250
_BATCH = 100
_CELLS, _ALL_CELLS = "cells.json", "all_cells.csv"
"""The tables of a model run, which MLflow compares, and of the whole run, which it shows."""


def send(target: MlflowTracking, run: TrackedRun, files: TrackedFiles) -> str:
    """Creates the runs of MLflow, or updates those of an earlier export. Returns the address of the first.

    Raises ``TrackerError`` and the errors of MLflow.
    """
    uri = target.uri or os.environ.get("MLFLOW_TRACKING_URI")
    if not uri:
        raise TrackerError("name the server: --option uri=http://HOST:PORT, or MLFLOW_TRACKING_URI")
    with client_environment(SETTINGS, LIMITS):
        from mlflow import MlflowClient

        return _MlflowSender(MlflowClient(uri), run).send(uri, files)


class _MlflowSender:
    """Sends one run."""

    def __init__(self, client: MlflowClient, run: TrackedRun) -> None:
        self._client, self._run = client, run
        self._experiment_id = self._experiment()
        self._earlier = self._earlier_runs()

    def send(self, uri: str, files: TrackedFiles) -> str:
        parent = self._entry(self._run.overall, None)
        for entry in self._run.model_runs:
            child = self._entry(entry, parent)
            self._files(child, files, entry.label)
            self._end(child)
        for leftover in self._earlier.values():  # of model runs that the run no longer has
            self._client.delete_run(leftover.info.run_id)
        self._files(parent, files, None)
        self._end(parent)
        is_web = uri.startswith(("http://", "https://"))
        return (
            f"{uri.rstrip('/')}/#/experiments/{self._experiment_id}/runs/{parent}" if is_web else f"{uri}, run {parent}"
        )

    def _experiment(self) -> str:
        name = shortened(self._run.experiment)
        existing = self._client.get_experiment_by_name(name)
        if existing is None:
            return str(self._client.create_experiment(name))
        if existing.lifecycle_stage == "deleted":
            raise TrackerError(f"the experiment {name!r} was deleted in MLflow: restore it, or name another")
        return str(existing.experiment_id)

    def _earlier_runs(self) -> dict[str | None, MlflowRun]:
        """The runs of an earlier export of the same run, by the label of the model run."""
        tags = self._run.overall.tags
        query = " and ".join(f"tags.`{name}` = '{tags[name]}'" for name in (RUN_ID, STARTED_AT))
        runs = self._client.search_runs([self._experiment_id], query, max_results=10_000)
        return {run.data.tags.get(MODEL_RUN): run for run in runs}

    def _entry(self, entry: TrackedEntry, parent: str | None) -> str:
        """Creates or updates the run of an entry and returns its ID.

        MLflow cannot change or remove a parameter or a metric, so a run with others is replaced.
        """
        params, metrics = _params(entry.params), _metrics(entry.metrics)
        tags = _tags(entry, parent, description(self._run) if parent is None else "")
        earlier = self._earlier.pop(tags.get(MODEL_RUN), None)
        if earlier is not None and (earlier.data.params != params or not earlier.data.metrics.keys() <= metrics.keys()):
            self._client.delete_run(earlier.info.run_id)
            earlier = None
        if earlier is None:
            started = int(self._run.started.timestamp() * 1000)
            name = shortened(entry.name, MAX_NAME)
            created = self._client.create_run(self._experiment_id, started, tags=tags, run_name=name)
            run_id = created.info.run_id
        else:
            run_id = earlier.info.run_id
            self._client.update_run(run_id, status="RUNNING")
            for name in earlier.data.tags.keys() - tags.keys():
                if name.startswith((PREFIX, GATE)):
                    self._client.delete_tag(run_id, name)
        self._log(run_id, params, metrics, tags)
        return str(run_id)

    def _log(
        self, run_id: str, params: Mapping[str, str], metrics: Mapping[str, float], tags: Mapping[str, str]
    ) -> None:
        from mlflow.entities import Metric, Param, RunTag

        at = int((self._run.ended or self._run.started).timestamp() * 1000)
        batches = zip_longest(
            _batches(Metric(name, float(value), at, 0) for name, value in metrics.items()),
            _batches(Param(name, value) for name, value in params.items()),
            _batches(RunTag(name, value) for name, value in tags.items()),
            fillvalue=(),
        )
        for metric_batch, param_batch, tag_batch in batches:
            self._client.log_batch(run_id, metric_batch, param_batch, tag_batch)

    def _files(self, run_id: str, files: TrackedFiles, label: str | None) -> None:
        """Sends the table of a model run with images, or the report and the whole table without."""
        with TemporaryDirectory() as name:
            folder = Path(name)
            if label is None:
                files.write(folder)
            if files.table is not None:
                _write_table(files.table, label, folder)
            if files.table is not None and label is not None:
                logged = [{"path": _CELLS, "type": "table"}]
                self._client.set_tag(run_id, "mlflow.loggedArtifacts", json.dumps(logged))
            self._client.log_artifacts(run_id, name)

    def _end(self, run_id: str) -> None:
        ended = self._run.ended
        status = "FINISHED" if self._run.info.state == "complete" else "KILLED"
        self._client.set_terminated(run_id, status, None if ended is None else int(ended.timestamp() * 1000))


def _batches(entities: Iterator[Any]) -> Iterator[list[Any]]:
    while batch := list(islice(entities, _BATCH)):
        yield batch


def _names(values: Mapping[str, Any]) -> dict[str, Any]:
    unique_paths = {
        name if posixpath.normpath(name) == name else name.replace("/", "_"): value for name, value in values.items()
    }
    return SafeNames(r"[^\w.\- /]|^[/.]+", MAX_NAME).mapping(unique_paths)


def _params(params: Mapping[str, str]) -> dict[str, str]:
    return {name: shortened(value, MAX_PARAM) for name, value in _names(params).items()}


def _metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in _names(metrics).items()}


def _tags(entry: TrackedEntry, parent: str | None, text: str) -> dict[str, str]:
    tags = {**entry.tags, "mlflow.source.name": "visioneval", "mlflow.note.content": text}
    if parent is not None:
        tags["mlflow.parentRunId"] = parent
    if "visioneval.git_commit" in tags:
        tags["mlflow.source.git.commit"] = tags["visioneval.git_commit"]
    return {name: shortened(value, MAX_TAG) for name, value in tags.items() if value}


def _write_table(table: CellTable, label: str | None, folder: Path) -> None:
    """Writes the cells of a model run as MLflow stores tables, with images beside it; those of the whole run as CSV."""
    if label is None:
        with (folder / _ALL_CELLS).open("w", encoding="utf-8", newline="") as file:
            rows = csv.DictWriter(file, table.columns, extrasaction="ignore")
            rows.writeheader()
            rows.writerows({name: csv_cell(value) for name, value in row.values.items()} for row in table.rows)
        return
    names = [name for name in table.columns if name != "model run"]
    data = []
    for row in table.rows_of(label):
        first, *rest = (row.values[name] for name in names)
        data.append([first, _image_cell(table.image(row), folder), *rest])
    content = {"columns": [names[0], "image", *names[1:]], "data": data}
    (folder / _CELLS).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def _image_cell(image: bytes | None, folder: Path) -> dict[str, str] | None:
    if image is None:
        return None
    name = f"table_images/{sha256(image).hexdigest()[:24]}.webp"
    (folder / "table_images").mkdir(exist_ok=True)
    (folder / name).write_bytes(image)
    return {"type": "image", "filepath": name, "compressed_filepath": name}
