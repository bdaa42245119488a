"""Copies on this machine of the runs at a URL. Reading brings a copy up to date first, and transfers only what is new.

The store is the truth: what a writer has not sent yet is not in a copy, and a copy can be deleted at any time.

    RUN/run.json, summary.json, ...    documents: each write replaces the object
        results/<writer>-<n>.jsonl     segments: each append is a new object, which never changes
        artifacts/...                  as in a local run
        claims/<n>.json                who writes the run

The segments of a log are one file, in the order of their names. A segment ``<writer>-<n>.whole.jsonl`` replaces all
before it. A writer is a number, higher than those of all earlier writers, and a random part.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from visioneval.atomic import write_whole
from visioneval.errors import RunFormatError, UsageError
from visioneval.records.stores.claims import read_claim
from visioneval.records.stores.store import ObjectStore, StoredObject, in_threads
from visioneval.records.untrusted import LOGS, OUTPUTS, adapter_of, read_header
from visioneval.records.writer import append_lines, is_run_id, storing

DOCUMENTS = ("questions.json", "diversity.jsonl", "duplicates.jsonl", "summary.json", "run.json")
"""The files of a run that are written whole. ``run.json`` comes last: it says that the run is complete."""
HOME = "VISIONEVAL_STORES"
"""The environment variable that names the folder for copies of stores."""
_SEGMENT = re.compile(r"\d{6}-[0-9a-f]{8}-\d{6}(\.whole)?\.jsonl")


def ordered_segments(names: Iterable[str], where: str) -> list[str]:
    """The segments among the names of objects, in order. Raises ``RunFormatError`` if one is missing or foreign."""
    segments, last = sorted(name for name in names if name.endswith(".jsonl")), Counter[str]()
    if foreign := [name for name in segments if not _SEGMENT.fullmatch(name)]:
        raise RunFormatError(f"{where}/{foreign[0]}: is not a segment of a run: move it away")
    for name in segments:
        writer, _, number = name.partition(".")[0].rpartition("-")
        last[writer] += 1
        if int(number) != last[writer]:
            missing = f"{writer}-{last[writer]:06d}.jsonl"
            raise RunFormatError(f"{where}: the segment {missing} is missing: restore it, or run the suite again")
    return segments


def new_writer(segments: Sequence[str], minimum: int = 1) -> str:
    """A writer after all that wrote these segments, which are in order: the name before that of its first segment."""
    after = int(segments[-1][:6]) + 1 if segments else 1
    return f"{max(after, minimum):06d}-{secrets.token_hex(4)}-000000.jsonl"


def next_segment(name: str, *, is_whole: bool = False) -> str:
    """The name of the next segment of the same writer. ``is_whole``: it replaces all segments before it."""
    writer, _, number = name.partition(".")[0].rpartition("-")
    return f"{writer}-{int(number) + 1:06d}{'.whole' if is_whole else ''}.jsonl"


def is_safe_key(key: str) -> bool:
    """Whether a key can be a path below a folder, on any system: a store may be a stranger's."""
    parts = key.split("/")
    return not any(sign in key for sign in "\0\\:") and not any(part in ("", ".", "..") for part in parts)


def folder_for(url: str) -> Path:
    """The folder of this machine that belongs to a URL: in that of ``VISIONEVAL_STORES``, or in the user's cache."""
    home = os.environ.get(HOME) or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "visioneval-stores")
    readable = re.sub(r"[^A-Za-z0-9]+", "-", url.partition("://")[2])[:60].strip("-")
    return Path(home).absolute() / f"{readable}-{hashlib.sha256(url.encode()).hexdigest()[:10]}"


@dataclass(slots=True)
class CopyState:
    """What a copy contains: the versions of documents and outputs by key, and its logs by name."""

    versions: dict[str, str] = field(default_factory=dict)
    logs: dict[str, tuple[list[str], int]] = field(default_factory=dict)
    """Which objects each was joined from, and its size."""
    is_claimed: bool = False
    """Whether a live process writes the run."""


