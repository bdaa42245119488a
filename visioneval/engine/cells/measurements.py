"""Local measurements, made once: cached by the content of the measured files, and shared by concurrent cells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from hashlib import file_digest
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from visioneval.aio import SMALL, run_in_thread
from visioneval.engine.calls.caching.cache import Cache
from visioneval.engine.calls.caching.layout import CacheEntry
from visioneval.engine.calls.cost.meter import Meter
from visioneval.engine.cells.measurement_entries import checked_entry, entry_of, measure_key, result_of
from visioneval.errors import ClosingError, StorageError
from visioneval.expansion.keys import HashOf
from visioneval.graders.measures import Measure
from visioneval.stopwatch import waiting

T = TypeVar("T")


class CachedImage(bytes):
    """An image of a measurement that is also a file of the cache, so that a run can link to it."""

    file: Path | None = None

    @classmethod
    def of(cls, file: Path, data: bytes) -> CachedImage:
        """The image with its file."""
        image = cls(data)
        image.file = file
        return image


@dataclass(slots=True)
class Measurements:
    """The local measurements of one run. Without a cache, nothing is stored."""

    cache: Cache | None = None
    reuses: bool = True
    """Whether cached measurements count; otherwise everything is measured again, and replaces them."""
    warn: Callable[[str], None] = print
    running: int = 0
    """The measurements that a thread makes now."""
    _tasks: dict[str, asyncio.Task[Any]] = field(default_factory=dict)
    _is_broken: bool = False
    _is_closed: bool = False
    _lock: Lock = field(default_factory=Lock)

    async def __call__(self, measure: Measure[T], *, hash_of: HashOf, meter: Meter) -> T:
        """The cached result, or a new one. Concurrent calls for the same files share one measurement.

        Raises what the measure raises: errors are not cached, and not shared. Raises ``ClosingError`` for a new
        measurement after ``close``.
        """
        key = None if self.cache is None else measure_key(measure, hash_of)
        if self.cache is None or key is None:
            meter.add_measurement(cached=False)
            return await asyncio.to_thread(self._run, measure)
        while (task := self._tasks.get(key)) is not None:
            with waiting():
                await asyncio.wait([task])
            if not task.cancelled() and task.exception() is None:
                meter.add_measurement(cached=True)
                shared: T = task.result()
                return shared
        entry = self.cache.get(key) if self.reuses else None
        if entry is not None:
            work = partial(self._read, self.cache, key, entry, measure)
            cached = await run_in_thread(work, when=entry.image_bytes > SMALL)
            if cached is not None:
                meter.add_measurement(cached=True)
                return cached
        meter.add_measurement(cached=False)
        return await self._measure_once(self.cache, key, measure, hash_of)

    def close(self) -> None:
        """Starts no more measurements. Those that wait for a thread raise ``ClosingError``; those that run finish.

        Whoever resumes the run measures again, on cached outputs. So it does nothing where outputs are not cached. An
        output that the cache does not hand out again, as its answer had fewer images than asked for, is paid for again.
        """
        if self.cache is None or not self.cache.is_writable:
            return
        with self._lock:
            self._is_closed = True

    def _run(self, measure: Measure[T]) -> T:
        """Measures in this thread."""
        with self._lock:
            if self._is_closed:
                raise ClosingError("the run is being stopped")
            self.running += 1
        try:
            return measure.run()
        finally:
            with self._lock:
                self.running -= 1

    async def _measure_once(self, cache: Cache, key: str, measure: Measure[T], hash_of: HashOf) -> T:
        """Measures in a thread. Goes on if the caller is cancelled, because a thread cannot be stopped."""
        task = asyncio.ensure_future(asyncio.to_thread(self._measure, cache, key, measure, hash_of))
        self._tasks[key] = task

        def settle(done: asyncio.Task[T]) -> None:
            if self._tasks.get(key) is done:
                del self._tasks[key]
            if not done.cancelled():
                done.exception()  # marks it as retrieved: nothing may be waiting for it any more

        task.add_done_callback(settle)
        return await asyncio.shield(task)

    def _measure(self, cache: Cache, key: str, measure: Measure[T], hash_of: HashOf) -> T:
        """Measures and caches. The result is what a later run reads, so that both records are the same."""
        result = self._run(measure)
        entry = entry_of(key, measure, result)
        if entry is None or any(_sha256_of(path) != hash_of(path) for path in measure.files.values()):
            return result  # not plain data, or a file changed since its hash was taken
        images = {name: data for name, (_, data) in entry.images.items()}
        if not self._is_broken:
            try:
                cache.put(key, "measure", entry.answer, tuple(entry.images.values()))
                images = {name: _linkable(data, cache.path(sha)) for name, (sha, data) in entry.images.items()}
            except StorageError as error:  # nothing is lost: what is not cached is measured again
                self._stop_caching(error)
        return result_of(entry.plain, images, measure)

    def _stop_caching(self, error: StorageError) -> None:
        """Warns once, although several threads may measure; not after ``close``, as the cache may be closed too."""
        with self._lock:
            is_news, self._is_broken = not (self._is_broken or self._is_closed), True
        if is_news:
            self.warn(f"{error}: measurements of this run are no longer cached")

    def _read(self, cache: Cache, key: str, entry: CacheEntry, measure: Measure[T]) -> T | None:
        """The result of an entry with its images; ``None``, with a warning, if it is damaged."""
        try:
            plain, digests = checked_entry(key, entry.answer, measure)
            images = {
                name: CachedImage.of(cache.path(image_sha256), data)
                for name, image_sha256 in digests.items()
                if (data := cache.read(image_sha256)) is not None
            }
            return result_of(plain, images, measure) if images.keys() == digests.keys() else None
        except ValueError as error:
            reason = str(error).partition("\n")[0]
            self.warn(f"{cache.folder}: ignoring a damaged measurement in the cache: {reason:.200}")
            return None


def _linkable(data: bytes, file: Path) -> bytes:
    """A new image with its file in the cache; a read-only cache has none."""
    return CachedImage.of(file, data) if file.exists() else data


def _sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
