"""The upkeep of a cache: its statistics, its damage, and what is deleted. The same for a folder and a bucket.

An image that no answer names may belong to an answer that is being stored: images come first. So it is deleted an hour
after it was written, while those of deleted answers go with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Protocol

from visioneval.records.stores.store import StoredObject
from visioneval.running.calls.caching.layout import (
    ANSWERS,
    FILES,
    CacheEntry,
    decoded,
    image_digest,
    image_file,
    is_answer_file,
)

_ON_ITS_WAY = timedelta(hours=1)
_SPARE = 0.75
"""A full cache is reduced to this part of its maximum."""


class Store(Protocol):
    """A folder or a bucket."""

    def walk(self, folder: str) -> list[StoredObject]:
        """All files below a folder."""

    def read_in_order(self, items: Sequence[StoredObject]) -> Iterator[bytes]:
        """The contents of listed files."""

    def delete(self, key: str) -> None:
        """Deletes a file, if it exists."""


@dataclass(slots=True)
class Contents:
    """The files of a cache. Answers are without their data, of which there may be much."""

    answers: dict[str, CacheEntry] = field(default_factory=dict)
    """By file."""
    damaged: dict[str, str] = field(default_factory=dict)
    """What is wrong with a file where answers are."""
    images: dict[str, StoredObject] = field(default_factory=dict)
    """By SHA-256."""
    unfinished: list[StoredObject] = field(default_factory=list)
    """Files that are being written, or whose writer was killed."""
    others: list[str] = field(default_factory=list)
    """Files that no cache has."""
    sizes: dict[str, int] = field(default_factory=dict)
    """By file."""
    read_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def size(self) -> int:
        """The size of all files."""
        return sum(self.sizes.values())

    @property
    def named(self) -> dict[str, str]:
        """The images that answers name, each with one of these answers."""
        return {digest: name for name, entry in self.answers.items() for digest in entry.files}

    def repeated(self) -> dict[str, list[CacheEntry]]:
        """The answers to questions that have several, by key, the newest first."""
        by_key: dict[str, list[CacheEntry]] = {}
        for _, entry in sorted(self.answers.items(), key=lambda item: (item[1].stored_at, item[0]), reverse=True):
            by_key.setdefault(entry.key, []).append(entry)
        return {key: entries for key, entries in by_key.items() if len(entries) > 1}


def read_contents(store: Store) -> Contents:
    """Reads all answers, and lists all images."""
    contents, items = Contents(), []
    for item in (*store.walk(ANSWERS), *store.walk(FILES)):
        contents.sizes[item.key] = item.bytes
        if item.name.startswith("."):
            contents.unfinished.append(item)
        elif (digest := image_digest(item.key)) is not None:
            contents.images[digest] = item
        elif is_answer_file(item.key):
            items.append(item)
        else:
            contents.others.append(item.key)
    for item, data in zip(items, store.read_in_order(items), strict=True):
        try:
            contents.answers[item.key] = decoded(item.key, data).model_copy(update={"answer": {}})
        except ValueError as error:
            contents.damaged[item.key] = str(error)
    return contents


def problems(store: Store, contents: Contents) -> Iterator[str]:
    """What is wrong with the files, a line each. Reads all images."""
    for name, reason in contents.damaged.items():
        yield f"{name}: damaged: {reason}"
    for name in contents.others:
        yield f"{name}: no file of a cache"
    images = list(contents.images.items())
    for (digest, item), data in zip(images, store.read_in_order([item for _, item in images]), strict=True):
        if sha256(data).hexdigest() != digest:
            yield f"{item.key}: damaged: its content is not what its name states"
    for digest, name in contents.named.items():
        if digest not in contents.images:
            yield f"{image_file(digest)}: missing: named by {name}"


def delete_answers(store: Store, contents: Contents, names: Collection[str]) -> None:
    """Deletes answers, the images that no other answer names, and what killed writers have left."""
    named = {digest for name, entry in contents.answers.items() if name not in names for digest in entry.files}
    freed = {digest for name in names if name in contents.answers for digest in contents.answers[name].files}
    abandoned = contents.read_at - _ON_ITS_WAY
    items = [
        (contents.read_at if digest in freed else abandoned, item)
        for digest, item in contents.images.items()
        if digest not in named
    ]
    items += [(abandoned, item) for item in contents.unfinished]
    for name in names:
        store.delete(name)
    for limit, item in items:
        if item.modified is None or item.modified < limit:
            store.delete(item.key)


def clear(store: Store, contents: Contents, before: str | None = None) -> int:
    """Deletes all answers, or those stored before a time. Returns how many."""
    dropped = [name for name, entry in contents.answers.items() if before is None or entry.stored_at < before]
    delete_answers(store, contents, {*dropped, *(contents.damaged if before is None else ())})
    return len(dropped)


def prune(store: Store, contents: Contents, keep: Collection[str], before: str) -> int:
    """Deletes answers that were stored before a time, but not those to ``keep``; and damaged ones. Returns how many."""
    dropped = [name for name, entry in contents.answers.items() if name not in keep and entry.stored_at < before]
    delete_answers(store, contents, {*dropped, *contents.damaged})
    return len(dropped)


def tidy(store: Store, max_bytes: int) -> None:
    """Deletes the oldest answers of a cache that exceeds ``max_bytes``. Measurements go first: they cost only time."""
    total = sum(item.bytes for folder in (ANSWERS, FILES) for item in store.walk(folder))
    if total <= max_bytes:
        return
    contents, dropped = read_contents(store), set()
    uses = Counter(digest for entry in contents.answers.values() for digest in set(entry.files))
    for name, entry in sorted(
        contents.answers.items(), key=lambda item: (item[1].kind != "measure", item[1].stored_at)
    ):
        if total <= max_bytes * _SPARE:
            break
        dropped.add(name)
        total -= contents.sizes[name]
        for digest in set(entry.files):
            uses[digest] -= 1
            if not uses[digest]:
                total -= contents.sizes.get(image_file(digest), 0)
    delete_answers(store, contents, dropped)
