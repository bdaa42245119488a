"""Vertex AI Experiments: an experiment run for the whole run and one for each model run.

Google's client keeps an experiment run as a context of the project's metadata store. Three of its REST calls do that
without the client, which would need 60 packages more. Needs the extra ``vertex``.
"""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from visioneval.export.trackers.content import (
    RUN_ID,
    STARTED_AT,
    SafeNames,
    TrackedEntry,
    TrackedRun,
    description,
    shortened,
)
from visioneval.export.trackers.files import TrackedFiles
from visioneval.export.trackers.google_rest import GoogleSession
from visioneval.suite.remote import GoogleCloud
from visioneval.suite.tracking import VertexTracking

STORAGE = "https://storage.googleapis.com"
MAX_PARAM, MAX_ENTRIES = 500, 300
"""Characters of a parameter, and parameters or metrics of an experiment run: a context has at most 200 kB."""
_MAX_DESCRIPTION = 2_000
_VERSION = "0.0.1"
_TYPES = {".html": "text/html", ".json": "application/json", ".webp": "image/webp"}


def send(target: VertexTracking, run: TrackedRun, files: TrackedFiles) -> str:
    """Creates the runs of an experiment, or updates those of an earlier export. Returns the experiment's page.

    Raises ``TrackerError``.
    """
    with GoogleSession() as session:
        sender = _VertexSender(session, target, run)
        sender.send()
        if target.bucket is not None:
            sender.upload(files, target.bucket)
    return (
        f"https://console.cloud.google.com/vertex-ai/experiments/locations/{target.location}/experiments"
        f"/{sender.experiment}/runs?project={target.project}"
    )


