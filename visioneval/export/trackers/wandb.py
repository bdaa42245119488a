"""Weights & Biases: a group of runs, one for the whole run and one for each model run. Needs the extra ``wandb``."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from visioneval.errors import TrackerError
from visioneval.export.trackers.cells import CellTable
from visioneval.export.trackers.content import (
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
from visioneval.records.stores.locations import copies_of
from visioneval.suite.tracking import WandbTracking

if TYPE_CHECKING:
    import wandb

INIT_TIMEOUT_S, FINISH_TIMEOUT_S = 30, 600
"""W&B's own defaults wait longer for a server that is down, and forever at the end."""
_BASE_URL = "https://api.wandb.ai"
_NO_ANSWER = "the service process is busy"
"""What W&B says of a server that cannot be reached."""
_MAX_NAME, _MAX_TAG = 128, 64


def send(target: WandbTracking, run: TrackedRun, files: TrackedFiles) -> str:
    """Creates the runs of a group, or updates those of an earlier export. Returns where they are.

    Raises ``TrackerError`` and the errors of W&B.
    """
    is_local = target.is_local or os.environ.get("WANDB_MODE") == "offline"
    with client_environment({"WANDB_SILENT": "true"}, {"WANDB_ERROR_REPORTING": "false"}):
        if not is_local:
            _check_key()
        with _folder(files, is_local=is_local) as folder:
            sender = _WandbSender(target, run, files, folder, is_local=is_local)
            addresses = [sender.send_entry(entry) for entry in run.entries]
    if is_local:
        return f"{folder / 'wandb'}, to be sent by: wandb sync {folder / 'wandb'}/offline-run-*"
    return addresses[0]


class _WandbSender:
    """Sends one run."""

    def __init__(
        self, target: WandbTracking, run: TrackedRun, files: TrackedFiles, folder: Path, *, is_local: bool
    ) -> None:
        self._target, self._run, self._files, self._folder, self._is_local = target, run, files, folder, is_local
        self._project = target.project or os.environ.get("WANDB_PROJECT") or shortened(run.experiment, _MAX_NAME)

    def send_entry(self, entry: TrackedEntry) -> str:
        """Writes one run of W&B and waits until it was sent. Returns its address, empty offline."""
        run = self._begin(entry)
        try:
            metrics = SafeNames(r"[\x00-\x1f]", _MAX_NAME).mapping(entry.metrics)
            for name in run.summary.keys() - metrics.keys() - {"cells", "all_cells"}:
                if not name.startswith("_"):
                    del run.summary[name]
            run.summary.update(metrics)
            if self._files.table is not None:
                name = "all_cells" if entry.label is None else "cells"
                run.log({name: _table(self._files.table, entry.label)})
            if entry.label is None:
                self._send_files(run)
        except BaseException:
            run.finish(exit_code=1)
            raise
        run.finish(exit_code=0 if self._run.info.state == "complete" else 1)
        return "" if self._is_local else str(run.url)

    def _begin(self, entry: TrackedEntry) -> wandb.Run:
        import wandb

        run_id = _id_of(entry)
        if self._is_local:
            for earlier in (self._folder / "wandb").glob(f"offline-run-*-{run_id}"):
                shutil.rmtree(earlier, ignore_errors=True)
        settings = wandb.Settings(
            console="off",
            disable_git=True,
            disable_job_creation=True,
            finish_timeout=FINISH_TIMEOUT_S,
            finish_timeout_raises=True,
            init_timeout=INIT_TIMEOUT_S,
            reinit="create_new",
            save_code=False,
            silent=True,
            x_disable_machine_info=True,
            x_disable_stats=True,
            x_save_requirements=False,
        )
        return wandb.init(
            project=self._project,
            entity=self._target.entity,
            dir=str(self._folder.absolute()),  # its service may have another working directory
            mode="offline" if self._is_local else "online",
            id=run_id,
            resume="allow",
            name=shortened(entry.name, _MAX_NAME),
            group=self._run.info.run_id,
            job_type="run" if entry.label is None else "model run",
            notes=description(self._run) if entry.label is None else None,
            tags=_tags(entry),
            config={**entry.params, **entry.tags},
            allow_val_change=True,
            settings=settings,
        )

    def _send_files(self, run: wandb.Run) -> None:
        """Adds the report, the gates and the summary as an artifact; a new version only if they changed."""
        import wandb

        artifact = wandb.Artifact(f"visioneval-{_id_of(self._run.overall)}", type="visioneval")
        with TemporaryDirectory() as folder:
            for path in self._files.write(Path(folder)):
                artifact.add_file(str(path), policy="mutable")
        run.log_artifact(artifact)


def _check_key() -> None:
    """Raises ``TrackerError`` without a key, for which W&B would ask, and if its server does not answer."""
    import wandb
    from wandb.errors import CommError

    try:
        has_key = wandb.login(prompt=False)
    except CommError as error:
        if _NO_ANSWER not in str(error):
            raise
        host = urlsplit(os.environ.get("WANDB_BASE_URL") or _BASE_URL).hostname
        raise TrackerError(f"wandb: {host} does not answer: check the network and WANDB_BASE_URL") from None
    if not has_key:
        raise TrackerError("wandb: no API key: set WANDB_API_KEY or run wandb login; offline: --option mode=offline")


@contextmanager
def _folder(files: TrackedFiles, *, is_local: bool) -> Iterator[Path]:
    """Where W&B writes its files: offline the run's folder, or the working directory for a run in a store."""
    if not is_local:
        with TemporaryDirectory() as name:
            yield Path(name)
        return
    given = os.environ.get("WANDB_DIR")
    yield Path(given) if given else files.folder if copies_of(files.folder) is None else Path.cwd()


def _id_of(entry: TrackedEntry) -> str:
    """The same for every export of a run, so that a later one updates it."""
    parts = (entry.tags[RUN_ID], entry.tags[STARTED_AT], entry.label)
    return sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _tags(entry: TrackedEntry) -> list[str]:
    names = ("visioneval.suite", "visioneval.result")
    flags = ("incomplete", "selection")
    tags = [entry.tags[name] for name in names if name in entry.tags]
    return [
        shortened(tag, _MAX_TAG) for tag in [*tags, *(flag for flag in flags if f"visioneval.{flag}" in entry.tags)]
    ]


def _table(table: CellTable, label: str | None) -> Any:
    """Cells as a table of W&B. Only that of a model run has images, as W&B shows tables of a name side by side."""
    import wandb

    names: list[str] = list(table.columns)
    if label is None:
        return wandb.Table(names, [[row.values[name] for name in names] for row in table.rows])
    data = []
    for row in table.rows_of(label):
        first, *rest = (row.values[name] for name in names)
        data.append([first, _image(table.image(row)), *rest])
    return wandb.Table([names[0], "image", *names[1:]], data)


def _image(data: bytes | None) -> wandb.Image | None:
    import wandb
    from PIL import Image

    return None if data is None else wandb.Image(Image.open(BytesIO(data)).convert("RGB"))
