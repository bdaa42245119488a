"""Cache of paid answers and local measurements, by key: files named by their content, and an index in SQLite.

    DIR/index.sqlite     key, kind, answer as JSON, names of its files, time and run of storage
    DIR/files/ab/abcd..  images, by the SHA-256 of their bytes

Keys contain no host, path or time, so a cache folder can be committed and replayed elsewhere. Several processes may
use one folder. Every read checks the file against its name; a damaged file is a cache miss.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import orjson

from visioneval.atomic import read_whole
from visioneval.engine.calls.caching.cache_files import (
    Content,
    clear_scratch,
    content_size,
    scratch_folder,
    store_content,
)
from visioneval.engine.calls.caching.cache_index import (
    USE_ANOTHER_FOLDER,
    connect_index,
    index_format,
    referenced_files,
)
from visioneval.errors import StorageError, UsageError

Kind = Literal["generate", "judge", "measure"]
MAX_GB_VARIABLE = "VISIONEVAL_CACHE_MAX_GB"
DEFAULT_MAX_GB = 20.0
_DIGEST = re.compile("[0-9a-f]{64}")
_INSERT = "INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?, ?, ?, ?)"
_REPLACE = "INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A cached answer. ``answer`` is plain data; ``Cache.read`` reads its images.

    ``bytes`` is the size of the answer and its images together.
    """

    answer: Mapping[str, Any]
    stored_at: str
    run_id: str
    bytes: int


@dataclass(frozen=True, slots=True)
class CacheOrigin:
    """When and by which run an answer was stored first."""

    stored_at: str
    run_id: str


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """Statistics of a cache: answers by kind, total size, and the time of the oldest entry."""

    folder: Path
    generations: int
    judgements: int
    measurements: int
    bytes: int
    max_bytes: int
    oldest: str | None

    @property
    def entries(self) -> int:
        """The number of all entries."""
        return self.generations + self.judgements + self.measurements


