"""Outputs of runs: those of a ``files`` model run, and those that were changed after they were generated."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from visioneval.records.model import CellKey, Record, RunInfo
from visioneval.records.reader import read_records
from visioneval.records.run_folders import file_inside, is_inside
from visioneval.records.stores.lookup import fetch_outputs, find_run
from visioneval.suite.entries.providers import BaseProvider
from visioneval.suite.files import ExistingOutput, Finished, RecordedOutput, split_run
from visioneval.suite.model import Suite
from visioneval.suite.runs import dataset_outputs
from visioneval.types import ModelRun

MARGIN_S = 60.0
"""By how much the clock of the run may differ from that of the file system."""


def writing_ended(info: RunInfo) -> float:
    """The POSIX time after which the run wrote no outputs.

    If it was killed, it did not record its end: the time at which it was last started. 0 if the time is in the future,
    because the clock was wrong.
    """
    text = info.ended_at or [info.started_at, *info.resumed_at][-1]
    moment = datetime.fromisoformat(text)
    ended = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return ended if ended <= time.time() + MARGIN_S else 0.0


def changed_outputs(records: Iterable[Record], folder: Path, since: float) -> dict[CellKey, str]:
    """The paths of the outputs in the run ``folder`` whose hash is not that of their record, by cell.

    Reads only files that were modified, replaced or copied after the POSIX time ``since``, less a margin. A missing
    file is not changed; an unreadable one is.
    """
    suspects = [
        (record, path)
        for record in records
        if record.artifact_sha256
        and (path := file_inside(folder, record.artifact_path)) is not None
        and may_be_changed(path, since)
    ]
    with ThreadPoolExecutor() as pool:
        digests = pool.map(digest_of, (path for _, path in suspects))
        return {
            record.cell: str(record.artifact_path)
            for (record, _), digest in zip(suspects, digests, strict=True)
            if digest != record.artifact_sha256
        }


def may_be_changed(path: Path, since: float) -> bool:
    """Whether a file was modified, replaced or copied after the POSIX time ``since``, less a margin."""
    try:
        status = path.stat()
    except OSError:
        return True
    return max(status.st_ctime, status.st_mtime) > since - MARGIN_S  # no tool can set st_ctime, copying keeps st_mtime


def digest_of(path: Path) -> str | None:
    """The SHA-256 of a file; ``None`` if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def existing_outputs(run: ModelRun, suite: Suite, folder: Path, root: Path) -> Finished:
    """The outputs of another run, a dataset or the cases; none for a pattern. Raises ``VisionEvalError``."""
    config: BaseProvider = run.config
    if config.source_run is None:
        return dataset_outputs(run, suite, folder)
    name, label = split_run(config.source_run)
    source = find_run(name, root)
    fetch_outputs(source)
    outputs: dict[str, dict[int, ExistingOutput | None]] = {}
    for record in read_records(source):
        if record.model_label == label:
            output = None
            if record.artifact_path and is_inside(source, record.artifact_path):  # not if it is a link to the outside
                path = str(source.absolute() / record.artifact_path)
                output = RecordedOutput(path=path, sha256=record.artifact_sha256 or "")
            outputs.setdefault(record.test_id, {})[record.sample_index] = output
    return {case: [samples.get(index) for index in range(max(samples) + 1)] for case, samples in outputs.items()}
