"""Checks the replies of a provider's server before its SDK reads them.

Redirects are rejected, as they would send prompts, images and keys to another host. The size of replies is limited,
compressed and decompressed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import urljoin, urlsplit

import httpx2

from visioneval.bounds import REPLY_MB
from visioneval.errors import ProviderError
from visioneval.media.inflate import ACCEPTED, CodingError, Inflater

ACCEPT_ENCODING = {"accept-encoding": ACCEPTED}
"""A header for every request: ``check_reply`` supports only these codings."""
MEGABYTE = 1_000_000
MAX_ERROR_BYTES = MEGABYTE
"""The most bytes of an error reply; the rest is dropped, since the message comes first."""
Hook = Callable[[httpx2.Response], Awaitable[None]]


def check_reply() -> Hook:
    """A response hook for the HTTP client of an SDK, which limits replies, compressed and decompressed.

    The hook, or reading the reply after it, raises ``ProviderError`` of the kind ``invalid`` for a redirect and for a
    reply over the limit, and an ``httpx2`` error for compressed content that is damaged. The body of an error reply is
    truncated instead.
    """

    limit = REPLY_MB.limit * MEGABYTE

    async def check(response: httpx2.Response) -> None:
        if 300 <= response.status_code < 400:
            raise _redirected(response)
        declared = response.headers.get("content-length", "")
        if response.is_success and declared.isdecimal() and int(declared[:20]) > limit:
            raise _too_large(limit)
        response.stream = _BoundedStream(response, limit)
        response.headers.pop("content-encoding", None)  # the stream is decompressed already
        response.encoding = "utf-8"  # the encoding of JSON; a charset from the server could be a decompressor

    return check


def _redirected(response: httpx2.Response) -> ProviderError:
    location = response.headers.get("location")
    return ProviderError(
        f"{response.status_code}: the server redirects to {_origin(str(response.url), location)}; redirects are not"
        " followed: set base_url to the final URL",
        kind="invalid",
    )


def _origin(url: str, location: str | None) -> str:
    """The target of a redirect, without its path and query, which may contain secrets."""
    if not location:
        return "an unknown location"
    try:
        parts = urlsplit(urljoin(url, location))
        port = f":{parts.port}" if parts.port is not None else ""
        return repr(f"{parts.scheme}://{parts.hostname or ''}{port}"[:200])
    except ValueError:
        return "an invalid URL"


def _too_large(limit: int) -> ProviderError:
    megabytes = f"{limit / MEGABYTE:,.6g} MB"
    message = f"the reply is over the limit of {megabytes}: {REPLY_MB.flag} or {REPLY_MB.variable} raises it"
    return ProviderError(message, kind="invalid", may_be_billed=True)


class _FullError(Exception):
    """The limit is reached."""


class _BoundedStream(httpx2.AsyncByteStream):
    """The decompressed content of a reply. An error reply is truncated where it cannot be read further."""

    def __init__(self, response: httpx2.Response, limit: int) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        self._wire = response.stream
        self._is_error = not response.is_success
        self._limit = MAX_ERROR_BYTES if self._is_error else limit
        self._inflater = Inflater(response.headers.get("content-encoding", ""))
        if self._inflater.problem and not self._is_error:
            message = f"the answer could not be read: {self._inflater.problem}"
            raise ProviderError(message, kind="invalid", may_be_billed=True)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yields all of the content at once: every layer above would handle each of its 16 KiB separately."""
        pieces: list[bytes] = []
        compressed = decompressed = 0
        try:
            async for data in self._wire:
                compressed += len(data)
                for piece in self._inflater.feed(data):
                    decompressed += len(piece)
                    self._check(decompressed)
                    pieces.append(piece)
                self._check(compressed)
            self._inflater.finish()
        except _FullError:
            if not self._is_error:
                raise _too_large(self._limit) from None
        except CodingError as error:
            if not self._is_error:
                raise httpx2.DecodingError(str(error)) from None
        yield b"".join(pieces)

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise _FullError

    async def aclose(self) -> None:
        await self._wire.aclose()