def default_folder() -> Path:
    """``visioneval`` in the user's cache folder (``XDG_CACHE_HOME``, or ``~/.cache``)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "visioneval"


class Cache:
    """One folder of cached answers. Thread-safe. Calls ``warn`` for each damaged file."""

    is_shared: ClassVar[bool] = False
    """Whether ``pull`` and ``put`` make requests, and so belong into a thread."""

    def __init__(self, folder: Path, *, run_id: str = "", warn: Callable[[str], None] = print) -> None:
        """Opens or creates the folder; opens it read-only if it is not writable. Raises ``UsageError``."""
        self.folder = folder
        self.max_bytes = _max_bytes()
        self._run_id = run_id
        self._warn = warn
        self._lock = threading.Lock()
        self._bytes_since_tidy = 0
        self._is_writable = True
        self._warned_unwritable = False
        self._replaced: set[str] = set()
        self._index = self._open()

    def _open(self) -> sqlite3.Connection:
        path = self.folder / "index.sqlite"
        self._check_folder(path)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            return connect_index(path)
        except sqlite3.OperationalError as error:
            return self._open_read_only(path, error)
        except sqlite3.DatabaseError as error:
            return self._start_over(error)
        except OSError as error:
            return self._open_read_only(path, error)

    def _check_folder(self, index: Path) -> None:
        """Raises ``UsageError`` for a file or a folder with other contents, so that neither is changed."""
        with contextlib.suppress(OSError):
            if self.folder.is_file():
                raise UsageError(f"{self.folder}: the cache cannot be used (it is a file): {USE_ANOTHER_FOLDER}")
            names = {path.name for path in self.folder.iterdir() if not path.name.startswith(".")}
            if names - {"files"} and not any(name.startswith(index.name) for name in names):
                raise UsageError(f"{self.folder}: contains other files but no cache: {USE_ANOTHER_FOLDER}")

    def _start_over(self, cause: Exception) -> sqlite3.Connection:
        path = self.folder / "index.sqlite"
        backup = path.with_name(f"{path.name}.damaged")
        self._warn(f"{path}: the cache's index is damaged ({cause}): moved it to {backup.name} and started a new one")
        try:
            path.replace(backup)
            for tail in ("-wal", "-shm"):
                path.with_name(path.name + tail).unlink(missing_ok=True)
            return connect_index(path)
        except (sqlite3.Error, OSError) as error:
            raise UsageError(f"{path}: the cache cannot be used ({error}): {USE_ANOTHER_FOLDER}") from None

    def _open_read_only(self, path: Path, cause: Exception) -> sqlite3.Connection:
        """Opens the index read-only: a committed cache may be in a folder that is not writable."""
        self._is_writable = False
        uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        with contextlib.suppress(sqlite3.Error):
            index = sqlite3.connect(uri, uri=True, check_same_thread=False)
            try:
                index_format(index, path)
                index.execute("SELECT 1 FROM answers LIMIT 1")
            except BaseException:
                index.close()
                raise
            return index
        raise UsageError(f"{path}: the cache cannot be used ({cause}): {USE_ANOTHER_FOLDER}")

    @property
    def is_writable(self) -> bool:
        """Whether answers are stored."""
        return self._is_writable

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Deletes images of replaced answers, and merges the write-ahead log into the index."""
        if self._replaced:
            with (
                contextlib.suppress(OSError, sqlite3.Error),
                self._transaction() as index,
            ):  # 'cache clear' deletes them later
                self._drop_orphans(index, self._replaced)
        with self._lock:
            with contextlib.suppress(sqlite3.Error):
                self._index.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._index.close()

    def get(self, key: str) -> CacheEntry | None:
        """The newest answer to what ``key`` stands for. An index that is damaged there is a miss."""
        try:
            with self._lock:
                row = self._index.execute(
                    "SELECT answer, stored_at, run_id, bytes FROM answers WHERE key = ?", (key,)
                ).fetchone()
            return None if row is None else CacheEntry(orjson.loads(row[0]), *row[1:])
        except (sqlite3.Error, orjson.JSONDecodeError) as error:
            self._warn(f"{self.folder}: ignoring a damaged entry in the cache: {error}")
            return None

    def read(self, digest: str) -> bytes | None:
        """An image by its SHA-256; ``None``, with a warning, if it is missing or damaged."""
        if not _DIGEST.fullmatch(digest):  # of a damaged or hostile entry: it could be any path
            self._warn(f"{self.folder}: ignoring a damaged entry in the cache: {digest!r:.100} names no image")
            return None
        path = self.file(digest)
        try:
            data = read_whole(path)
        except OSError as error:
            self._warn(f"{path}: cannot read a cached image: {error.strerror}")
            return None
        if sha256(data).hexdigest() == digest:
            return data
        self._warn(f"{path}: ignoring a damaged image in the cache")
        with contextlib.suppress(OSError):
            self.path(digest).unlink()
        return None

    def path(self, digest: str) -> Path:
        """The path of an image."""
        return Path(self.file(digest))

    def file(self, digest: str) -> str:
        """The path of an image as text, which is faster to create and to link."""
        return f"{self.folder}/files/{digest[:2]}/{digest}"

    def has_file(self, digest: str) -> bool:
        """Whether an image is there."""
        return os.path.exists(self.file(digest))  # noqa: PTH110 - half the time

    def pull(self, key: str, run_id: str | None = None) -> None:
        """Makes the answer that other machines have available to ``get``; a local cache has no others."""

    def origin(self) -> CacheOrigin:
        """The origin of what is stored now."""
        return CacheOrigin(datetime.now(UTC).isoformat(timespec="seconds"), self._run_id)

    def put(
        self,
        key: str,
        kind: Kind,
        answer: Mapping[str, Any],
        images: Sequence[tuple[str, Content]] = (),
        *,
        origin: CacheOrigin | None = None,
    ) -> None:
        """Stores an answer and its images (SHA-256, and bytes or a file), replacing an older answer.

        ``origin`` is that of an answer from elsewhere. A read-only cache stores nothing and warns once. Raises
        ``StorageError``.
        """
        if not self._is_writable:
            self._warn_unwritable()
            return
        data = orjson.dumps(answer)
        size = len(data) + sum(content_size(image) for _, image in images)
        origin = origin or self.origin()
        row = (key, kind, data, size, origin.stored_at, origin.run_id)
        try:
            for digest, image in images:
                store_content(self.file(digest), image)
            self._insert_or_rebuild(row, dict(images))
        except (OSError, sqlite3.Error, UsageError) as error:
            raise StorageError(
                f"{self.folder}: cannot write to the cache: {getattr(error, 'strerror', None) or error}"
            ) from None
        self._bytes_since_tidy += size
        if self._bytes_since_tidy * 10 > self.max_bytes:
            with contextlib.suppress(OSError, sqlite3.Error):  # the next call tries again
                self.tidy()

    def _warn_unwritable(self) -> None:
        with self._lock:
            if not self._warned_unwritable:
                self._warned_unwritable = True
                self._warn(f"{self.folder}: the cache is read-only: new answers are not cached")

    def _insert_or_rebuild(self, row: tuple[Any, ...], images: Mapping[str, Content]) -> None:
        """Inserts into the index, replacing the index with a new one if it is damaged."""
        index = self._index
        try:
            self._insert(row, images)
        except sqlite3.DatabaseError as error:
            if type(error) is not sqlite3.DatabaseError:  # subclasses report locks, disk errors and programming errors
                raise
            with self._lock:
                if self._index is index:
                    index.close()
                    self._index = self._start_over(error)
            self._insert(row, images)

    def _insert(self, row: tuple[Any, ...], images: Mapping[str, Content]) -> None:
        """Inserts an answer, replacing an older one, whose images ``close`` deletes.

        One statement is a transaction, and enough if no image is to be deleted. Images that no answer refers to may be
        deleted at any time, so those of this answer are looked for once it is in the index. If they cannot be stored
        again, the answer is a miss; if it is deleted before that, they stay until all answers are cleared.
        """
        values = (*row, " ".join(images))
        statement = _REPLACE if row[1] == "judge" else _INSERT  # judgements have no images
        with self._lock:
            inserted = self._index.execute(statement, values).rowcount
        if not inserted:
            with self._transaction() as index:
                before = index.execute("SELECT files FROM answers WHERE key = ?", row[:1]).fetchone()
                index.execute(_REPLACE, values)
                self._replaced.update(set(before[0].split()).difference(images) if before else ())
        for digest, image in images.items():
            if not self.has_file(digest):
                store_content(self.file(digest), image)

    def scratch(self) -> contextlib.AbstractContextManager[Path]:
        """A folder for files that are to be cached; it is deleted at the end."""
        return scratch_folder(self.folder if self._is_writable else None)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._index.execute("BEGIN IMMEDIATE")
            try:
                yield self._index
                self._index.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):  # SQLite rolls back by itself if the disk is full
                    self._index.execute("ROLLBACK")
                raise

    def tidy(self) -> None:
        """Deletes the oldest entries down to three quarters of ``max_bytes`` if the cache exceeds ``max_bytes``.

        Measurements go first: they cost nothing but time.
        """
        self._bytes_since_tidy = 0
        with self._lock:
            (total,) = self._index.execute("SELECT COALESCE(SUM(bytes), 0) FROM answers").fetchone()
        if total <= self.max_bytes:
            return
        with self._transaction() as index:
            dropped = []
            for key, size in index.execute("SELECT key, bytes FROM answers ORDER BY kind <> 'measure', stored_at"):
                if total <= self.max_bytes * 0.75:
                    break
                total -= size
                dropped.append(key)
            self._drop(index, dropped)

    def clear(self, before: str | None = None) -> int:
        """Deletes all answers, or those stored before a time (ISO 8601, UTC). Returns the number of deleted answers.

        Also deletes images that no answer refers to, which a killed process may leave. Raises ``UsageError``.
        """
        with self._usage_errors(), self._transaction() as index:
            rows = index.execute("SELECT key FROM answers WHERE ? IS NULL OR stored_at < ?", (before, before))
            dropped = [key for (key,) in rows]
            self._drop(index, dropped)
            named = referenced_files(index)
            for path in self.folder.glob("files/??/*"):
                if path.name not in named and not path.name.startswith("."):
                    path.unlink(missing_ok=True)
            clear_scratch(self.folder)
        with self._lock, contextlib.suppress(sqlite3.OperationalError):  # another process is reading it
            self._index.execute("VACUUM")
        return len(dropped)

    @contextlib.contextmanager
    def _usage_errors(self) -> Iterator[None]:
        """Converts errors of the folder and the index into ``UsageError``."""
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"{self.folder}: the cache cannot be used ({reason}): {USE_ANOTHER_FOLDER}") from None

    def _drop(self, index: sqlite3.Connection, keys: Sequence[str]) -> None:
        """Deletes answers, and files that no other answer refers to."""
        digests: set[str] = set()
        for key in keys:
            for (files,) in index.execute("SELECT files FROM answers WHERE key = ?", (key,)):
                digests.update(files.split())
        index.executemany("DELETE FROM answers WHERE key = ?", [(key,) for key in keys])
        self._drop_orphans(index, digests)

    def _drop_orphans(self, index: sqlite3.Connection, digests: set[str]) -> None:
        """Deletes those of the files that no answer refers to."""
        for digest in digests - referenced_files(index) if digests else ():
            if _DIGEST.fullmatch(digest):
                self.path(digest).unlink(missing_ok=True)

    def info(self) -> CacheInfo:
        """The statistics of the cache. Raises ``UsageError``."""
        with self._usage_errors(), self._lock:
            counts = dict(self._index.execute("SELECT kind, COUNT(*) FROM answers GROUP BY kind"))
            total, oldest = self._index.execute(
                "SELECT COALESCE(SUM(bytes), 0), MIN(stored_at) FROM answers"
            ).fetchone()
        generations, judgements, measurements = (counts.get(kind, 0) for kind in get_args(Kind))
        return CacheInfo(self.folder, generations, judgements, measurements, total, self.max_bytes, oldest)


def _max_bytes() -> int:
    value = os.environ.get(MAX_GB_VARIABLE)
    try:
        gigabytes = float(value) if value else DEFAULT_MAX_GB
    except ValueError:
        gigabytes = 0.0
    if not 0 < gigabytes < 1e6:
        raise UsageError(f"{MAX_GB_VARIABLE}: {value!r} is not a number of gigabytes")
    return int(gigabytes * 1e9)
