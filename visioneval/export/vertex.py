"""Vertex AI Experiments: an experiment run for the whole run and one for each model run.

Google's client keeps an experiment run as a context of the project's metadata store. Three of its REST calls do that
without the client, which would need 60 packages more. Needs the extra ``vertex``.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlsplit

from visioneval.errors import TrackerError
from visioneval.export.tracked import TrackedEntry, TrackedRun, description, safe_names, shortened, write_image
from visioneval.report.text import one_line
from visioneval.suite.remote import GoogleCloud
from visioneval.suite.tracking import VertexTracking

STORAGE = "https://storage.googleapis.com"
MAX_PARAM, MAX_ENTRIES = 500, 300
"""Characters of a parameter, and parameters or metrics of an experiment run: a context has at most 200 kB."""
_MAX_DESCRIPTION = 2_000
_VERSION = "0.0.1"
TIMEOUT_S = 30.0
_WAITS_S = (1.0, 3.0)
"""Before each further attempt of a call that failed for now."""
_FOR_NOW = (429, 500, 502, 503, 504)
_POLLS = 30
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_TYPES = {".html": "text/html", ".json": "application/json", ".webp": "image/webp"}


@contextmanager
def connect(target: VertexTracking, run: TrackedRun) -> Iterator[VertexTracker]:
    """The project of a target with the machine's credentials. Raises ``TrackerError``."""
    with GoogleSession() as session:
        yield VertexTracker(session, target, run)


class VertexTracker:
    """Creates the runs of an experiment, or updates those of an earlier export."""

    def __init__(self, session: GoogleSession, target: VertexTracking, run: TrackedRun) -> None:
        self._session, self._run, self._target = session, run, target
        self._experiment = _slug(run.experiment, 60)
        host = GoogleCloud(project=target.project, location=target.location).url
        self._store = f"projects/{target.project}/locations/{target.location}/metadataStores/default"
        self._base = f"{host}/v1"
        self._run_id = self._id_of(run.entries[0])
        self._model_runs = [self._id_of(entry) for entry in run.entries[1:]]
        self._ensure_store()
        if self._get(self._experiment) is None:
            body = {"displayName": self._experiment, "metadata": {"experiment_deleted": False}}
            self._create(self._experiment, "system.Experiment", body)
        self._earlier = (self._get(self._run_id) or {}).get("metadata", {}).get("visioneval_model_runs", [])

    def send(self, entry: TrackedEntry, folder: Path) -> None:
        """Writes an entry. With the whole run, uploads the files to the bucket, if there is one."""
        self._write(entry)
        if entry.label is None and self._target.bucket is not None:
            self._upload(folder, self._target.bucket)

    def finish(self) -> str:
        """Deletes the entries of model runs that the run no longer has. Returns the experiment's page."""
        for context_id in map(str, self._earlier):
            if context_id not in self._model_runs and context_id.startswith(f"{self._experiment}-"):
                self._session.call("DELETE", self._url(context_id), missing=True)
        return (
            f"https://console.cloud.google.com/vertex-ai/experiments/locations/{self._target.location}/experiments"
            f"/{self._experiment}/runs?project={self._target.project}"
        )

    def _upload(self, folder: Path, target: str) -> None:
        """Uploads report, gates, summary, table and images, and links the folder of the bucket to the run."""
        bucket, _, prefix = target.removeprefix("gs://").rstrip("/").partition("/")
        prefix = f"{prefix}/{self._run_id}" if prefix else self._run_id
        uri = f"gs://{bucket}/{prefix}"
        self._run.write_files(folder)
        if (cells := self._run.cells) is not None:
            # the cells as JSON, with the addresses of their images, and the images
            names = [write_image(cells.image(cell), folder) for cell in cells.cells]
            images = [name and f"{uri}/{name}" for name in names]
            rows = zip(images, cells.without_images(), strict=True)
            table = [{"image": image, **dict(zip(cells.columns, row, strict=True))} for image, row in rows]
            (folder / "cells.json").write_text(json.dumps(table, ensure_ascii=False), encoding="utf-8")
        for path in sorted(folder.iterdir()):
            name = quote(f"{prefix}/{path.name}", safe="")
            url = f"{STORAGE}/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}"
            self._session.call("POST", url, data=path.read_bytes(), content_type=_TYPES[path.suffix])
        artifact = f"{self._store}/artifacts/{self._run_id}"
        if self._session.call("GET", f"{self._base}/{artifact}", missing=True) is None:
            body = {"displayName": "report", "uri": uri, "schemaTitle": "system.Artifact", "schemaVersion": _VERSION}
            self._session.call("POST", f"{self._base}/{self._store}/artifacts?artifactId={self._run_id}", body)
        link = f"{self._url(self._run_id)}:addContextArtifactsAndExecutions"
        self._session.call("POST", link, {"artifacts": [artifact]})

    def _ensure_store(self) -> None:
        url = f"{self._base}/{self._store}"
        if self._session.call("GET", url, missing=True) is None:
            created = self._session.call(
                "POST", f"{url.rpartition('/')[0]}?metadataStoreId=default", {"description": "Vertex AI Experiments"}
            )
            self._session.wait(f"{self._base}/{(created or {}).get('name')}")

    def _write(self, entry: TrackedEntry) -> None:
        context_id, is_whole = self._id_of(entry), entry.label is None
        body: dict[str, Any] = {
            "displayName": context_id.removeprefix(f"{self._experiment}-"),
            "description": shortened(description(self._run) if is_whole else entry.name, _MAX_DESCRIPTION),
            "metadata": {
                "_params": _bounded({**entry.params, **entry.tags}),
                "_metrics": _bounded(entry.metrics),
                "_state": "COMPLETE" if self._run.is_finished else "CANCELLED",
                **({"visioneval_model_runs": self._model_runs} if is_whole else {}),
            },
        }
        existing = self._get(context_id)
        if existing is None:
            existing = self._create(context_id, "system.ExperimentRun", body)
        else:
            self._session.call("PATCH", f"{self._url(context_id)}?updateMask=displayName,description,metadata", body)
        parent = f"{self._store}/contexts/{self._experiment}"
        if not any(str(name).endswith(f"/contexts/{self._experiment}") for name in existing.get("parentContexts", ())):
            children = {"childContexts": [f"{self._store}/contexts/{context_id}"]}
            self._session.call("POST", f"{self._base}/{parent}:addContextChildren", children)

    def _get(self, context_id: str) -> dict[str, Any] | None:
        return self._session.call("GET", self._url(context_id), missing=True)

    def _create(self, context_id: str, schema: str, body: dict[str, Any]) -> dict[str, Any]:
        url = f"{self._base}/{self._store}/contexts?contextId={context_id}"
        return self._session.call("POST", url, {**body, "schemaTitle": schema, "schemaVersion": _VERSION}) or {}

    def _url(self, context_id: str) -> str:
        return f"{self._base}/{self._store}/contexts/{context_id}"

    def _id_of(self, entry: TrackedEntry) -> str:
        return f"{self._experiment}-{_slug(entry.name, 40)}-{entry.digest[:8]}"