class _VertexSender:
    """Sends one run."""

    def __init__(self, session: GoogleSession, target: VertexTracking, run: TrackedRun) -> None:
        self._session, self._run = session, run
        self.experiment = _slug(run.experiment, 60)
        host = GoogleCloud(project=target.project, location=target.location).url
        self._store = f"projects/{target.project}/locations/{target.location}/metadataStores/default"
        self._base = f"{host}/v1"

    def send(self) -> None:
        """Writes all entries, and deletes those of model runs that the run no longer has."""
        self._ensure_store()
        if self._get(self.experiment) is None:
            metadata = {"experiment_deleted": False}
            self._create(self.experiment, "system.Experiment", {"displayName": self.experiment, "metadata": metadata})
        earlier = (self._get(self._id_of(self._run.overall)) or {}).get("metadata", {}).get("visioneval_model_runs", [])
        current = [self._id_of(entry) for entry in self._run.model_runs]
        for entry in self._run.entries:
            self._write(entry, {"visioneval_model_runs": current} if entry.label is None else {})
        for context_id in earlier:
            if context_id not in current and str(context_id).startswith(f"{self.experiment}-"):
                self._session.call("DELETE", self._url(str(context_id)), missing=True)

    def upload(self, files: TrackedFiles, folder: str) -> None:
        """Uploads report, gates, summary, table and images, and links the folder to the run."""
        bucket, _, prefix = folder.removeprefix("gs://").rstrip("/").partition("/")
        run_id = self._id_of(self._run.overall)
        prefix = f"{prefix}/{run_id}" if prefix else run_id
        with TemporaryDirectory() as name:
            paths = [*files.write(Path(name)), *_write_table(files, Path(name), f"gs://{bucket}/{prefix}")]
            for path in paths:
                target = quote(f"{prefix}/{path.name}", safe="")
                url = f"{STORAGE}/upload/storage/v1/b/{bucket}/o?uploadType=media&name={target}"
                self._session.call("POST", url, data=path.read_bytes(), content_type=_TYPES[path.suffix])
        self._link(run_id, f"gs://{bucket}/{prefix}")

    def _ensure_store(self) -> None:
        url = f"{self._base}/{self._store}"
        if self._session.call("GET", url, missing=True) is None:
            created = self._session.call(
                "POST", f"{url.rpartition('/')[0]}?metadataStoreId=default", {"description": "Vertex AI Experiments"}
            )
            self._session.wait(f"{self._base}/{(created or {}).get('name')}")

    def _write(self, entry: TrackedEntry, extra: dict[str, Any]) -> None:
        context_id, ended = self._id_of(entry), self._run.info.state == "complete"
        body: dict[str, Any] = {
            "displayName": context_id.removeprefix(f"{self.experiment}-"),
            "description": shortened(description(self._run) if entry.label is None else entry.label, _MAX_DESCRIPTION),
            "metadata": {
                "_params": _bounded(SafeNames(r"[\x00-\x1f]", 200).mapping({**entry.params, **entry.tags})),
                "_metrics": _bounded(SafeNames(r"[\x00-\x1f]", 200).mapping(entry.metrics)),
                "_state": "COMPLETE" if ended else "CANCELLED",
                **extra,
            },
        }
        existing = self._get(context_id)
        if existing is None:
            existing = self._create(context_id, "system.ExperimentRun", body)
        else:
            self._session.call("PATCH", f"{self._url(context_id)}?updateMask=displayName,description,metadata", body)
        parent = f"{self._store}/contexts/{self.experiment}"
        if not any(str(name).endswith(f"/contexts/{self.experiment}") for name in existing.get("parentContexts", ())):
            children = {"childContexts": [f"{self._store}/contexts/{context_id}"]}
            self._session.call("POST", f"{self._base}/{parent}:addContextChildren", children)

    def _link(self, context_id: str, uri: str) -> None:
        artifact = f"{self._store}/artifacts/{context_id}"
        if self._session.call("GET", f"{self._base}/{artifact}", missing=True) is None:
            body = {"displayName": "report", "uri": uri, "schemaTitle": "system.Artifact", "schemaVersion": _VERSION}
            self._session.call("POST", f"{self._base}/{self._store}/artifacts?artifactId={context_id}", body)
        self._session.call(
            "POST", f"{self._url(context_id)}:addContextArtifactsAndExecutions", {"artifacts": [artifact]}
        )

    def _get(self, context_id: str) -> dict[str, Any] | None:
        return self._session.call("GET", self._url(context_id), missing=True)

    def _create(self, context_id: str, schema: str, body: dict[str, Any]) -> dict[str, Any]:
        url = f"{self._base}/{self._store}/contexts?contextId={context_id}"
        return self._session.call("POST", url, {**body, "schemaTitle": schema, "schemaVersion": _VERSION}) or {}

    def _url(self, context_id: str) -> str:
        return f"{self._base}/{self._store}/contexts/{context_id}"

    def _id_of(self, entry: TrackedEntry) -> str:
        """The same for every export of a run, so that a later one updates it."""
        parts = (entry.tags[RUN_ID], entry.tags[STARTED_AT], entry.label)
        digest = sha256(json.dumps(parts).encode()).hexdigest()[:8]
        return f"{self.experiment}-{_slug(entry.name, 40)}-{digest}"


def _slug(name: str, longest: int) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower())[:longest].strip("-") or "run"


def _bounded(values: dict[str, Any]) -> dict[str, Any]:
    entries = list(values.items())[:MAX_ENTRIES]
    return {name: shortened(value, MAX_PARAM) if isinstance(value, str) else value for name, value in entries}


def _write_table(files: TrackedFiles, folder: Path, uri: str) -> list[Path]:
    """Writes the cells as JSON, with the addresses of their images, and the images."""
    if files.table is None:
        return []
    rows, paths = [], {}
    for row in files.table.rows:
        image = files.table.image(row)
        name = None if image is None else f"{sha256(image).hexdigest()[:24]}.webp"
        if image is not None and name is not None and name not in paths:
            paths[name] = folder / name
            paths[name].write_bytes(image)
        rows.append(
            {"image": name and f"{uri}/{name}", **{column: row.values[column] for column in files.table.columns}}
        )
    table = folder / "cells.json"
    table.write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
    return [table, *paths.values()]
