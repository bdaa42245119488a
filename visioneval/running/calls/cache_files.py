"""The files of a cache, in a folder or in a bucket: what they are called, what is in them, and their upkeep.

    visioneval-cache.json          the format
    answers/ab/KEY/CONTENT.json    one answer: KEY is the SHA-256 of its question, CONTENT that of the file
    files/ab/CONTENT               images, by the SHA-256 of their bytes

A file never changes, and its name states its content. So branches of a repository merge without a conflict: what two of
them answered has two files. Keys contain no host, path or time, so a cache replays anywhere.

An image that no answer names may belong to an answer that is being stored: images come first. So it is deleted an hour
after it was written, while those of deleted answers go with them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import MAXYEAR, UTC, datetime, timedelta
from hashlib import sha256
from typing import Annotated, Any, Literal, Protocol

import orjson
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from visioneval.errors import UsageError
from visioneval.records.stores.store import StoredObject
from visioneval.types import Frozen

Kind = Literal["generate", "judge", "measure"]
MARK = "visioneval-cache.json"
FORMAT = 3
MARK_DATA = orjson.dumps({"visioneval_cache": FORMAT})
ANSWERS, FILES = "answers", "files"
USE_ANOTHER_FOLDER = "choose another folder with --cache"
"""What to do about a folder that cannot be used."""
_DIGEST = "[0-9a-f]{64}"
_ANSWER_FILE = re.compile(rf"{ANSWERS}/[0-9a-f]{{2}}/({_DIGEST})/(.+)\.json")
_IMAGE_FILE = re.compile(rf"{FILES}/[0-9a-f]{{2}}/({_DIGEST})")
_MICROSECOND = timedelta(microseconds=1)


def _real_time(text: str) -> str:
    """A text that is a time, and not in the last year that there can be. Raises ``ValueError``."""
    if datetime.fromisoformat(text).year == MAXYEAR:
        raise ValueError("no answer can be newer")
    return text


class CacheEntry(Frozen):
    """A cached answer. ``answer`` is plain data; ``Cache.read`` reads its images."""

    key: str
    kind: Kind
    answer: dict[str, Any]
    files: tuple[Annotated[str, Field(pattern=f"^{_DIGEST}$")], ...] = ()
    image_bytes: int
    stored_at: Annotated[
        str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00$"), AfterValidator(_real_time)
    ]
    """In one form, so that the order of the texts is that of the times; and no time after which there is none."""
    run_id: str

    def encoded(self) -> tuple[str, bytes]:
        """The name and the content of its file. One line without an end, which no client of Git converts."""
        data = orjson.dumps(self.model_dump())
        return f"{answer_folder(self.key)}/{sha256(data).hexdigest()}.json", data


_ENTRY: TypeAdapter[CacheEntry] = TypeAdapter(CacheEntry)


def decoded(name: str, data: bytes) -> CacheEntry:
    """The answer in a file. Raises ``ValueError`` if the file is damaged, was renamed or answers another question."""
    if not name.endswith(f"/{sha256(data).hexdigest()}.json"):
        raise ValueError("its content is not what its name states")
    try:
        entry = _ENTRY.validate_python(orjson.loads(data))
    except (orjson.JSONDecodeError, ValidationError):
        raise ValueError("it is no answer") from None
    if not name.startswith(f"{answer_folder(entry.key)}/"):
        raise ValueError("it answers another question")
    return entry


def answer_folder(key: str) -> str:
    """The folder with all answers to a question."""
    name = sha256(key.encode()).hexdigest()
    return f"{ANSWERS}/{name[:2]}/{name}"


def is_answer_file(name: str) -> bool:
    """Whether a file is where answers are."""
    return _ANSWER_FILE.fullmatch(name) is not None


def image_file(digest: str) -> str:
    """The file of an image."""
    return f"{FILES}/{digest[:2]}/{digest}"


def image_digest(name: str) -> str | None:
    """The SHA-256 in the name of an image's file; ``None`` for any other file."""
    match = _IMAGE_FILE.fullmatch(name)
    return match[1] if match is not None and image_file(match[1]) == name else None


def is_digest(text: str) -> bool:
    """Whether a text can name an image. In a hostile entry it could be any path."""
    return re.fullmatch(_DIGEST, text) is not None


def as_stored_at(time: datetime) -> str:
    """A time as entries have it."""
    return time.astimezone(UTC).isoformat(timespec="microseconds")


def time_after(earlier: str | None, now: datetime) -> str:
    """The time of a new answer: later than that of an ``earlier`` one, although a clock may have been wrong."""
    text = as_stored_at(now)
    if earlier is None or earlier < text:
        return text
    return as_stored_at(datetime.fromisoformat(earlier) + _MICROSECOND)


def check_mark(data: bytes, where: object) -> None:
    """Raises ``UsageError`` for a cache of another format."""
    if data == MARK_DATA:
        return
    try:
        version = orjson.loads(data)["visioneval_cache"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise UsageError(f"{where}: {MARK} is damaged: restore it, or delete it: the answers stay") from None
    raise UsageError(f"{where}: written by another version of visioneval (format {version!r}): {USE_ANOTHER_FOLDER}")


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