def _slug(name: str, longest: int) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower())[:longest].strip("-") or "run"


def _bounded(values: Mapping[str, Any]) -> dict[str, Any]:
    entries = list(safe_names(values, r"[\x00-\x1f]", 200).items())[:MAX_ENTRIES]
    return {name: shortened(value, MAX_PARAM) if isinstance(value, str) else value for name, value in entries}


class GoogleSession:
    """JSON calls with the machine's credentials, to hosts of Google only: redirects are not followed."""

    def __init__(self) -> None:
        """Raises ``TrackerError`` without credentials."""
        import google.auth
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import AuthorizedSession

        try:
            credentials, _ = google.auth.default(scopes=[_SCOPE])
        except GoogleAuthError as error:
            hint = "run gcloud auth application-default login"
            raise TrackerError(f"vertex: no Google credentials: {hint} ({one_line(str(error), 160)})") from None
        self._session: Any = AuthorizedSession(credentials, refresh_timeout=TIMEOUT_S)  # type: ignore[no-untyped-call]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def call(
        self,
        method: str,
        url: str,
        body: dict[str, Any] | None = None,
        *,
        data: bytes | None = None,
        content_type: str | None = None,
        missing: bool = False,
    ) -> dict[str, Any] | None:
        """The JSON answer of a call; ``None`` for 404 if it may be ``missing``. Raises ``TrackerError``."""
        from google.auth.exceptions import GoogleAuthError
        from requests import RequestException

        parts = {"json": body, "data": data, "headers": {"content-type": content_type} if content_type else None}
        for wait in (*_WAITS_S, None):
            try:
                answer = self._session.request(method, url, **parts, timeout=TIMEOUT_S, allow_redirects=False)
            except (RequestException, GoogleAuthError) as error:
                problem, is_final = str(error), False
            else:
                if answer.status_code < 300:
                    return dict(answer.json()) if answer.content else {}
                if missing and answer.status_code == 404:
                    return None
                try:
                    message = str(answer.json()["error"]["message"])
                except (ValueError, KeyError, TypeError):
                    message = str(answer.text)[:300]
                problem, is_final = f"{answer.status_code} {message}", answer.status_code not in _FOR_NOW
            if wait is None or is_final:
                break
            time.sleep(wait)
        raise TrackerError(f"vertex: {urlsplit(url).hostname}: {one_line(problem)}")

    def wait(self, url: str) -> None:
        """Waits for an operation. Raises ``TrackerError``."""
        for _ in range(_POLLS):
            operation = self.call("GET", url) or {}
            if "error" in operation:
                raise TrackerError(f"vertex: {one_line(str(operation['error'].get('message')))}")
            if operation.get("done"):
                return
            time.sleep(1)
        raise TrackerError("vertex: the metadata store of the project is not ready: try again later")
