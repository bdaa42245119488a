"""Reads the images in the answer to a paid generation, in whatever form a server wraps them, inline or by URL.

What cannot be read is described, never raised: the answer is paid for, so it must not look like an outage. A download
sends no key, and no error contains a path or a query: signed URLs are secrets.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes, urljoin, urlsplit

import pybase64

from visioneval.errors import ProviderError, UsageError
from visioneval.media.images import MAX_BYTES
from visioneval.media.network import ProxyError
from visioneval.media.urls import TooLargeError, fetch, origin_of, url_problem
from visioneval.providers.base import Download
from visioneval.providers.error_replies import beginning, read_error
from visioneval.providers.refusals import moderated
from visioneval.providers.reply_json import BYTE_ORDER_MARK, read_answer, read_beginning
from visioneval.suite.remote import ANY_HOST

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


WAITS_S = (0.5, 2.0)
"""Seconds before each further attempt: a repeated call would be paid again, a repeated download is free."""
_FETCHING = ThreadPoolExecutor(16, "fetch-output")
_TEMPORARY = (408, 425, 429, 500, 502, 503, 504)
_EXPIRED = (401, 403, 404, 410)
_UNREAD = "the answer names its image by URL, which cannot be read"
_LONGEST_SCHEME = 12
_LONGEST_URL = 16_000


class AllowedHosts(NamedTuple):
    """Where outputs may be fetched from: the server that answered, and the hosts that the suite declares."""

    base_url: str
    declared: tuple[str, ...]

    def problem(self, url: str) -> str | None:
        """Why a URL must not be fetched; ``None`` if it may."""
        origin = origin_of(url)
        if origin == origin_of(self.base_url):
            return None
        host = urlsplit(url).hostname if "://" in origin else None
        is_declared = host and any(
            pattern in (ANY_HOST, host) or (pattern.startswith("*.") and host.endswith(pattern[1:]))
            for pattern in self.declared
        )
        if not is_declared:
            return f"{origin} is not the server that answered: if it may be read, add its host to output_hosts"
        if url_problem(url):
            return f"{origin} is not public over https"
        return None

    def redirect_problem(self, url: str) -> str | None:
        """Why a redirect must not be followed; ``None`` if it may."""
        return (problem := self.problem(url)) and f"another host: {problem}"


async def read_outputs(
    data: object, allowed: AllowedHosts, count: int, *, is_cut_off: bool = False
) -> tuple[tuple[bytes | Download, ...], str | None]:
    """The first ``count`` images of an answer, which has them as base64 or names them by URL; and what is not used.

    The answer was paid for, so nothing is raised. Data that begins like no image is taken only if there is no better,
    and after it what cannot be downloaded yet.
    """
    rest = list(data) if isinstance(data, (list, tuple)) else [] if data is None else [data]
    received = len(rest)
    images: list[bytes] = []
    others: list[bytes] = []
    downloads: list[Download] = []
    problems: list[str] = ["the answer is cut off"] if is_cut_off else []
    while rest and len(images) < count:
        items, rest = rest[: count - len(images)], rest[count - len(images) :]
        first = received - len(rest) - len(items) + 1
        for number, result in enumerate(await asyncio.gather(*(read_output(item, allowed) for item in items)), first):
            if isinstance(result, bytes):
                (images if begins_like_an_image(result) else others).append(result)
            elif isinstance(result, Download):
                downloads.append(result)
            else:
                problems.append(f"item {number}: {result}" if received > 1 else result)
    others = others[: count - len(images)]
    missing = count - len(images) - len(others)
    problems += [download.problem for download in downloads[missing:]]
    if not received:
        problems.append("the answer has no images")
    elif received != count:
        problems.append(f"images requested: {count}, received: {received}")
    return (*images, *others, *downloads[:missing]), "; ".join(problems) or None


async def read_output(item: object, allowed: AllowedHosts) -> bytes | Download | str:
    """The bytes of one image, or why it cannot be used."""
    if why := moderated(item):
        return why
    inline: object = item
    url: object = None
    if isinstance(item, Mapping):
        inline, url = item.get("b64_json"), item.get("url")
        if not inline and not url and item.get("error"):
            return f"it is an error: {read_error(item).message}"
    elif isinstance(item, str) and "://" in item[:_LONGEST_SCHEME]:
        inline, url = None, item
    try:
        if inline or not url:
            try:
                return decoded_media(inline)
            except UnusableImageError:
                if not url:
                    raise
        return await _fetched(url, allowed) if isinstance(url, str) else f"its url is {described(url)}"
    except UnusableImageError as error:
        return str(error)
    except Exception as error:  # the text of a library may contain the URL
        return f"it could not be read: {type(error).__name__}"


async def _fetched(url: str, allowed: AllowedHosts) -> bytes | Download:
    if url[:5].lower() == "data:":
        return decoded_media(url)
    if url.startswith("/") and not url.startswith("//"):  # SGLang names a path of its own
        url = urljoin(allowed.base_url, url)
    if problem := allowed.problem(url):
        return _unread(url, problem)
    loop = asyncio.get_running_loop()
    for wait in (*WAITS_S, None):
        try:
            return await loop.run_in_executor(_FETCHING, fetch, url, MAX_BYTES, allowed.redirect_problem)
        except UsageError as error:
            # fsspec raises a 404 as the error of a file
            status = 404 if isinstance(error.__context__, FileNotFoundError) else getattr(error.__cause__, "status", 0)
            is_temporary = error.__cause__ is not None and (status or _TEMPORARY[0]) in _TEMPORARY
            if wait is None or not is_temporary:
                is_denied = status in range(400, 500) and status not in _TEMPORARY
                is_final = not isinstance(error, ProxyError) and (is_denied or isinstance(error, TooLargeError))
                return _unread(url, f"{origin_of(url)}: {_reason(error, status)}", is_final=is_final)
        await asyncio.sleep(wait)
    raise AssertionError("the last attempt returns or raises")


def _reason(error: UsageError, status: int) -> str:
    """Why a URL cannot be read, without the texts of libraries, which contain the whole URL."""
    if isinstance(error, ProxyError) or (error.__cause__ is None and not status):
        return str(error)
    if not status:
        return f"no answer ({type(error.__cause__).__name__})"
    return f"it answers {status}{': the URL may have expired' if status in _EXPIRED else ''}"


def _unread(url: str, reason: str, *, is_final: bool = False) -> Download:
    """The download that another attempt may do. Raises ``UnusableImageError`` if none can."""
    problem = f"{_UNREAD}: {reason}"
    if is_final or len(url) > _LONGEST_URL or not origin_of(url).startswith(("http://", "https://")):
        raise UnusableImageError(problem)
    return Download(url, problem)
