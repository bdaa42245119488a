"""Copies on this machine of the runs at a URL. Reading brings a copy up to date first, and transfers only what is new.

The store is the truth: what a writer has not sent yet is not in a copy, and a copy can be deleted at any time.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from visioneval.atomic import write_whole
from visioneval.errors import RunFormatError, StorageError, UsageError
from visioneval.records.files.jsonl import append_lines
from visioneval.records.stores.claims import read_claim
from visioneval.records.stores.environment import HOME
from visioneval.records.stores.segments import (
    DOCUMENTS,
    LOGS,
    OUTPUTS,
    SegmentName,
    effective,
    is_run_id,
    is_safe_key,
    new_writer,
    parse_segments,
)
from visioneval.records.stores.store import ObjectStore, StoredObject, in_threads

_COPY_BYTES = 1 << 20


@dataclass(slots=True)
class LogState:
    """Which objects a file of a copy was joined from, and its size."""

    objects: list[str] = field(default_factory=list)
    bytes: int = 0


@dataclass(slots=True)
class CopyState:
    """What a copy contains, by the names and versions of the objects."""

    documents: dict[str, str] = field(default_factory=dict)
    logs: dict[str, LogState] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    is_claimed: bool = False
    """Whether a live process writes the run."""


_STATE: TypeAdapter[CopyState] = TypeAdapter(CopyState)


def home() -> Path:
    """The folder for copies of stores: ``VISIONEVAL_STORES``, or ``visioneval-stores`` in the user's cache folder."""
    if named := os.environ.get(HOME):
        return Path(named).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "visioneval-stores"


