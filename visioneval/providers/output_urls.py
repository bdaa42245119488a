"""The outputs of an answer, inline or by URL: which hosts they are fetched from, and fetching them within limits.

No key is sent, and no error contains a path or a query: signed URLs are secrets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit

from visioneval.errors import UsageError
from visioneval.media.images import MAX_BYTES
from visioneval.media.network import ProxyError
from visioneval.media.urls import TooLargeError, fetch, origin_of, url_problem
from visioneval.providers.base import Download
from visioneval.providers.error_replies import read_error
from visioneval.providers.image_replies import UnusableImageError, begins_like_an_image, decoded_media, described
from visioneval.providers.refusals import moderated
from visioneval.suite.remote import ANY_HOST

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
        if not host or not any(_matches(host, pattern) for pattern in self.declared):
            return f"{origin} is not the server that answered: if it may be read, add its host to output_hosts"
        if url_problem(url):
            return f"{origin} is not public over https"
        return None

    def redirect_problem(self, url: str) -> str | None:
        """Why a redirect must not be followed; ``None`` if it may."""
        problem = self.problem(url)
        return problem and f"another host: {problem}"


def _matches(host: str, pattern: str) -> bool:
    return pattern in (ANY_HOST, host) or (pattern.startswith("*.") and host.endswith(pattern[1:]))


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
            if wait is None or not _is_temporary(error):
                return _unread(url, f"{origin_of(url)}: {_reason(error)}", is_final=_is_final(error))
        await asyncio.sleep(wait)
    raise AssertionError("the last attempt returns or raises")


def _is_temporary(error: UsageError) -> bool:
    return error.__cause__ is not None and getattr(error.__cause__, "status", _TEMPORARY[0]) in _TEMPORARY


def _reason(error: UsageError) -> str:
    """Why a URL cannot be read, without the texts of libraries, which contain the whole URL."""
    if isinstance(error, ProxyError) or (error.__cause__ is None and not _is_missing(error)):
        return str(error)
    status = 404 if _is_missing(error) else getattr(error.__cause__, "status", None)
    if status is None:
        return f"no answer ({type(error.__cause__).__name__})"
    return f"it answers {status}{': the URL may have expired' if status in _EXPIRED else ''}"


def _is_final(error: UsageError) -> bool:
    """Whether no other attempt would do better: the server denies the file, as where its URL has expired."""
    if isinstance(error, ProxyError):
        return False
    status = getattr(error.__cause__, "status", 0)
    is_denied = status in range(400, 500) and status not in _TEMPORARY
    return is_denied or _is_missing(error) or isinstance(error, TooLargeError)


def _is_missing(error: UsageError) -> bool:
    """Whether it is a 404, which fsspec raises as the error of a file."""
    return isinstance(error.__context__, FileNotFoundError)


def _unread(url: str, reason: str, *, is_final: bool = False) -> Download:
    """The download that another attempt may do. Raises ``UnusableImageError`` if none can."""
    problem = f"{_UNREAD}: {reason}"
    if is_final or len(url) > _LONGEST_URL or not origin_of(url).startswith(("http://", "https://")):
        raise UnusableImageError(problem)
    return Download(url, problem)
