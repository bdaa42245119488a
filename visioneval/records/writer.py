"""Writes a run: its folder, its records and its images. ``model`` defines the format.

Several processes may append to its JSON Lines files, which survive a kill at any moment.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO, Self

from pydantic import BaseModel
from pydantic_core import to_json

from visioneval.atomic import write_whole
from visioneval.errors import StorageError, UsageError
from visioneval.records.model import CellKey, Record, RunInfo, RunState, StoppedBy
from visioneval.records.reader import read_records
from visioneval.records.untrusted import is_inside

_RUN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,120}")
_SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,150}")
_FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

_BLOCK = 64 * 1024
_LOCK_RETRY_S = (0.01, 0.05, 0.2)
"""Seconds between attempts to lock a run: a reader that checks its state locks it for a moment."""


class OutputWriter:
    """Saves the files of cells into a run's folder. Thread-safe, and several processes may do it at once."""

    def __init__(self, folder: Path, info: RunInfo) -> None:
        self.folder = folder
        self.info = info

    def append(self, record: Record) -> None:
        """Takes the record of a finished cell. Only a ``RunWriter`` writes it."""

    def flush(self) -> None:
        """Sends what was written so far to where it outlives this machine; a local folder is all there is."""

    def save(self, test_id: str, label: str, name: str, data: bytes | None, *, source: Path | None = None) -> str:
        """Saves a file of a cell. Returns its path relative to the run's folder, with forward slashes.

        ``source`` is an immutable file with the bytes: it is hard-linked if possible.
        """
        if not _SAFE_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a valid file name: use letters, digits, _ - and . (not first)")
        folder = self._cell_folder(test_id, label)
        with storing(f"{self.folder}/{folder}/{name}"):
            return f"{folder}/{self._write(folder, name, data, source)}"

    def _write(self, cell_folder: str, name: str, data: bytes | None, source: Path | None) -> str:
        """Writes or replaces a file of a cell. Returns its name."""
        path = self.folder / cell_folder / name
        if source is None:
            write_whole(path, data or b"")
        elif not hard_link(source, path):
            write_whole(path, source.read_bytes() if data is None else data)
        return name

    def _cell_folder(self, test_id: str, label: str) -> str:
        """The folder of the cells of a case on a model run, relative to the run's folder.

        Creates it and those above it. What exists must not lead out of the run.
        """
        relative, folder = cells_folder(test_id, label), Path()
        with storing(f"{self.folder}/{relative}"):
            for name in relative.split("/"):
                folder /= name
                path = self.folder / folder
                if path.is_symlink():
                    place = "of the run" if is_inside(self.folder, str(folder)) else "outside the run"
                    problem = f"is a link to a folder {place}: replace it with a real folder (nothing was written)"
                    raise StorageError(f"{path}: {problem}")
                path.mkdir(parents=True, exist_ok=True)  # the run's folder may have been deleted meanwhile
        return relative


