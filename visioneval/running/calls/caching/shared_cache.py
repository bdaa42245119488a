"""A cache of paid answers in an object store, which several machines share: the files of a local cache, in a bucket.

A local cache lies in front of it. An answer is in the store before its cell is recorded. Local measurements stay on the
machine: they cost nothing but time, and mostly less of it than a request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from visioneval.errors import StorageError, UsageError
from visioneval.records.stores.lookup import cache_url
from visioneval.records.stores.store import MissingObjectError, ObjectStore
from visioneval.running.calls.caching.cache import Cache, Content
from visioneval.running.calls.caching.layout import (
    MARK,
    MARK_DATA,
    CacheEntry,
    answer_folder,
    check_mark,
    decoded,
    image_file,
)

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
        self,
        folder: Path,
        url: str,
        *,
        run_id: str,
        warn: Callable[[str], None],
        reads: set[str] | None = None,
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
