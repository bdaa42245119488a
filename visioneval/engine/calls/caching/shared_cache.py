"""A cache of paid answers in an object store, which several machines share. A local cache lies in front of it.

    URL/visioneval-cache.json   the format
        answers/ab/abcd...json  one answer, by the SHA-256 of its key
        files/ab/abcd...        images, by the SHA-256 of their bytes

An answer is in the store before its cell is recorded. Local measurements stay on the machine: they cost nothing but
time, and mostly less of it than a request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field, TypeAdapter, ValidationError

from visioneval.engine.calls.caching.cache import Cache, CacheOrigin, Kind
from visioneval.engine.calls.caching.cache_files import Content
from visioneval.engine.calls.caching.cache_index import FORMAT, USE_ANOTHER_FOLDER
from visioneval.errors import StorageError, UsageError
from visioneval.records.stores.locations import cache_url
from visioneval.records.stores.store import MissingObjectError, ObjectStore
from visioneval.types import Frozen

MARK = "visioneval-cache.json"
_MAX_ANSWER_BYTES = 64 << 20
_MAX_FILE_BYTES = 1 << 30


class SharedEntry(Frozen):
    """One answer in the store. ``sha256`` is that of the key and the answer, so that a damaged one is a miss."""

    key: str
    kind: Literal["generate", "judge"]
    answer: dict[str, Any]
    files: tuple[Annotated[str, Field(pattern="^[0-9a-f]{64}$")], ...] = ()
    stored_at: str
    run_id: str
    sha256: str


_ENTRY: TypeAdapter[SharedEntry] = TypeAdapter(SharedEntry)


def open_cache(folder: Path, *, run_id: str = "", warn: Callable[[str], None] = print) -> Cache:
    """Opens a cache in a folder, or the one at the URL that the folder stands for. Raises ``UsageError``."""
    url = cache_url(folder)
    return Cache(folder, run_id=run_id, warn=warn) if url is None else SharedCache(folder, url, run_id, warn)


def check_shared_cache(folder: Path, *, is_written: bool) -> None:
    """Raises ``UsageError`` for a cache at a URL that cannot be read or, if it will be, written; before any paid call.

    Does nothing for a local cache.
    """
    url = cache_url(folder)
    if url is None:
        return
    store = ObjectStore(url)
    store.check_readable()
    mark = orjson.dumps({"visioneval_cache": FORMAT})
    try:
        is_current = store.read(MARK, _MAX_ANSWER_BYTES) == mark
    except MissingObjectError:
        is_current = True
        if not is_written:
            raise UsageError(f"{url}: no cache found: --offline needs an existing cache") from None
    if not is_current:
        raise UsageError(f"{url}: written by another version of visioneval: {USE_ANOTHER_FOLDER}")
    if is_written:
        store.put(MARK, mark)


class SharedCache(Cache):
    """A local cache that also takes answers from a store, and puts them there. Raises ``StorageError``."""

    is_shared = True

    def __init__(self, folder: Path, url: str, run_id: str, warn: Callable[[str], None]) -> None:
        super().__init__(folder, run_id=run_id, warn=warn)
        self._store = ObjectStore(url)
        self._present: set[str] = set()
        self._present_lock = threading.Lock()

    def pull(self, key: str, run_id: str | None = None) -> None:
        """Takes an answer from the store into the local cache, unless it has one; with ``run_id``, one of that run."""
        local = self.get(key)
        if local is not None and run_id in (None, local.run_id):
            return
        with _storage_errors():
            entry = self._entry(key)
            if entry is None or (local is not None and entry.run_id != run_id):
                return
            images = [(digest, image) for digest in entry.files if (image := self._image(digest)) is not None]
        if len(images) == len(entry.files):
            super().put(key, entry.kind, entry.answer, images, origin=CacheOrigin(entry.stored_at, entry.run_id))

    def put(
        self,
        key: str,
        kind: Kind,
        answer: Mapping[str, Any],
        images: Sequence[tuple[str, Content]] = (),
        *,
        origin: CacheOrigin | None = None,
    ) -> None:
        """Stores an answer on this machine, and a paid one also in the store, even if this machine's disk is full."""
        origin = origin or self.origin()
        try:
            super().put(key, kind, answer, images, origin=origin)
        finally:
            if kind != "measure":
                self._share(key, kind, answer, images, origin)

    def _share(
        self,
        key: str,
        kind: Kind,
        answer: Mapping[str, Any],
        images: Sequence[tuple[str, Content]],
        origin: CacheOrigin,
    ) -> None:
        """Puts an answer into the store: its images first."""
        entry = SharedEntry(
            key=key,
            kind=kind,
            answer=dict(answer),
            files=tuple(digest for digest, _ in images),
            stored_at=origin.stored_at,
            run_id=origin.run_id,
            sha256=_checksum(key, answer),
        )
        with _storage_errors():
            for digest, image in images:
                self._put_image(digest, image)
            self._store.put(_answer_key(key), orjson.dumps(entry.model_dump()))

    def _put_image(self, digest: str, image: Content) -> None:
        with self._present_lock:
            is_present = digest in self._present
        if not is_present:
            self._store.put(_file_key(digest), image.read_bytes() if isinstance(image, Path) else image)
            with self._present_lock:
                self._present.add(digest)

    def _entry(self, key: str) -> SharedEntry | None:
        """The entry in the store; ``None``, with a warning, if it is damaged or belongs to another question."""
        try:
            entry = _ENTRY.validate_json(self._store.read(_answer_key(key), _MAX_ANSWER_BYTES))
        except MissingObjectError:
            return None
        except ValidationError:
            entry = None
        if entry is None or entry.key != key or entry.sha256 != _checksum(key, entry.answer):
            self._warn(f"{self._store}: ignoring a damaged entry in the cache: {_answer_key(key)}")
            return None
        return entry

    def _image(self, digest: str) -> bytes | None:
        try:
            image = self._store.read(_file_key(digest), _MAX_FILE_BYTES)
        except MissingObjectError:
            image = b""
        if sha256(image).hexdigest() == digest:
            return image
        self._warn(f"{self._store}: ignoring a damaged image in the cache: {_file_key(digest)}")
        return None


@contextmanager
def _storage_errors() -> Iterator[None]:
    """Credentials that expire during a run are no wrong usage: the run stops as when the store fails."""
    try:
        yield
    except UsageError as error:
        raise StorageError(str(error)) from error


def _answer_key(key: str) -> str:
    name = sha256(key.encode()).hexdigest()
    return f"answers/{name[:2]}/{name}.json"


def _file_key(digest: str) -> str:
    return f"files/{digest[:2]}/{digest}"


def _checksum(key: str, answer: Mapping[str, Any]) -> str:
    return sha256(key.encode() + b"\n" + orjson.dumps(answer, option=orjson.OPT_SORT_KEYS)).hexdigest()
