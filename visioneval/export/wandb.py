"""Weights & Biases: a group of runs, one for the whole run and one for each model run. Needs the extra ``wandb``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from visioneval.errors import TrackerError
from visioneval.export.tracked import (
    TrackedEntry,
    TrackedRun,
    client_environment,
    description,
    safe_names,
    shortened,
)
from visioneval.records.stores.lookup import copies_of
from visioneval.suite.tracking import WandbTracking

if TYPE_CHECKING:
    import wandb

INIT_TIMEOUT_S, FINISH_TIMEOUT_S = 30, 600
"""W&B's own defaults wait longer for a server that is down, and forever at the end."""
_BASE_URL = "https://api.wandb.ai"
_NO_ANSWER = "the service process is busy"
"""What W&B says of a server that cannot be reached."""
_MAX_NAME, _MAX_TAG = 128, 64


@contextmanager
def connect(target: WandbTracking, run: TrackedRun) -> Iterator[WandbTracker]:
    """W&B with the key of this machine, or its files for ``wandb sync``. Raises ``TrackerError`` and errors of W&B."""
    is_local = target.is_local or os.environ.get("WANDB_MODE") == "offline"
    with client_environment({"WANDB_SILENT": "true"}, {"WANDB_ERROR_REPORTING": "false"}):
        if not is_local:
            _check_key()
        with _folder(run.folder, is_local=is_local) as folder:
            yield WandbTracker(target, run, folder, is_local=is_local)


class WandbTracker:
    """Creates the runs of a group, or updates those of an earlier export."""

    def __init__(self, target: WandbTracking, run: TrackedRun, folder: Path, *, is_local: bool) -> None:
        self._target, self._run, self._folder, self._is_local = target, run, folder, is_local
        self._project = target.project or os.environ.get("WANDB_PROJECT") or shortened(run.experiment, _MAX_NAME)
        self._address = ""

    def send(self, entry: TrackedEntry, folder: Path) -> None:
        """Writes one run of W&B and waits until it was sent."""
        import wandb

        run = self._begin(entry)
        try:
            metrics = safe_names(entry.metrics, r"[\x00-\x1f]", _MAX_NAME)
            for name in run.summary.keys() - metrics.keys() - {"cells", "all_cells"}:
                if not name.startswith("_"):
                    del run.summary[name]
            run.summary.update(metrics)
            if self._run.cells is not None:
                # only the table of a model run has images, as W&B shows tables of a name side by side
                cells, label = self._run.cells, entry.label
                rows = (cells.columns, cells.without_images()) if label is None else cells.with_images(label, _image)
                run.log({"all_cells" if label is None else "cells": wandb.Table(*rows)})
            if entry.label is None:
                self._send_files(run, entry, folder)
        except BaseException:
            run.finish(exit_code=1)
            raise
        run.finish(exit_code=0 if self._run.is_finished else 1)
        if entry.label is None:
            self._address = str(run.url)

    def finish(self) -> str:
        """The address of the whole run, or its files."""
        files = self._folder / "wandb"
        return f"{files}, to be sent by: wandb sync {files}/offline-run-*" if self._is_local else self._address

    def _begin(self, entry: TrackedEntry) -> wandb.Run:
        import wandb

        run_id, tags = entry.digest[:16], entry.tags
        named = [tags[name] for name in ("visioneval.suite", "visioneval.result") if name in tags]
        flags = [name for name in ("incomplete", "selection") if f"visioneval.{name}" in tags]
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
            tags=[shortened(tag, _MAX_TAG) for tag in (*named, *flags)],
            config={**entry.params, **entry.tags},
            allow_val_change=True,
            settings=settings,
        )

    def _send_files(self, run: wandb.Run, entry: TrackedEntry, folder: Path) -> None:
        """Adds the report, the gates and the summary as an artifact; a new version only if they changed."""
        import wandb

        artifact = wandb.Artifact(f"visioneval-{entry.digest[:16]}", type="visioneval")
        for path in self._run.write_files(folder):
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
def _folder(run_folder: Path, *, is_local: bool) -> Iterator[Path]:
    """Where W&B writes its files: offline the run's folder, or the working directory for a run in a store."""
    if not is_local:
        with TemporaryDirectory() as name:
            yield Path(name)
        return
    given = os.environ.get("WANDB_DIR")
    yield Path(given) if given else run_folder if copies_of(run_folder) is None else Path.cwd()


def _image(data: bytes | None) -> wandb.Image | None:
    import wandb
    from PIL import Image

    return None if data is None else wandb.Image(Image.open(BytesIO(data)).convert("RGB"))
