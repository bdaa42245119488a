"""Cache of paid answers and local measurements in a folder of immutable files, and one that several machines share.

Any number of processes may use one folder: they only add files. Every read checks the file against its name; a damaged
one is a cache miss. The newest answer to a question counts, by the time that its file states.

A shared one has the same files in an object store, with a local cache in front of it. An answer is in the store before
its cell is recorded. Local measurements stay on the machine: they cost nothing but time, and mostly less of it than a
request.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, ClassVar

from visioneval.atomic import write_whole
from visioneval.errors import StorageError, UsageError
from visioneval.records.stores.lookup import cache_url
from visioneval.records.stores.store import MissingObjectError, ObjectStore, StoredObject
from visioneval.running.calls.cache_files import (
    ANSWERS,
    FILES,
    MARK,
    MARK_DATA,
    USE_ANOTHER_FOLDER,
    CacheEntry,
    Kind,
    answer_folder,
    check_mark,
    decoded,
    image_file,
    is_digest,
    tidy,
    time_after,
)

MAX_GB_VARIABLE = "VISIONEVAL_CACHE_MAX_GB"
DEFAULT_MAX_GB = 20.0
OLD_INDEX = "index.sqlite"


def default_folder() -> Path:
    """``visioneval`` in the user's cache folder (``XDG_CACHE_HOME``, or ``~/.cache``)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "visioneval"


def max_cache_bytes() -> int:
    """How large a folder may become. Raises ``UsageError``."""
    value = os.environ.get(MAX_GB_VARIABLE)
    try:
        gigabytes = float(value) if value else DEFAULT_MAX_GB
    except ValueError:
        gigabytes = 0.0
    if not 0 < gigabytes < 1e6:
        raise UsageError(f"{MAX_GB_VARIABLE}: {value!r} is not a number of gigabytes")
    return int(gigabytes * 1e9)


def open_folder(folder: Path) -> bool:
    """Opens or creates the folder of a cache. Returns whether it is writable. Raises ``UsageError``.

    A folder with other contents or of an earlier version is refused, and not changed.
    """
    try:
        if folder.is_file():
            raise UsageError(f"{folder}: the cache cannot be used (it is a file): {USE_ANOTHER_FOLDER}")
        names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
        if MARK in names:
            check_mark((folder / MARK).read_bytes(), folder)
            return os.access(folder, os.W_OK)
        if OLD_INDEX in names:
            raise UsageError(
                f"{folder}: a cache of an earlier version of visioneval ({OLD_INDEX}), whose layout is no longer read:"
                f" delete it, or {USE_ANOTHER_FOLDER}"
            )
        if any(not name.startswith(".") for name in names - {ANSWERS, FILES}):
            raise UsageError(f"{folder}: contains other files but no cache: {USE_ANOTHER_FOLDER}")
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / MARK, MARK_DATA)
    except OSError as error:
        raise UsageError(
            f"{folder}: the cache cannot be used ({error.strerror or error}): {USE_ANOTHER_FOLDER}"
        ) from None
    return True


