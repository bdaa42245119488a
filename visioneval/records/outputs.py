"""Outputs of runs: existing ones, those that were changed after they were generated, and those that are on their way.

What a provider has begun for a cell is written down at once, in a small file among the outputs of the cell, so it is
where they are: in a store, on a cluster's shared folder, and in a merged run. A run that was killed finds it there and
asks for its end instead of paying again. That it has ended without an output is another file, as several workers may
write a run and no file of it may change.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from visioneval.records.model import CellKey, Record, RunInfo
from visioneval.records.reader import read_records
from visioneval.records.stores.lookup import fetch_outputs, find_run
from visioneval.records.untrusted import file_inside, is_inside
from visioneval.records.writer import OutputWriter, cells_folder
from visioneval.suite.entries.providers import BaseProvider
from visioneval.suite.files import ExistingOutput, Finished, RecordedOutput, split_run
from visioneval.suite.model import Suite
from visioneval.suite.runs import dataset_outputs
from visioneval.types import Frozen, ModelRun

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


PREFIX = "operation-"
MAX_NAME = 1000
"""Characters of an operation's name."""
_HASH_DIGITS = 12
_MAX_BYTES = 100_000


class Operation(Frozen):
    """An operation as its file says: ``name`` is what the provider calls it.

    ``key`` identifies its call, and where its video is delivered.
    """

    key: str
    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
    provider: str
    written_at: str
    ended: bool = False
    """Whether it ended without a usable output, so that the cell is to be generated again."""


@dataclass(frozen=True, slots=True)
class OperationFile:
    """Where the operations of one call are written down. Raises ``StorageError`` if they cannot be."""

    writer: OutputWriter
    test_id: str
    model_label: str
    provider: str
    samples: tuple[int, ...]
    key: str

    @property
    def _prefix(self) -> str:
        samples = "-".join(map(str, self.samples))
        return f"{PREFIX}{samples}-{_hash(self.key)}"

    def read(self) -> str | None:
        """The name of the operation that has begun for this call; ``None`` if there is none to ask for."""
        known = sorted(self._operations(), key=lambda operation: operation.written_at)
        ended = {operation.name for operation in known if operation.ended}
        return next((operation.name for operation in reversed(known) if operation.name not in ended), None)

    def _operations(self) -> Iterator[Operation]:
        folder = self.writer.folder / cells_folder(self.test_id, self.model_label)
        with suppress(OSError):
            for name in [path.name for path in folder.glob(f"{self._prefix}*.json")]:
                with suppress(ValidationError):
                    operation = Operation.model_validate_json(_read(self, name))
                    if (operation.key, operation.provider) == (self.key, self.provider):
                        yield operation

    def begin(self, name: str) -> None:
        """Writes an operation down. It is in a store when this returns, if the run is."""
        self._write(name, ended=False)
        self.writer.flush()

    def end(self, name: str) -> None:
        """Notes that an operation has no usable output."""
        self._write(name, ended=True)

    def _write(self, name: str, *, ended: bool) -> None:
        written_at = datetime.now(UTC).isoformat(timespec="microseconds")
        operation = Operation(key=self.key, name=name, provider=self.provider, written_at=written_at, ended=ended)
        data = operation.model_dump_json(indent=2).encode() + b"\n"
        file_name = f"{self._prefix}-{_hash(name)}{'-ended' if ended else ''}.json"
        self.writer.save(self.test_id, self.model_label, file_name, data)


@dataclass(frozen=True, slots=True)
class DownloadFiles:
    """Where the URLs of paid outputs of a case are written down that could not be read yet, by their SHA-256.

    They may be signed, so that no cache has them. Raises ``StorageError`` if they cannot be written.
    """

    writer: OutputWriter
    test_id: str
    model_label: str

    def read(self, digest: str) -> str | None:
        """A URL; ``None`` if this run does not have it."""
        with suppress(UnicodeDecodeError):
            url = _read(self, _download_name(digest)).decode()
            return url if url_digest(url) == digest else None
        return None

    def write(self, url: str) -> None:
        """Writes a URL down. It is in a store when this returns, if the run is."""
        self.writer.save(self.test_id, self.model_label, _download_name(url_digest(url)), url.encode())
        self.writer.flush()


def _read(files: OperationFile | DownloadFiles, name: str) -> bytes:
    """A small file of a cell; empty if it cannot be read."""
    path = file_inside(files.writer.folder, f"{cells_folder(files.test_id, files.model_label)}/{name}")
    with suppress(OSError):
        if path is not None and path.stat().st_size <= _MAX_BYTES:
            return path.read_bytes()
    return b""


def url_digest(url: str) -> str:
    """What stands for a URL where its signature must not be."""
    return sha256(url.encode()).hexdigest()


def _download_name(digest: str) -> str:
    return f"{PREFIX}download-{digest[:_HASH_DIGITS]}.txt"


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:_HASH_DIGITS]