class RunWriter(OutputWriter):
    """Appends to one run. Thread-safe. Raises ``StorageError`` for every write error."""

    def __init__(self, folder: Path, info: RunInfo, results: BinaryIO) -> None:
        super().__init__(folder, info)
        self._results = results
        self._end = results.seek(0, os.SEEK_END)
        self._lock = threading.Lock()

    @classmethod
    def create(cls, root: Path, info: RunInfo) -> Self:
        """Creates the run's folder and writes ``run.json``.

        Raises ``UsageError`` for an invalid ID or folder, ``StorageError`` if the disk is full.
        """
        check_run_id(info.run_id)
        folder = root / info.run_id
        try:
            data = _json_bytes(info)
        except ValueError as error:
            raise UsageError(f"the suite cannot be written as JSON: {error}") from None
        try:
            folder.mkdir(parents=True)
            (folder / "artifacts").mkdir()
            results = (folder / "results.jsonl").open("xb", buffering=0)
            lock_run(results, folder)
            write_whole(folder / "run.json", data)  # last, so that a killed run with this file can be resumed
            return cls(folder, info, results)
        except OSError as error:
            if isinstance(error, FileExistsError) and folder.is_dir():
                raise UsageError(f"{folder}: already exists: use another --run-id") from None
            kind = StorageError if error.errno in _FULL_DISK else UsageError
            raise kind(f"{folder}: cannot write the run here: {error.strerror or error}") from None

    @classmethod
    def resume(cls, folder: Path, info: RunInfo, stale: Collection[CellKey] = ()) -> Self:
        """Opens a run to resume it; ``info`` becomes its ``run.json``.

        Removes a truncated last line, and moves the records of ``stale`` cells to ``stale.jsonl``. Raises
        ``UsageError`` if another process writes this run, ``StorageError`` if the disk is full.
        """
        path = folder / "results.jsonl"
        try:
            data = _json_bytes(info)
            results = path.open("r+b" if path.exists() else "x+b", buffering=0)
            lock_run(results, folder)
            repair_last_line(results)
            if stale:
                results.close()
                _move_stale(folder, stale)
                results = path.open("r+b", buffering=0)
                lock_run(results, folder)
            write_whole(folder / "run.json", data)
            return cls(folder, info, results)
        except OSError as error:
            kind = StorageError if error.errno in _FULL_DISK else UsageError
            raise kind(f"{folder}: cannot resume this run: {error.strerror or error}") from None

    def watch(self, say: Callable[[str], None]) -> None:
        """Where to report problems that do not end the run; a local folder has none."""

    def close(self) -> None:
        """Closes the run without an end state, which also releases its lock."""
        self._results.close()

    def append(self, record: Record) -> None:
        """Appends a record completely or not at all: removes a part that a full disk truncated."""
        line = record.model_dump_json().encode() + b"\n"
        with self._lock:
            try:
                _write(self._results, line)
            except OSError as error:
                with contextlib.suppress(OSError):
                    self._results.truncate(self._end)
                    self._results.seek(self._end)
                raise StorageError(f"{self.folder}: cannot write a record: {error.strerror}") from error
            self._end += len(line)

    def update(self, info: RunInfo) -> None:
        """Replaces ``run.json`` of the running run. Raises ``StorageError``."""
        self.info = info
        with storing(self.folder, "write the plan of the run"):
            write_whole(self.folder / "run.json", _json_bytes(info))

    def finish(
        self, state: RunState, ended_at: str, *, stopped_by: StoppedBy | None = None, reused_since: str | None = None
    ) -> RunInfo:
        """Writes the end state of the run to ``run.json``. Returns the new contents. Raises ``StorageError``."""
        if not (self.folder / "results.jsonl").exists():  # writing to an open file shows no error
            self._results.close()
            raise StorageError(
                f"{self.folder}: results.jsonl was deleted during the run: run again with --reuse all, which takes the "
                "answers from the cache"
            )
        since = min(filter(None, (reused_since, self.info.reused_since)), default=None)
        ended = {"state": state, "ended_at": ended_at, "stopped_by": stopped_by, "reused_since": since}
        self.info = self.info.model_copy(update=ended)
        with storing(self.folder, "finish the run"):
            write_whole(self.folder / "run.json", _json_bytes(self.info))
            self._results.close()  # also releases the lock that marks a running run
        return self.info

    def write_summary(self, summary: BaseModel) -> None:
        """Writes ``summary.json``. Raises ``StorageError``."""
        write_summary(self.folder, summary)


def check_run_id(run_id: str) -> None:
    """Raises ``UsageError`` for an id that cannot be the name of a run's folder."""
    if run_id == "latest":
        raise UsageError("--run-id: 'latest' is reserved for the newest run: use another ID")
    if not is_run_id(run_id):
        raise UsageError(f"--run-id: {run_id!r} is not valid: use letters, digits, _ - and . (not first)")


def is_run_id(name: str) -> bool:
    """Whether a name can be that of a run's folder; one from a store may be a stranger's."""
    return _RUN_ID.fullmatch(name) is not None


def write_summary(folder: Path, summary: BaseModel) -> None:
    """Writes the ``summary.json`` of a run, which only lists of runs read. Raises ``StorageError``."""
    with storing(folder, "write the summary"):
        write_whole(folder / "summary.json", _json_bytes(summary))


