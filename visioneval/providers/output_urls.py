"""Outputs that an answer names by URL: which hosts they are fetched from, and fetching them within limits.

No key is sent, and no error contains a path or a query: signed URLs are secrets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit

import pybase64

from visioneval.errors import ProviderError, UsageError
from visioneval.media.images import MAX_BYTES
from visioneval.media.network import ProxyError
from visioneval.media.urls import fetch, origin_of, url_problem
from visioneval.suite.remote import ANY_HOST

WAITS_S = (0.5, 2.0)
"""Seconds before each further attempt: a repeated call would be paid again, a repeated download is free."""
_FETCHING = ThreadPoolExecutor(16, "fetch-output")
_TEMPORARY = (408, 425, 429, 500, 502, 503, 504)
_EXPIRED = (401, 403, 404, 410)


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


async def read_outputs(images: Sequence[Mapping[str, Any]], allowed: AllowedHosts) -> tuple[bytes, ...]:
    """The bytes of each image of an answer, which has them as ``b64_json`` or names them by ``url``.

    Empty where an image is damaged, so that only its cell fails. Raises ``ProviderError`` like ``fetch_outputs``.
    """
    urls = [str(image["url"]) for image in images if image.get("url") and not image.get("b64_json")]
    fetched = iter(await fetch_outputs(urls, allowed))
    return tuple(
        _decoded(image) if image.get("b64_json") or not image.get("url") else next(fetched) for image in images
    )


def _decoded(image: Mapping[str, Any]) -> bytes:
    try:
        return pybase64.b64decode(image.get("b64_json") or "", validate=True)
    except (ValueError, TypeError):
        return b""


async def fetch_outputs(urls: Sequence[str], allowed: AllowedHosts) -> list[bytes]:
    """The bytes behind each URL; empty where only some of them cannot be read, so that only their cells fail.

    Raises ``ProviderError`` if none can be read. The answer was paid for, so the call is not repeated.
    """
    results = await asyncio.gather(*(_fetched(url, allowed) for url in urls), return_exceptions=True)
    errors = [result for result in results if isinstance(result, BaseException)]
    if errors and (len(errors) == len(results) or not all(isinstance(error, ProviderError) for error in errors)):
        raise errors[0]
    return [result if isinstance(result, bytes) else b"" for result in results]


async def _fetched(url: str, allowed: AllowedHosts) -> bytes:
    if url.startswith("data:"):
        return _inline(url)
    if url.startswith("/") and not url.startswith("//"):  # SGLang names a path of its own
        url = urljoin(allowed.base_url, url)
    if problem := allowed.problem(url):
        raise _error(problem)
    loop = asyncio.get_running_loop()
    for wait in (*WAITS_S, None):
        try:
            return await loop.run_in_executor(_FETCHING, fetch, url, MAX_BYTES, allowed.redirect_problem)
        except UsageError as error:
            if wait is None or not _is_temporary(error):
                raise _error(f"{origin_of(url)}: {_reason(error)}") from None
        await asyncio.sleep(wait)
    raise AssertionError("the last attempt returns or raises")


def _inline(url: str) -> bytes:
    header, _, content = url.partition(",")
    try:
        return pybase64.b64decode(content, validate=True) if header.endswith(";base64") else b""
    except ValueError:
        return b""


def _is_temporary(error: UsageError) -> bool:
    return error.__cause__ is not None and getattr(error.__cause__, "status", _TEMPORARY[0]) in _TEMPORARY


def _reason(error: UsageError) -> str:
    """Why a URL cannot be read, without the texts of libraries, which contain the whole URL."""
    if error.__cause__ is None or isinstance(error, ProxyError):
        return str(error)
    status = getattr(error.__cause__, "status", None)
    if status is None:
        return f"no answer ({type(error.__cause__).__name__})"
    return f"it answers {status}{': the URL may have expired' if status in _EXPIRED else ''}"


def _error(reason: str) -> ProviderError:
    return ProviderError(
        f"the answer names its image by URL, which cannot be read: {reason}", kind="invalid", may_be_billed=True
    )
