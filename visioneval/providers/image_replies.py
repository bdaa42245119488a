"""Reads the images in the answer to a paid generation, in whatever form a server wraps them.

What cannot be read is described, never raised: the answer is paid for, so it must not look like an outage.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

import pybase64

from visioneval.errors import ProviderError
from visioneval.providers.error_replies import beginning
from visioneval.providers.reply_json import BYTE_ORDER_MARK, read_answer, read_beginning

_DATA_URL = re.compile(r"data:(?P<kind>[^,]{0,200}),", re.IGNORECASE)
_BASE64 = re.compile("[A-Za-z0-9+/]*")
_URL_SAFE = str.maketrans("-_", "+/")
_SHOWN_CHARS = 24
_LARGEST = 1e300
_READ_BYTES = 4000
_MAX_MESSAGE = 500
_IMAGE_STARTS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"II*\0", b"MM\0*", b"BM")
_TEXT_STARTS = (b"{", b"[")


class UnusableImageError(Exception):
    """A part of an answer that is no image, or cannot be read. The message says what it is."""


class PaidAnswer(NamedTuple):
    """The JSON of an answer. Of one that ``is_cut_off``, no number can be believed, as its last digits may lack."""

    data: Any
    is_cut_off: bool


def decoded_media(value: object) -> bytes:
    """The bytes of an image or a video as base64 or as a ``data:`` URL. Raises ``UnusableImageError``.

    Line breaks, the URL-safe alphabet and missing padding are allowed. What the bytes are is checked later.
    """
    if not isinstance(value, str):
        raise UnusableImageError(f"{described(value)} is no base64 text")
    text = value.strip()
    if match := _DATA_URL.match(text):
        text = text[match.end() :]
        if not match["kind"].lower().rstrip().endswith(";base64"):
            return unquote_to_bytes(text)
        if "%" in text:
            text = unquote_to_bytes(text).decode("ascii", "replace")
    elif "://" in text[:100]:
        raise UnusableImageError("it has a URL instead of base64")
    with suppress(ValueError):  # nearly all are plain: each step below would copy up to a hundred megabytes
        if data := pybase64.b64decode(text, validate=True):
            return data
    text = "".join(text.split()).translate(_URL_SAFE).rstrip("=")
    if not text:
        raise UnusableImageError("its base64 text is empty")
    try:
        return pybase64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        what = "base64 that is cut off" if _BASE64.fullmatch(text) else "no base64"
        start = start_of(value)
        raise UnusableImageError(f"a text of {len(value):,} characters is {what}: it begins with {start}") from None


def is_image(reply: bytes, content_type: str = "") -> bool:
    """Whether an answer is an image itself, not JSON with one."""
    declared = content_type.startswith("image/") and not begins_like_json(reply)
    return declared or begins_like_an_image(reply)


def begins_like_an_image(data: bytes) -> bool:
    """Whether data begins as the files of a known format do."""
    return data.startswith(_IMAGE_STARTS)


def begins_like_json(reply: bytes) -> bool:
    """Whether an answer begins as an object or a list does."""
    return reply.removeprefix(BYTE_ORDER_MARK).lstrip().startswith(_TEXT_STARTS)


def answer_of(reply: bytes) -> PaidAnswer:
    """The JSON of an answer; of one that ends early, what came, as its images are paid for.

    Raises ``ProviderError`` of the kind ``unusable`` if it is none.
    """
    try:
        return PaidAnswer(read_answer(reply), is_cut_off=False)
    except ValueError as error:
        if not begins_like_json(reply):
            start = beginning(reply[:_READ_BYTES].decode("utf-8", "replace"))
            raise unusable(f"the answer is not from this API; check base_url. It {start}", reply) from None
        try:
            return PaidAnswer(*read_beginning(reply))
        except ValueError:
            raise unusable(f"the answer is not JSON: {error}", reply) from None


def described(value: object) -> str:
    """What a JSON value is, for a message."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, (int, float)):
        return f"the number {float(value):.6g}" if abs(value) < _LARGEST else "a huge number"
    if isinstance(value, str):
        return f"the text {start_of(value)}"
    if isinstance(value, Mapping):
        return f"an object with {', '.join(map(repr, sorted(value)[:5])) or 'nothing in it'}"[:100]
    return f"a list of {len(value)}" if isinstance(value, (list, tuple)) else type(value).__name__


def start_of(text: str) -> str:
    """The start of a text on one line."""
    return repr(" ".join(text[: 2 * _SHOWN_CHARS].split())[:_SHOWN_CHARS])


def unusable(what: str, reply: bytes) -> ProviderError:
    """The error for an answer of which nothing can be used."""
    return ProviderError(what[:_MAX_MESSAGE], kind="unusable", may_be_billed=True, reply=reply)


@contextmanager
def reading(reply: bytes) -> Iterator[None]:
    """Any exception while an answer is read is a fault of its form, not an outage."""
    try:
        yield
    except ProviderError:
        raise
    except Exception as error:
        raise unusable(f"the answer could not be read: {type(error).__name__}: {error}", reply) from error