class Cache:
    """One folder of cached answers. Thread-safe. Calls ``warn`` once for each damaged file."""

    is_shared: ClassVar[bool] = False
    """Whether ``pull`` and ``put`` make requests, and so belong into a thread."""

    def __init__(
        self, folder: Path, *, run_id: str = "", warn: Callable[[str], None] = print, reads: set[str] | None = None
    ) -> None:
        """Opens or creates the folder; opens it read-only if it is not writable. Raises ``UsageError``.

        ``reads`` gets the names of the answers that are read.
        """
        self.folder = folder
        self.max_bytes = max_cache_bytes()
        self._run_id = run_id
        self._warn = warn
        self._reads = reads
        self._lock = threading.Lock()
        self._warned: set[str] = set()
        self._bytes_since_tidy = 0
        self._is_writable = open_folder(folder)

    @property
    def is_writable(self) -> bool:
        """Whether answers are stored."""
        return self._is_writable

    def answers(self, key: str) -> Iterator[CacheEntry]:
        """The answers to what ``key`` stands for, the newest first."""
        for name, entry in self._answers(key):
            if self._reads is not None:
                self._reads.add(name)
            yield entry

    def get(self, key: str) -> CacheEntry | None:
        """The newest answer to what ``key`` stands for."""
        return next(self.answers(key), None)

    def _answers(self, key: str) -> list[tuple[str, CacheEntry]]:
        folder = answer_folder(key)
        try:
            names = [path.name for path in (self.folder / folder).iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self._warn_once(folder, f"{self.folder}/{folder}: cannot read cached answers: {error.strerror}")
            return []
        files = (f"{folder}/{name}" for name in names if not name.startswith("."))  # those are being written
        entries = [(name, entry) for name in files if (entry := self._entry(name)) is not None]
        return sorted(entries, key=lambda item: (item[1].stored_at, item[0]), reverse=True)

    def _entry(self, name: str) -> CacheEntry | None:
        try:
            return decoded(name, (self.folder / name).read_bytes())
        except FileNotFoundError:  # deleted by the upkeep of another process
            return None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            self._warn_once(name, f"{self.folder}/{name}: ignoring a damaged answer in the cache: {reason}")
            return None

    def _warn_once(self, name: str, message: str) -> None:
        with self._lock:
            is_news = name not in self._warned
            self._warned.add(name)
        if is_news:
            self._warn(message)

    def read(self, digest: str) -> bytes | None:
        """An image by its SHA-256; ``None``, with a warning, if it is missing or damaged."""
        if not is_digest(digest):
            self._warn(f"{self.folder}: ignoring a damaged answer in the cache: {digest!r:.100} names no image")
            return None
        path = self.path(digest)
        try:
            data = path.read_bytes()
        except OSError as error:
            self._warn_once(digest, f"{path}: cannot read a cached image: {error.strerror}")
            return None
        if sha256(data).hexdigest() == digest:
            return data
        self._warn_once(digest, f"{path}: ignoring a damaged image in the cache")
        return None

    def path(self, digest: str) -> Path:
        """The path of an image."""
        return self.folder / image_file(digest)

    def has_file(self, digest: str) -> bool:
        """Whether an image is there."""
        return self.path(digest).exists()

    def pull(self, key: str, usable: Callable[[Iterable[CacheEntry]], Iterable[CacheEntry]] = iter) -> None:
        """Makes the answers that other machines have available to ``get``, and the images of the first ``usable`` one.

        A local cache has no others.
        """

    def put(self, key: str, kind: Kind, answer: Mapping[str, Any], images: Sequence[tuple[str, Content]] = ()) -> None:
        """Stores an answer and its images (SHA-256, and bytes or a file), which from now on is the newest.

        A measurement that was measured again with the same result has one file. A read-only cache stores nothing and
        warns once. Raises ``StorageError``.
        """
        earlier = next((entry for _, entry in self._answers(key)), None)
        if kind == "measure" and earlier is not None and earlier.answer == answer:
            entry = earlier
        else:
            entry = CacheEntry(
                key=key,
                kind=kind,
                answer=dict(answer),
                files=tuple(digest for digest, _ in images),
                image_bytes=sum(content_size(image) for _, image in images),
                stored_at=time_after(earlier.stored_at if earlier is not None else None, datetime.now(UTC)),
                run_id=self._run_id,
            )
        self._save(entry, images)

    def _save(self, entry: CacheEntry, images: Sequence[tuple[str, Content]]) -> None:
        if not self._is_writable:
            self._warn_once("", f"{self.folder}: the cache is read-only: new answers are not cached")
            return
        name, data = entry.encoded()
        self._write(name, data, images)
        self._bytes_since_tidy += len(data) + entry.image_bytes
        if self._bytes_since_tidy * 10 > self.max_bytes:
            self._bytes_since_tidy = 0
            with contextlib.suppress(OSError):  # a later call tries again
                tidy(LocalFolder(self.folder), self.max_bytes)

    def _write(self, name: str, data: bytes, images: Sequence[tuple[str, Content]]) -> None:
        """Writes the images of an answer and then the answer. Raises ``StorageError``."""
        try:
            for digest, image in images:
                store_content(self.path(digest), image)
            store_content(self.folder / name, data)
            for digest, image in images:  # the upkeep of another process could delete one that no answer named
                if not self.has_file(digest):
                    store_content(self.path(digest), image)
        except OSError as error:
            raise StorageError(f"{self.folder}: cannot write to the cache: {error.strerror or error}") from None

    def scratch(self) -> contextlib.AbstractContextManager[Path]:
        """A folder for files that are to be cached; it is deleted at the end."""
        return scratch_folder(self.folder if self._is_writable else None)


Content = bytes | Path
"""A file to store: its bytes, or a file with them that does not change."""
_SCRATCH = ".download-"
_SCRATCH_S = 86_400.0
"""After a day, no process can still be downloading."""


class LocalFolder:
    """The files below a folder, with the methods of ``ObjectStore`` that the upkeep of a cache needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __str__(self) -> str:
        return str(self.folder)

    def walk(self, folder: str) -> list[StoredObject]:
        """All files below a folder, by key. Follows no links, as they may lead anywhere."""
        items = []
        for parent, _, names in os.walk(self.folder / folder):
            key = Path(parent).relative_to(self.folder).as_posix()
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    state = os.lstat(f"{parent}/{name}")
                    modified = datetime.fromtimestamp(state.st_mtime, UTC)
                    items.append(StoredObject(f"{key}/{name}", False, state.st_size, modified=modified))
        return sorted(items, key=lambda item: item.key)

    def read_in_order(self, items: Sequence[StoredObject]) -> Iterator[bytes]:
        """The contents of listed files; nothing of those that cannot be read."""
        for item in items:
            try:
                yield (self.folder / item.key).read_bytes()
            except OSError:
                yield b""

    def delete(self, key: str) -> None:
        """Deletes a file, if it exists."""
        (self.folder / key).unlink(missing_ok=True)


def content_size(content: Content) -> int:
    """The number of bytes."""
    return content.stat().st_size if isinstance(content, Path) else len(content)


def content_digest(content: Content) -> str:
    """The SHA-256 by which a content is stored."""
    if isinstance(content, bytes):
        return sha256(content).hexdigest()
    with content.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def store_content(path: Path, content: Content) -> None:
    """Writes a file of the cache, unless it is there; a damaged one is replaced. Raises ``OSError``."""
    if isinstance(content, Path):  # linked, or copied where that does not work
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        try:
            try:
                part.hardlink_to(content)
            except OSError:
                shutil.copyfile(content, part)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)  # linked to the same file, replace() did nothing
        return
    with contextlib.suppress(FileNotFoundError):
        if path.read_bytes() == content:
            with contextlib.suppress(OSError):  # a file of another user
                os.utime(path)  # so that the upkeep of another process does not take it for abandoned
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content)


@contextlib.contextmanager
def scratch_folder(parent: Path | None) -> Iterator[Path]:
    """A folder for files that are to be cached, in ``parent`` or the system's folder. It is deleted at the end."""
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=parent, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def clear_scratch(parent: Path) -> None:
    """Deletes what killed processes have left."""
    for folder in parent.glob(f"{_SCRATCH}*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > _SCRATCH_S:
                shutil.rmtree(folder, ignore_errors=True)


_MAX_ANSWER_BYTES = 64 << 20
_MAX_FILE_BYTES = 1 << 30


def open_cache(
    folder: Path, *, run_id: str = "", warn: Callable[[str], None] = print, reads: set[str] | None = None
) -> Cache:
    """Opens a cache in a folder, or the one at the URL that the folder stands for. Raises ``UsageError``."""
    url = cache_url(folder)
    if url is None:
        return Cache(folder, run_id=run_id, warn=warn, reads=reads)
    return SharedCache(folder, url, run_id=run_id, warn=warn, reads=reads)


def check_shared_cache(folder: Path, *, is_written: bool) -> None:
    """Raises ``UsageError`` for a cache at a URL that cannot be read or, if it will be, written; before any paid call.

    Does nothing for a local cache.
    """
    url = cache_url(folder)
    if url is None:
        return
    store = ObjectStore(url)
    store.check_readable()
    try:
        check_mark(store.read(MARK, _MAX_ANSWER_BYTES), url)
    except MissingObjectError:
        if not is_written:
            raise UsageError(f"{url}: no cache found: --offline needs an existing cache") from None
    if is_written:
        store.put(MARK, MARK_DATA)


class SharedCache(Cache):
    """A local cache that also takes answers from a store, and puts them there. Raises ``StorageError``."""

    is_shared = True

    def __init__(
        self, folder: Path, url: str, *, run_id: str, warn: Callable[[str], None], reads: set[str] | None = None
    ) -> None:
        super().__init__(folder, run_id=run_id, warn=warn, reads=reads)
        self._store = ObjectStore(url)
        self._present: set[str] = set()
        self._present_lock = threading.Lock()

    def pull(self, key: str, usable: Callable[[Iterable[CacheEntry]], Iterable[CacheEntry]] = iter) -> None:
        """Copies the answers in the store that this machine lacks, and the images of the first ``usable`` one."""
        with _storage_errors():
            for item in self._store.entries(answer_folder(key)):
                if not (self.folder / item.key).exists():
                    self._copy_answer(item.key)
            for entry in usable(entry for _, entry in self._answers(key)):
                if all(map(self._copy_image, entry.files)):
                    return

    def _copy_answer(self, name: str) -> None:
        try:
            data = self._store.read(name, _MAX_ANSWER_BYTES)
            decoded(name, data)
        except MissingObjectError:  # deleted since it was listed
            return
        except ValueError as error:
            self._warn_once(name, f"{self._store}/{name}: ignoring a damaged answer in the cache: {error}")
            return
        self._write(name, data, ())

    def _copy_image(self, digest: str) -> bool:
        """Whether the image is on this machine now."""
        if self.has_file(digest):
            return True
        try:
            image = self._store.read(image_file(digest), _MAX_FILE_BYTES)
        except MissingObjectError:
            image = b""
        if sha256(image).hexdigest() != digest:
            where = f"{self._store}/{image_file(digest)}"
            self._warn_once(digest, f"{where}: ignoring a damaged image in the cache")
            return False
        self._write(image_file(digest), image, ())
        return True

    def _save(self, entry: CacheEntry, images: Sequence[tuple[str, Content]]) -> None:
        """Stores an answer on this machine, and a paid one also in the store, even if this machine's disk is full."""
        try:
            super()._save(entry, images)
        finally:
            if entry.kind != "measure":
                with _storage_errors():
                    for digest, image in images:
                        self._put_image(digest, image)
                    self._store.put(*entry.encoded())

    def _put_image(self, digest: str, image: Content) -> None:
        with self._present_lock:
            is_present = digest in self._present
        if not is_present:
            self._store.put(image_file(digest), image.read_bytes() if isinstance(image, Path) else image)
            with self._present_lock:
                self._present.add(digest)


@contextmanager
def _storage_errors() -> Iterator[None]:
    """Credentials that expire during a run are no wrong usage: the run stops as when the store fails."""
    try:
        yield
    except UsageError as error:
        raise StorageError(str(error)) from error