def folder_for(url: str) -> Path:
    """The folder of this machine that belongs to a URL."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", url.partition("://")[2])[:60].strip("-")
    return home() / f"{readable}-{hashlib.sha256(url.encode()).hexdigest()[:10]}"


class RunCopies:
    """The runs at one URL. ``root`` has a copy of each that was read, ``work`` a folder for each written here."""

    def __init__(self, url: str) -> None:
        """Makes no call. Raises ``UsageError`` for a URL that cannot be used."""
        self.store = ObjectStore(url)
        self.url = self.store.url
        folder = folder_for(self.url)
        self.root, self.work, self._states = folder / "runs", folder / "work", folder / "state"
        self._writers: dict[str, SegmentName] = {}
        try:
            for path in (self.root, self.work, self._states):
                path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"{folder}: cannot keep copies of {self.url} here: {error.strerror or error}: set {HOME} to"
                " another folder"
            ) from None

    def run_ids(self) -> list[str]:
        """The ids of all runs. Raises ``UsageError`` if the bucket cannot be listed."""
        ids = [item.name for item in self.store.entries() if item.is_folder and is_run_id(item.name)]
        if not ids:
            self.store.check_readable()
        return ids

    def refresh_headers(self) -> None:
        """Brings ``run.json`` of all runs up to date, and deletes the copies of runs that are gone."""
        ids = self.run_ids()
        for path in self.root.iterdir():
            if path.name not in ids:
                shutil.rmtree(path, ignore_errors=True)
        headers = [item for items in in_threads(self.store.entries, ids) for item in items if item.name == "run.json"]
        changed = []
        for item in headers:
            run_id = item.key.partition("/")[0]
            state = self._state(run_id)
            if state.documents.get("run.json") != item.version or not (self.root / run_id / "run.json").is_file():
                changed.append(item)
        self.store.download(changed, lambda item: self.root / item.key)

    def refresh(self, run_id: str) -> Path:
        """Brings the copy of a run up to date, without its outputs. Returns its folder. Raises ``UsageError``."""
        folder = self.root / run_id
        with self.locked(run_id) as state:
            items = {item.name: item for item in self.store.entries(run_id)}
            if "run.json" not in items or items["run.json"].is_folder:
                raise UsageError(f"{self.url}/{run_id}: there is no such run")
            folder.mkdir(exist_ok=True)
            (folder / OUTPUTS).mkdir(exist_ok=True)
            self._refresh_documents(folder, items, state)  # before the records, which a complete run has all of
            for log in LOGS:
                self._refresh_log(run_id, log, items, state)
            is_open = "claims" in items and _says_running(folder / "run.json")
            claim = read_claim(self.store, run_id) if is_open else None
            state.is_claimed = claim is not None and claim.is_live(datetime.now(UTC))
        return folder

    def is_claimed(self, run_id: str) -> bool:
        """Whether a live process wrote the run when its copy was brought up to date."""
        return self._state(run_id).is_claimed

    def fetch_outputs(self, run_id: str) -> None:
        """Downloads the outputs of a run that its copy lacks or that have changed."""
        with self.locked(run_id) as state:
            items = self._outputs(run_id)
            changed = [
                item
                for item in items
                if state.outputs.get(item.key) != item.version or not (self.root / item.key).is_file()
            ]
            self.store.download(changed, lambda item: self.root / item.key)
            state.outputs = {item.key: item.version for item in items}

    def complete_outputs(self, run_id: str) -> None:
        """Downloads what other machines have sent into the folder in which a run is written."""
        missing = [item for item in self._outputs(run_id) if not (self.work / item.key).is_file()]
        self.store.download(missing, lambda item: self.work / item.key)

    def _outputs(self, run_id: str) -> list[StoredObject]:
        items = self.store.walk(f"{run_id}/{OUTPUTS}")
        for item in items:
            if not is_safe_key(item.key):
                raise RunFormatError(f"{self.url}/{item.key}: is not a valid path: move this object away")
        return items

    def append(self, run_id: str, log: str, lines: Sequence[bytes]) -> None:
        """Appends lines to a log of a run: in the store, then in the copy. Raises ``StorageError``."""
        if not lines:
            return
        with self.locked(run_id) as state:
            names = [item.name for item in self.store.entries(f"{run_id}/{log}")]
            known = parse_segments(names, f"{self.url}/{run_id}/{log}")
            writer = self._writers.get(f"{run_id}/{log}")
            if (
                writer is None or not known or known[-1] > writer
            ):  # so that the last answer is also the last in the store
                writer = new_writer(known)
            segment = writer.next()
            self.store.put(f"{run_id}/{log}/{segment}", b"".join(line + b"\n" for line in lines))
            self._writers[f"{run_id}/{log}"] = segment
            path = self.root / run_id / f"{log}.jsonl"
            append_lines(path, lines)
            joined = state.logs.setdefault(log, LogState())
            joined.objects.append(str(segment))
            joined.bytes = path.stat().st_size

    @contextmanager
    def locked(self, run_id: str) -> Iterator[CopyState]:
        """The state of a copy, which other processes do not change meanwhile. It is saved at the end."""
        try:
            with (self._states / f"{run_id}.lock").open("ab") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                state = self._state(run_id)
                try:
                    yield state
                finally:
                    write_whole(self._states / f"{run_id}.json", _STATE.dump_json(state))
        except OSError as error:
            raise StorageError(f"{self.root / run_id}: cannot write: {error.strerror or error}") from error

    def _state(self, run_id: str) -> CopyState:
        with suppress(OSError, ValidationError):
            return _STATE.validate_json((self._states / f"{run_id}.json").read_bytes())
        return CopyState()

    def _refresh_documents(self, folder: Path, items: dict[str, StoredObject], state: CopyState) -> None:
        for name in DOCUMENTS:
            item = items.get(name)
            if item is None or item.is_folder:
                (folder / name).unlink(missing_ok=True)
                state.documents.pop(name, None)
            elif state.documents.get(name) != item.version or not (folder / name).is_file():
                self.store.download([item], lambda item: folder / item.name)
                state.documents[name] = item.version

    def _refresh_log(self, run_id: str, log: str, items: dict[str, StoredObject], state: CopyState) -> None:
        """Joins the segments of a log, after the file of a run that was copied from a folder, if there is one."""
        path = self.root / run_id / f"{log}.jsonl"
        listed = self.store.entries(f"{run_id}/{log}") if log in items else []
        by_name = {item.name: item for item in listed}
        segments = effective(parse_segments(by_name, f"{self.url}/{run_id}/{log}"))
        sources = {str(segment): by_name[str(segment)] for segment in segments}
        whole_file = items.get(path.name)
        if whole_file is not None and not (segments and segments[0].is_whole):
            sources = {f"{path.name} {whole_file.version}": whole_file, **sources}
        joined = state.logs.get(log, LogState())
        names, size = list(sources), path.stat().st_size if path.is_file() else -1
        is_grown = bool(joined.objects) and size == joined.bytes and names[: len(joined.objects)] == joined.objects
        if names == joined.objects and is_grown:
            return
        if not names:
            state.logs.pop(log, None)
            path.unlink(missing_ok=True)
            if log == "results":
                path.touch()  # each run has this file
            return
        known = len(joined.objects) if is_grown else 0
        self._join(path, [sources[name] for name in names[known:]], is_grown=is_grown)
        state.logs[log] = LogState(names, path.stat().st_size)

    def _join(self, path: Path, items: Sequence[StoredObject], *, is_grown: bool) -> None:
        """Adds the segments to a file, or replaces it, after all of them have arrived."""
        part = path.with_name(f".{path.name}.part")
        with part.open("wb") as file:
            for data in self.store.read_in_order(items):
                file.write(data if data.endswith(b"\n") or not data else data + b"\n")
        if not is_grown:
            part.replace(path)
            return
        with part.open("rb") as source, path.open("ab") as target:
            shutil.copyfileobj(source, target, _COPY_BYTES)
        part.unlink()


def _says_running(path: Path) -> bool:
    """Whether a ``run.json`` says that the run is being written. Readers check the file itself."""
    try:
        header = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return False
    return isinstance(header, dict) and header.get("state") == "running"
