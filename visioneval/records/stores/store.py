"""An object store through fsspec: bounded retries, complete reads, and objects that only one process can create."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from visioneval.errors import StorageError, UsageError
from visioneval.installation import install_command
from visioneval.media.network import bucket_files, first_answer
from visioneval.media.urls import BUCKETS, client_message, is_denied

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

FIRST_WAIT_S = 0.25
"""The wait before the second attempt; each further wait is twice as long."""
_ATTEMPTS = 6
_GCS_ATTEMPTS = 1
"""gcsfs makes six of its own in each, over half a minute."""
_FIRST_ATTEMPTS = 3
"""Attempts in a bucket that has not answered yet: more likely, its name, the network or the credentials are wrong."""
_ANSWERED: set[str] = set()
"""The buckets that have answered this process."""
_THREADS = 16
_NO_S3_CREDENTIALS = "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
_LARGE = 64 << 20
"""Objects of more bytes are read in parts, several at once."""
_VERSIONS = ("ETag", "etag", "generation", "mtime", "created")
_TIMES = ("LastModified", "mtime", "updated", "created")
"""What the file systems of fsspec call these."""


class MissingObjectError(StorageError):
    """An object that does not exist."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object, or a folder of objects, below a store's URL.

    ``key`` is relative to that URL. ``version`` changes with the content.
    """

    key: str
    is_folder: bool
    bytes: int = 0
    version: str = ""
    modified: datetime | None = None

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition("/")[2]


class ObjectStore:
    """The objects below one URL of any file system of fsspec. Thread-safe.

    Raises ``StorageError`` for an operation that all attempts failed. ``locations`` decides which URLs a user may name.
    """

    def __init__(self, url: str) -> None:
        """Makes no call. Raises ``UsageError`` without the extra that the URL needs."""
        self.url = url.rstrip("/")
        self._scheme = url.partition("://")[0]
        self._files = _file_system(self._scheme)
        self._root = str(self._files._strip_protocol(self.url)).rstrip("/")  # noqa: SLF001 - no other name for it
        self._bucket = f"{self._scheme}://{self._root.partition('/')[0]}"

    def __str__(self) -> str:
        return self.url

    def entries(self, folder: str = "") -> list[StoredObject]:
        """The objects and folders directly in a folder, by key; empty if nothing is there."""
        path = self._path(folder)
        try:
            listed = self._call("list", folder, self._list, path)
        except MissingObjectError:
            return []
        return self._objects(entry for entry in listed if entry["name"].strip("/") != path.strip("/"))

    def walk(self, folder: str) -> list[StoredObject]:
        """All objects below a folder, by key."""
        listed = self._call("list", folder, self._files.find, self._path(folder), detail=True)
        return self._objects(iter(listed.values()))

    def check_readable(self) -> None:
        """Raises ``UsageError`` if the bucket does not exist or does not allow listing."""
        if not self.entries():
            try:
                self._call("list", "", self._files.ls, self._root.partition("/")[0], detail=False)
            except MissingObjectError:
                raise UsageError(f"{self.url}: there is no such bucket") from None

    def read(self, key: str, limit: int | None = None) -> bytes:
        """The content of an object. Raises ``MissingObjectError``, and ``UsageError`` beyond ``limit`` bytes."""
        if limit is not None and self._call("read", key, self._files.info, self._path(key))["size"] > limit:
            raise UsageError(f"{self.url}/{key}: over the limit of {limit:,} bytes")
        return self._call("read", key, self._read, key)

    def read_listed(self, item: StoredObject) -> bytes:
        """The complete content of a listed object, or of one that has replaced it. Raises ``MissingObjectError``."""

        def read() -> bytes:
            data = self._read(item.key, is_large=item.bytes > _LARGE)
            if len(data) != item.bytes and len(data) != (size := self._files.info(self._path(item.key))["size"]):
                raise OSError(f"received {len(data):,} of {size:,} bytes")
            return data

        return self._call("read", item.key, read)

    def read_in_order(self, items: Sequence[StoredObject]) -> Iterator[bytes]:
        """The contents of listed objects, in order; several are read at once."""
        for start in range(0, len(items), _THREADS):
            yield from in_threads(self.read_listed, items[start : start + _THREADS])

    def download(self, items: Sequence[StoredObject], folder: Path) -> None:
        """Writes listed objects to files below a folder, several at once. Replaces one only by a complete object."""

        def fetch(item: StoredObject) -> None:
            path = folder / item.key
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f".{path.name}.part")
            part.write_bytes(self.read_listed(item))
            part.replace(path)

        in_threads(fetch, items)

    def put(self, key: str, data: bytes) -> None:
        """Creates or replaces an object."""
        self._call("write", key, self._files.pipe_file, self._path(key), data)

    def create(self, key: str, data: bytes) -> bool:
        """Creates an object, unless it exists. Returns whether this call created it: no two processes get ``True``.

        ``data`` must be unique: it tells a lost reply to our own request from another creator. Raises ``UsageError``
        for a store that cannot create exclusively.
        """
        try:
            self._call("create", key, self._files.pipe_file, self._path(key), data, mode="create")
        except FileExistsError:
            return self.read(key) == data
        return True

    def delete(self, key: str) -> None:
        """Deletes an object, if it exists."""
        try:
            self._call("delete", key, self._files.rm_file, self._path(key))
        except MissingObjectError:
            return

    def _read(self, key: str, *, is_large: bool = False) -> bytes:
        # s3fs first asks for the size of what it may read in parts
        options = {"max_concurrency": 1} if self._scheme == "s3" and not is_large else {}
        data: bytes = self._files.cat_file(self._path(key), **options)
        return data

    def _list(self, path: str) -> Any:
        if self._scheme == "gs" and self._bucket not in _ANSWERED:  # S3 has a time limit for each attempt
            return first_answer(self._files, partial(self._files._ls, detail=True), path)  # noqa: SLF001 - ls() has no timeout
        return self._files.ls(path, detail=True)

    def _objects(self, entries: Iterator[dict[str, Any]]) -> list[StoredObject]:
        return sorted(map(self._object, entries), key=lambda item: item.key)

    def _object(self, entry: dict[str, Any]) -> StoredObject:
        key = entry["name"].strip("/").removeprefix(self._root.strip("/")).lstrip("/")
        version = next((str(entry[name]) for name in _VERSIONS if entry.get(name)), "")
        modified = next((entry[name] for name in _TIMES if entry.get(name)), None)
        if isinstance(modified, str):
            modified = datetime.fromisoformat(modified)
        elif isinstance(modified, float):
            modified = datetime.fromtimestamp(modified, UTC)
        if modified is not None and modified.tzinfo is None:
            modified = modified.replace(tzinfo=UTC)
        return StoredObject(key, entry["type"] == "directory", int(entry.get("size") or 0), version, modified)

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}".rstrip("/")

    def _call(self, verb: str, key: str, operation: Callable[..., ResultT], *arguments: Any, **options: Any) -> ResultT:
        """Calls the store until it answers. Missing and existing objects and denied access are answers."""
        what = f"cannot {verb} {self.url}/{key}".rstrip("/")
        has_answered = self._bucket in _ANSWERED
        attempts = _GCS_ATTEMPTS if self._scheme == "gs" else _ATTEMPTS if has_answered else _FIRST_ATTEMPTS
        for attempt in range(1, attempts + 1):
            try:
                answer = operation(*arguments, **options)
            except FileNotFoundError:
                _ANSWERED.add(self._bucket)
                raise MissingObjectError(f"{what}: there is no such object") from None
            except FileExistsError:
                raise
            except Exception as error:  # each library behind fsspec has its own errors
                if _is_unsupported(error):
                    lack = no_exclusive_creation(self.url) if verb == "create" else f"{what}: {client_message(error)}"
                    raise UsageError(lack) from None
                _raise_final(what, error, has_answered=has_answered)
                if attempt == attempts:
                    raise StorageError(f"{what}: {client_message(error)}") from error
            else:
                _ANSWERED.add(self._bucket)
                return answer
            time.sleep(FIRST_WAIT_S * 2 ** (attempt - 1) * random.uniform(0.5, 1.0))  # noqa: S311 - spreads retries
        raise AssertionError("the last attempt returns or raises")


def _raise_final(what: str, error: Exception, *, has_answered: bool) -> None:
    """Raises the error of an operation that no other attempt would change."""
    reply: Any = getattr(error.__cause__, "response", None)
    code = reply.get("Error", {}).get("Code") if isinstance(reply, dict) else None
    if code in ("PreconditionFailed", "412"):  # not every S3 names the condition that failed, as s3fs expects
        raise FileExistsError from None
    if is_denied(error):
        raise UsageError(f"{what}: {client_message(error)}") from None
    if not has_answered and type(error).__name__ == "NoCredentialsError":
        raise UsageError(f"{what}: {_NO_S3_CREDENTIALS}") from None


def _is_unsupported(error: Exception) -> bool:
    """Whether the store, or its library, has no such operation."""
    text = f"{type(error).__name__} {error} {error.__cause__}"
    return "NotImplemented" in text or "not implemented" in text


def no_exclusive_creation(url: str) -> str:
    """The message for a store in which two writers could not be kept apart."""
    return (
        f"{url}: this store has no conditional create (If-None-Match, ifGenerationMatch), so two writers could"
        " overwrite each other: write the run to a local folder, and copy it there when it is complete"
    )


def in_threads(work: Callable[[ItemT], ResultT], items: Sequence[ItemT]) -> list[ResultT]:
    """The results of requests for several items, made at once. Raises the first error."""
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(_THREADS, len(items)), thread_name_prefix="store") as threads:
        return list(threads.map(work, items))


def _file_system(scheme: str) -> Any:
    """The client, with the user's settings of fsspec, but without cached listings and without retries of S3 inside."""
    import fsspec

    options: dict[str, Any] = {"use_listings_cache": False}
    if scheme == "s3":
        configured = fsspec.config.conf.get("s3", {}).get("config_kwargs", {})
        options["config_kwargs"] = {"retries": {"max_attempts": 0}, **configured}
    try:
        files = bucket_files(scheme, **options)
    except ImportError:
        raise UsageError(f"{scheme}:// needs an extra: {install_command(BUCKETS[scheme])}") from None
    if scheme == "s3":
        files.retries = 1
    return files