def lock_run(results: BinaryIO, folder: Path) -> None:
    """Locks a run until this process ends. Raises ``UsageError`` if another process has locked it."""
    for wait in _LOCK_RETRY_S:
        try:
            fcntl.flock(results, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(wait)
        except OSError:  # a file system without locks
            return
        else:
            return
    results.close()
    raise UsageError(f"{folder}: another visioneval process is writing this run: wait for it to finish")


def _move_stale(folder: Path, stale: Collection[CellKey]) -> None:
    """Moves the records of stale cells from ``results.jsonl`` to ``stale.jsonl``."""
    remaining: list[bytes] = []
    removed: list[bytes] = []
    for record in read_records(folder):
        (removed if record.cell in stale else remaining).append(record.model_dump_json().encode() + b"\n")
    with (folder / "stale.jsonl").open("ab") as stale_file:
        stale_file.writelines(removed)
    write_whole(folder / "results.jsonl", b"".join(remaining))


def cells_folder(test_id: str, label: str) -> str:
    """The folder of the cells of a case on a model run, relative to the run's folder."""
    return f"artifacts/{test_id}/{model_slug(label)}"


_HASHED = re.compile(r"-[0-9a-f]{10}$")
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?")
"""Names of devices on Windows, where no file can have them."""


@lru_cache(maxsize=1024)
def model_slug(label: str) -> str:
    """A folder name for a label: readable, safe, and unique per label on any file system."""
    safe = re.sub(r"[^a-z0-9_.=-]+", "-", label.lower()).strip(".-")[:60].rstrip(".-")
    safe = f"model-{safe}" if _RESERVED.fullmatch(safe) else safe
    if safe == label and not _HASHED.search(label):
        return safe
    return f"{safe or 'model'}-{sha256(label.encode('utf-8', 'replace')).hexdigest()[:10]}"


def _json_bytes(model: BaseModel) -> bytes:
    return to_json(model, indent=2) + b"\n"  # bytes only, without a copy as text: a suite may have many cases


def hard_link(source: Path | str, path: Path | str) -> bool:
    """Hard-links a regular file, replacing an older file. Returns ``False`` if the file system cannot."""
    try:
        if not S_ISREG(os.lstat(source).st_mode):  # a link to a symbolic link would lead out of the folder
            return False
        os.link(source, path)
    except FileExistsError:
        target = Path(path)
        part = target.with_name(f".{target.name}.{threading.get_ident()}.part")  # two cells may share an image
        try:
            part.hardlink_to(source)
            part.replace(path)
        except OSError:
            return False
        finally:
            part.unlink(missing_ok=True)  # if both were the same file, replace() did nothing
    except (OSError, NotImplementedError):
        return False
    return True


def append_lines(path: Path, lines: Sequence[bytes]) -> None:
    """Appends lines, all or none, and syncs them to disk.

    Each line is JSON without a newline. First removes a last line that a crash truncated, or ends a complete one that
    only lacks its newline. A file lock makes other writers wait. Raises ``StorageError``.
    """
    if not lines:
        return
    with storing(path), locked(path) as file:
        start = repair_last_line(file)
        try:
            _write(file, b"".join(line + b"\n" for line in lines))
            os.fsync(file.fileno())
        except OSError:
            file.truncate(start)
            raise


@contextmanager
def storing(what: Path | str, action: str = "write") -> Iterator[None]:
    """Raises the ``StorageError`` of an ``OSError`` inside the block: what cannot be done, and why."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{what}: cannot {action}: {error.strerror or error}") from error


@contextmanager
def locked(path: Path) -> Iterator[BinaryIO]:
    """Opens the file with an exclusive lock, creating it if needed. Raises ``OSError``.

    The owner of the lock may replace the file; waiting writers then lock the new file.
    """
    while True:
        with path.open("ab+", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_at(file, path):
                yield file
                return


def _is_at(file: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _write(file: BinaryIO, data: bytes) -> None:
    written = 0
    while written < len(data):
        written += file.write(data[written:]) or 0


def repair_last_line(file: BinaryIO) -> int:
    """Removes a truncated last line, or adds the newline to a complete one. Returns the new end of the file."""
    end = file.seek(0, os.SEEK_END)
    last = partial_line(file, end)
    if not last:
        return end
    try:
        json.loads(last)
    except (ValueError, RecursionError):
        file.truncate(end - len(last))
        return end - len(last)
    _write(file, b"\n")
    return end + 1


def partial_line(file: BinaryIO, end: int) -> bytes:
    """The bytes after the last newline."""
    tail = b""
    while end > 0 and b"\n" not in tail:
        start = max(0, end - _BLOCK)
        file.seek(start)
        tail = file.read(end - start) + tail
        end = start
    return tail[tail.rfind(b"\n") + 1 :]
