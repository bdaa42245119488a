"""Local measurements, made once: cached by the content of the measured files, and shared by concurrent cells.

The checksum of a cached entry covers its key. So an entry that was damaged, or that belongs to other files, is no
result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar, cast

import orjson
from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from visioneval.errors import ClosingError, StorageError
from visioneval.graders.measures import Measure
from visioneval.running.calls.cache import Cache, content_digest
from visioneval.running.calls.cache_files import CacheEntry
from visioneval.running.calls.judges import Meter
from visioneval.running.keys import HashOf
from visioneval.threads import Slots, in_thread, processors, waiting

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
    slots: Slots = field(default_factory=lambda: Slots(processors()))
    """One for each measurement that may be made at once."""
    running: int = 0
    """The measurements that a thread makes now."""
    _tasks: dict[str, asyncio.Task[Any]] = field(default_factory=dict)
    _is_broken: bool = False
    _is_closed: bool = False
    _lock: Lock = field(default_factory=Lock)

    async def __call__(self, measure: Measure[T], *, hash_of: HashOf, meter: Meter, turn: int = 0) -> T:
        """The cached result, or a new one. Concurrent calls for the same files share one measurement.

        New ones are made in the order of ``turn``, the lowest first.
        Raises what the measure raises: errors are not cached, and not shared. Raises ``ClosingError`` for a new
        measurement after ``close``.
        """
        key = None if self.cache is None else measure_key(measure, hash_of)
        if self.cache is None or key is None:
            meter.add_measurement(cached=False)
            return await self._in_turn(turn, self._run, measure)
        while (task := self._tasks.get(key)) is not None:
            with waiting():
                await asyncio.wait([task])
            if not task.cancelled() and task.exception() is None:
                meter.add_measurement(cached=True)
                shared: T = task.result()
                return shared
        entry = self.cache.get(key) if self.reuses else None
        if entry is not None:
            cached = await asyncio.to_thread(self._read, self.cache, key, entry, measure)
            if cached is not None:
                meter.add_measurement(cached=True)
                return cached
        meter.add_measurement(cached=False)
        return await self._measure_once(self.cache, key, measure, hash_of, turn)

    async def directly(self, measure: Measure[T], *, turn: int = 0) -> T:
        """A new result that is not cached."""
        return await self._in_turn(turn, measure.run)

    async def _in_turn(self, turn: int, work: Callable[..., T], *args: Any) -> T:
        async with self.slots.taken(turn):
            return await in_thread(work, *args)

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

    async def _measure_once(self, cache: Cache, key: str, measure: Measure[T], hash_of: HashOf, turn: int) -> T:
        """Measures in a thread. Goes on if the caller is cancelled, because a thread cannot be stopped."""
        task = asyncio.ensure_future(self._in_turn(turn, self._measure, cache, key, measure, hash_of))
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
        if entry is None or any(content_digest(path) != hash_of(path) for path in measure.files.values()):
            return result  # not plain data, or a file changed since its hash was taken
        images = {name: data for name, (_, data) in entry.images.items()}
        if not self._is_broken:
            try:
                cache.put(key, "measure", entry.answer, tuple(entry.images.values()))
                images = {
                    name: CachedImage.of(cache.path(sha), data) if cache.has_file(sha) else data  # if it is read-only
                    for name, (sha, data) in entry.images.items()
                }
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


_HASH_LENGTH = 64


@dataclass(frozen=True, slots=True)
class MeasurementEntry:
    """A result as it is cached: JSON without its images, and these by field, with their SHA-256."""

    key: str
    plain: str
    images: Mapping[str, tuple[str, bytes]]

    @property
    def answer(self) -> dict[str, Any]:
        """What the cache stores."""
        digests = {name: image_sha256 for name, (image_sha256, _) in self.images.items()}
        return {"result": self.plain, "images": digests, "sha256": _checksum(self.key, self.plain, digests)}


def measure_key(measure: Measure[Any], hash_of: HashOf) -> str | None:
    """The cache key of a measure: the content of its files, its options and all versions, but no path.

    ``None`` if one of these is not known, so that the result must not be cached.
    """
    versions = measure.versions
    hashes = {role: hash_of(path) for role, path in measure.files.items()}
    if versions is None or any(len(file_hash) != _HASH_LENGTH for file_hash in hashes.values()):
        return None  # a file is missing, too large or not on this machine
    parts = orjson.dumps([measure.name, hashes, measure.options, versions], option=orjson.OPT_SORT_KEYS)
    return f"measure:{sha256(parts).hexdigest()}"


def entry_of(key: str, measure: Measure[T], result: T) -> MeasurementEntry | None:
    """A result as an entry; ``None`` if plain data cannot express it, such as a number that is not finite."""
    images = {name: getattr(result, name) for name in _image_fields(measure)}
    without_images = replace(cast("Any", result), **dict.fromkeys(images, b""))
    try:
        plain = _adapter(measure).dump_json(without_images, warnings="error").decode()
        entry = MeasurementEntry(key, plain, {name: (sha256(data).hexdigest(), data) for name, data in images.items()})
        result_of(plain, images, measure)
    except (PydanticSerializationError, ValueError):
        return None
    return entry


def checked_entry(key: str, answer: Mapping[str, Any], measure: Measure[Any]) -> tuple[str, dict[str, str]]:
    """The JSON and the hashes of the images of a cached entry. Raises ``ValueError`` if it is damaged."""
    plain, digests = (answer.get("result"), answer.get("images")) if isinstance(answer, dict) else (None, None)
    if (
        not isinstance(plain, str)
        or not isinstance(digests, dict)
        or not all(isinstance(digest, str) for digest in digests.values())
    ):
        raise ValueError("it has no result")
    if answer.get("sha256") != _checksum(key, plain, digests):
        raise ValueError("its checksum does not match")
    if digests.keys() != set(_image_fields(measure)):
        raise ValueError("it has other images")
    return plain, digests


def result_of(plain: str, images: Mapping[str, bytes], measure: Measure[T]) -> T:
    """The result, with the digits that it was measured with. Raises ``ValueError`` for data of another type."""
    result: T = _adapter(measure).validate_json(plain, strict=True)
    return replace(cast("Any", result), **images) if images else result


def _adapter(measure: Measure[Any]) -> TypeAdapter[Any]:
    return _adapter_and_images(cast("Any", measure.result))[0]


def _image_fields(measure: Measure[Any]) -> tuple[str, ...]:
    return _adapter_and_images(cast("Any", measure.result))[1]


@cache
def _adapter_and_images(result: Any) -> tuple[TypeAdapter[Any], tuple[str, ...]]:
    return TypeAdapter(result), tuple(item.name for item in fields(result) if item.type in ("bytes", bytes))


def _checksum(key: str, plain: str, digests: Mapping[str, str]) -> str:
    images = " ".join(f"{name}={digests[name]}" for name in sorted(digests))
    return sha256(f"{key}\n{images}\n{plain}".encode()).hexdigest()
