"""MLflow: a run for the whole run, with a nested run for each model run. Needs the extra ``mlflow``."""

from __future__ import annotations

import csv
import json
import os
import posixpath
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visioneval.errors import TrackerError
from visioneval.export.table import csv_value
from visioneval.export.tracked import (
    GATE,
    MODEL_RUN,
    PREFIX,
    RUN_ID,
    STARTED_AT,
    TrackedEntry,
    TrackedRun,
    client_environment,
    description,
    safe_names,
    shortened,
    write_image,
)
from visioneval.suite.tracking import MlflowTracking

if TYPE_CHECKING:
    from mlflow import MlflowClient

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


@contextmanager
def connect(target: MlflowTracking, run: TrackedRun) -> Iterator[MlflowTracker]:
    """The server of a target, or that of the environment. Raises ``TrackerError`` and the errors of MLflow."""
    uri = target.uri or os.environ.get("MLFLOW_TRACKING_URI")
    if not uri:
        raise TrackerError("name the server: --option uri=http://HOST:PORT, or MLFLOW_TRACKING_URI")
    with client_environment(SETTINGS, LIMITS):
        from mlflow import MlflowClient

        yield MlflowTracker(MlflowClient(uri), uri, run)


class MlflowTracker:
    """Creates the runs of MLflow, or updates those of an earlier export."""

    def __init__(self, client: MlflowClient, uri: str, run: TrackedRun) -> None:
        self._client, self._uri, self._run = client, uri, run
        self._experiment_id = self._experiment()
        tags = run.entries[0].tags
        query = " and ".join(f"tags.`{name}` = '{tags[name]}'" for name in (RUN_ID, STARTED_AT))
        runs = client.search_runs([self._experiment_id], query, max_results=10_000)
        self._earlier = {earlier.data.tags.get(MODEL_RUN): earlier for earlier in runs}
        self._parent = ""

    def send(self, entry: TrackedEntry, folder: Path) -> None:
        """Sends a model run with a table with images, or the whole run with the report and a table without."""
        run_id = self._write(entry)
        cells = self._run.cells
        if entry.label is None:
            self._parent = run_id
            self._run.write_files(folder)
            if cells is not None:
                with (folder / _ALL_CELLS).open("w", encoding="utf-8", newline="") as file:
                    rows = csv.writer(file)
                    rows.writerow(cells.columns)
                    rows.writerows(map(csv_value, row) for row in cells.without_images())
        elif cells is not None:

            def image_cell(image: bytes | None) -> dict[str, str] | None:
                name = write_image(image, folder / "table_images")
                path = f"table_images/{name}"
                return None if name is None else {"type": "image", "filepath": path, "compressed_filepath": path}

            columns, data = cells.with_images(entry.label, image_cell, without="model run")
            content = json.dumps({"columns": columns, "data": data}, ensure_ascii=False)
            (folder / _CELLS).write_text(content, encoding="utf-8")
            self._client.set_tag(run_id, "mlflow.loggedArtifacts", json.dumps([{"path": _CELLS, "type": "table"}]))
        self._client.log_artifacts(run_id, str(folder))
        if entry.label is not None:
            self._end(run_id)

    def finish(self) -> str:
        """Deletes the runs of model runs that the run no longer has, and ends the whole run."""
        for leftover in self._earlier.values():
            self._client.delete_run(leftover.info.run_id)
        self._end(self._parent)
        if not self._uri.startswith(("http://", "https://")):
            return f"{self._uri}, run {self._parent}"
        return f"{self._uri.rstrip('/')}/#/experiments/{self._experiment_id}/runs/{self._parent}"

    def _experiment(self) -> str:
        name = shortened(self._run.experiment)
        existing = self._client.get_experiment_by_name(name)
        if existing is None:
            return str(self._client.create_experiment(name))
        if existing.lifecycle_stage == "deleted":
            raise TrackerError(f"the experiment {name!r} was deleted in MLflow: restore it, or name another")
        return str(existing.experiment_id)

    def _write(self, entry: TrackedEntry) -> str:
        """Creates or updates the run of an entry and returns its ID."""
        from mlflow.entities import Metric, Param, RunTag

        params, metrics, tags = mlflow_params(entry.params), mlflow_metrics(entry.metrics), self._tags(entry)
        earlier = self._earlier.pop(entry.label, None)
        # MLflow cannot change or remove parameters and metrics
        if earlier is not None and (earlier.data.params != params or not earlier.data.metrics.keys() <= metrics.keys()):
            self._client.delete_run(earlier.info.run_id)
            earlier = None
        if earlier is None:
            name = shortened(entry.name, MAX_NAME)
            started = _milliseconds(self._run.info.started_at)
            run_id = str(self._client.create_run(self._experiment_id, started, tags=tags, run_name=name).info.run_id)
        else:
            run_id = str(earlier.info.run_id)
            self._client.update_run(run_id, status="RUNNING")
            for name in earlier.data.tags.keys() - tags.keys():
                if name.startswith((PREFIX, GATE)):
                    self._client.delete_tag(run_id, name)
        at = _milliseconds(self._run.info.ended_at or self._run.info.started_at)
        entities = (
            [Metric(name, value, at, 0) for name, value in metrics.items()],
            [Param(name, value) for name, value in params.items()],
            [RunTag(name, value) for name, value in tags.items()],
        )
        for start in range(0, max(map(len, entities)), _BATCH):
            self._client.log_batch(run_id, *(part[start : start + _BATCH] for part in entities))
        return run_id

    def _tags(self, entry: TrackedEntry) -> dict[str, str]:
        tags = {**entry.tags, "mlflow.source.name": "visioneval"}
        tags["mlflow.note.content"] = description(self._run) if entry.label is None else ""
        tags["mlflow.parentRunId"] = self._parent
        tags["mlflow.source.git.commit"] = tags.get("visioneval.git_commit", "")
        return {name: shortened(value, MAX_TAG) for name, value in tags.items() if value}

    def _end(self, run_id: str) -> None:
        ended = self._run.info.ended_at
        status = "FINISHED" if self._run.is_finished else "KILLED"
        self._client.set_terminated(run_id, status, _milliseconds(ended) if ended else None)


def mlflow_params(params: Mapping[str, str]) -> dict[str, str]:
    """Parameters as MLflow accepts them."""
    return {name: shortened(value, MAX_PARAM) for name, value in _names(params).items()}


def mlflow_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    """Metrics as MLflow accepts them."""
    return {name: float(value) for name, value in _names(metrics).items()}


def _names(values: Mapping[str, Any]) -> dict[str, Any]:
    unique_paths = {
        name if posixpath.normpath(name) == name else name.replace("/", "_"): value for name, value in values.items()
    }
    return safe_names(unique_paths, r"[^\w.\- /]|^[/.]+", MAX_NAME)


def _milliseconds(written: str) -> int:
    return int(datetime.fromisoformat(written).astimezone().timestamp() * 1000)