class RunCopies:
    """The runs at one URL. ``root`` has a copy of each that was read, ``work`` a folder for each written here."""

    def __init__(self, url: str) -> None:
        """Makes no call. Raises ``UsageError`` for a URL that cannot be used."""
        self.store = ObjectStore(url)
        self.url = self.store.url
        folder = folder_for(self.url)
        self.root, self.work, self._states = folder / "runs", folder / "work", folder / "state"
        self._last_segments: dict[str, str] = {}
        """By run and log: the last one that this process has appended."""
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

        def refresh(run_id: str) -> None:  # without a lock, which a process has for as long as it reads a run
            self._bring((item for item in self.store.entries(run_id) if item.name == "run.json"), self._state(run_id))

        ids = self.run_ids()
        for path in self.root.iterdir():
            if path.name not in ids:
                shutil.rmtree(path, ignore_errors=True)
        in_threads(refresh, ids)

    def refresh(self, run_id: str) -> Path:
        """Brings the copy of a run up to date, without its outputs. Returns its folder. Raises ``UsageError``."""
        folder = self.root / run_id
        with self._locked(run_id) as state:
            items = {item.name: item for item in self.store.entries(run_id)}
            if "run.json" not in items or items["run.json"].is_folder:
                raise UsageError(f"{self.url}/{run_id}: there is no such run")
            (folder / OUTPUTS).mkdir(parents=True, exist_ok=True)
            documents = [items[name] for name in DOCUMENTS if name in items and not items[name].is_folder]
            for name in {*DOCUMENTS} - {item.name for item in documents}:
                (folder / name).unlink(missing_ok=True)
            self._bring(documents, state)  # before the records, which a complete run has all of
            for log in LOGS:
                self._refresh_log(run_id, log, items, state)
            is_open = False
            with suppress(RunFormatError):  # readers check the file itself
                is_open = "claims" in items and read_header(folder).get("state") == "running"
            claim = read_claim(self.store, run_id) if is_open else None
            state.is_claimed = claim is not None and claim.is_live(datetime.now(UTC))
        return folder

    def is_claimed(self, run_id: str) -> bool:
        """Whether a live process wrote the run when its copy was brought up to date."""
        return self._state(run_id).is_claimed

    def fetch_outputs(self, folder: Path, paths: Collection[str | None] | None = None) -> None:
        """Downloads the outputs of a run, or only those at ``paths``, that its copy lacks or that have changed.

        Into the folder in which a run is written, it downloads what other machines have sent.
        """
        items = self.store.walk(f"{folder.name}/{OUTPUTS}")
        for item in items:
            if not is_safe_key(item.key):
                raise RunFormatError(f"{self.url}/{item.key}: is not a valid path: move this object away")
        if paths is not None:
            keys = {f"{folder.name}/{path}" for path in paths}
            items = [item for item in items if item.key in keys]
        if folder.parent == self.work:
            self.store.download([item for item in items if not (self.work / item.key).is_file()], self.work)
            return
        with self._locked(folder.name) as state:
            self._bring(items, state)

    def append(self, run_id: str, log: str, lines: Sequence[bytes]) -> None:
        """Appends lines to a log of a run: in the store, then in the copy. Raises ``StorageError``."""
        if not lines:
            return
        key = f"{run_id}/{log}"
        with self._locked(run_id) as state:
            known = ordered_segments((item.name for item in self.store.entries(key)), f"{self.url}/{key}")
            last = self._last_segments.get(key, "")
            if known[-1:] != [last]:  # so that the last answer is also the last in the store
                last = new_writer(known)
            segment = next_segment(last)
            self.store.put(f"{key}/{segment}", b"".join(line + b"\n" for line in lines))
            self._last_segments[key] = segment
            path = self.root / run_id / f"{log}.jsonl"
            append_lines(path, lines)
            objects, _ = state.logs.get(log, ([], 0))
            state.logs[log] = [*objects, segment], path.stat().st_size

    @contextmanager
    def _locked(self, run_id: str) -> Iterator[CopyState]:
        """The state of a copy, which other processes do not change meanwhile. It is saved at the end."""
        with storing(self.root / run_id), (self._states / f"{run_id}.lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            state = self._state(run_id)
            try:
                yield state
            finally:
                write_whole(self._states / f"{run_id}.json", adapter_of(CopyState).dump_json(state))

    def _state(self, run_id: str) -> CopyState:
        with suppress(OSError, ValidationError):
            return adapter_of(CopyState).validate_json((self._states / f"{run_id}.json").read_bytes())
        return CopyState()

    def _bring(self, items: Iterable[StoredObject], state: CopyState) -> None:
        """Downloads objects that the copy lacks or that have changed."""
        changed = [
            item
            for item in items
            if state.versions.get(item.key) != item.version or not (self.root / item.key).is_file()
        ]
        self.store.download(changed, self.root)
        state.versions.update({item.key: item.version for item in changed})

    def _refresh_log(self, run_id: str, log: str, items: dict[str, StoredObject], state: CopyState) -> None:
        """Joins the segments of a log, after the file of a run that was copied from a folder, if there is one."""
        path, key = self.root / run_id / f"{log}.jsonl", f"{run_id}/{log}"
        listed = {item.name: item for item in self.store.entries(key)} if log in items else {}
        names = ordered_segments(listed, f"{self.url}/{key}")
        if whole := [index for index, name in enumerate(names) if ".whole." in name]:
            names = names[whole[-1] :]
        elif (first := items.get(path.name)) is not None:
            names = [f"{path.name} {first.version}", *names]
            listed[names[0]] = first
        if not names:
            state.logs.pop(log, None)
            path.unlink(missing_ok=True)
            if log == "results":
                path.touch()  # each run has this file
            return
        objects, size = state.logs.get(log, ([], 0))
        is_known = names[: len(objects)] == objects and path.is_file() and path.stat().st_size == size
        known = len(objects) if is_known else 0
        if known == len(names):
            return
        target = path if known else path.with_name(f".{path.name}.part")
        with target.open("ab" if known else "wb") as file:
            for data in self.store.read_in_order([listed[name] for name in names[known:]]):
                file.write(data if data.endswith(b"\n") or not data else data + b"\n")
        target.replace(path)
        state.logs[log] = names, path.stat().st_size
