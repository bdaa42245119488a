"""Measurements as entries of the cache: their keys, and results to and from plain data.

The checksum of an entry covers its key. So an entry that was damaged, or that belongs to other files, is not a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from hashlib import sha256
from typing import Any, TypeVar, cast

import orjson
from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from visioneval.expansion.keys import HashOf
from visioneval.graders.measures import Measure

T = TypeVar("T")
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
    if not isinstance(plain, str) or not isinstance(digests, dict) or not all(map(_is_text, digests.values())):
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


def _is_text(value: object) -> bool:
    return isinstance(value, str)


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
