"""Detects outputs that were changed after they were generated, such as an image that was overwritten."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from visioneval.records.files.links import file_inside
from visioneval.records.model import CellKey, Record, RunInfo

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
    return _changed_at(path) > since - MARGIN_S


def _changed_at(path: Path) -> float:
    """When a file was last changed. No tool can set ``st_ctime``, while copying may keep ``st_mtime``."""
    try:
        status = path.stat()
    except OSError:
        return float("inf")
    return max(status.st_ctime, status.st_mtime)


def digest_of(path: Path) -> str | None:
    """The SHA-256 of a file; ``None`` if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
