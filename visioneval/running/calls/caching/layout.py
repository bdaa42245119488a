"""What the files of a cache are called, and what is in them. The same in a folder and in a bucket.

    visioneval-cache.json          the format
    answers/ab/KEY/CONTENT.json    one answer: KEY is the SHA-256 of its question, CONTENT that of the file
    files/ab/CONTENT               images, by the SHA-256 of their bytes

A file never changes, and its name states its content. So branches of a repository merge without a conflict: what two of
them answered has two files. Keys contain no host, path or time, so a cache replays anywhere.
"""

from __future__ import annotations

import re
from datetime import MAXYEAR, UTC, datetime, timedelta
from hashlib import sha256
from typing import Annotated, Any, Literal

import orjson
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from visioneval.errors import UsageError
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
