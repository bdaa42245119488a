"""Checks the replies of a provider's server before its SDK reads them.

Redirects are rejected, as they would send prompts, images and keys to another host. The size of replies is limited,
compressed and decompressed.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx2

from visioneval.bounds import REPLY_MB
from visioneval.errors import ProviderError
from visioneval.media.images import MAX_BYTES
from visioneval.media.network import ACCEPTED, CodingError, Inflater

ACCEPT_ENCODING = {"accept-encoding": ACCEPTED}
"""A header for every request: ``check_reply`` supports only these codings."""
MEGABYTE = 1_000_000
MAX_ERROR_BYTES = MEGABYTE
"""The most bytes of an error reply; the rest is dropped, since the message comes first."""


async def check_reply(response: httpx2.Response) -> None:
    """A response hook for the HTTP client of an SDK, which limits replies, compressed and decompressed.

    The hook, or reading the reply after it, raises ``ProviderError``: of the kind ``invalid`` for a redirect, and
    ``unusable`` for a reply over the limit. It raises an ``httpx2`` error for compressed content that is damaged. The
    body of an error reply is truncated instead.
    """
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _BoundedStream(response.stream, ReplyContent(response))


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


def _too_large(limit: int, *, is_video: bool = False) -> ProviderError:
    if is_video:
        return ProviderError(f"the video is over the limit of {limit:,} bytes", kind="invalid", may_be_billed=True)
    megabytes = f"{limit / MEGABYTE:,.6g} MB"
    setting = REPLY_MB.setting
    message = f"the reply is over the limit of {megabytes}: {setting.flag} or {setting.environment} raises it"
    return ProviderError(message, kind="unusable", may_be_billed=True)


class _TruncatedError(Exception):
    """The rest of an error reply is not read."""


class ReplyContent:
    """Decompresses the content of a reply within the limit.

    An error reply is truncated where it cannot be read further. ``response`` is one of httpx or httpx2. It then has
    its content without a coding.
    """

    def __init__(self, response: Any) -> None:
        """Raises ``ProviderError`` for a redirect, an unsupported coding, and a declared size over the limit."""
        if 300 <= response.status_code < 400:
            target = _origin(str(response.url), response.headers.get("location"))
            message = f"{response.status_code}: the server redirects to {target}; redirects are not followed"
            raise ProviderError(f"{message}: set base_url to the final URL", kind="invalid")
        self._is_error = not response.is_success
        self.is_video = response.headers.get("content-type", "").startswith("video/")  # which is streamed to a file
        limit = REPLY_MB.limit * MEGABYTE
        self._limit = MAX_ERROR_BYTES if self._is_error else max(limit, MAX_BYTES) if self.is_video else limit
        declared = response.headers.get("content-length", "")
        if not self._is_error and declared.isdecimal() and int(declared[:20]) > self._limit:
            raise _too_large(self._limit, is_video=self.is_video)
        coding = response.headers.get("content-encoding", "")
        self._inflater = Inflater(coding)
        if self._inflater.problem and not self._is_error:
            message = f"the answer could not be read: {self._inflater.problem}"
            raise ProviderError(message, kind="unusable", may_be_billed=True)
        self._compressed = self._decompressed = 0
        if coding:
            del response.headers["content-encoding"]  # the content is decompressed already
        response.encoding = "utf-8"  # the encoding of JSON; a charset from the server could be a decompressor

    async def read(self, wire: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        """The decompressed pieces of the content on the wire.

        Raises ``ProviderError`` over the limit, and ``CodingError`` for content that is damaged or incomplete.
        """
        with self._truncated():
            async for data in wire:
                for piece in self._decompress(data):
                    yield piece
            self._inflater.finish()

    def read_in_thread(self, wire: Iterable[bytes]) -> Iterator[bytes]:
        """The same for a wire that is read in a thread."""
        with self._truncated():
            for data in wire:
                yield from self._decompress(data)
            self._inflater.finish()

    @contextmanager
    def _truncated(self) -> Iterator[None]:
        """An error reply ends where it cannot be read further."""
        try:
            yield
        except _TruncatedError:
            pass
        except CodingError:
            if not self._is_error:
                raise

    def _decompress(self, data: bytes) -> Iterator[bytes]:
        self._compressed += len(data)
        for piece in self._inflater.feed(data):
            self._decompressed += len(piece)
            self._check(self._decompressed)
            yield piece
        self._check(self._compressed)

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise _TruncatedError if self._is_error else _too_large(self._limit, is_video=self.is_video)


class _BoundedStream(httpx2.AsyncByteStream):
    """The content of a reply, all at once: every layer above would handle each of its 16 KiB. A video is streamed."""

    def __init__(self, wire: httpx2.AsyncByteStream, content: ReplyContent) -> None:
        self._wire = wire
        self._content = content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces: list[bytes] = []
        try:
            async for piece in self._content.read(self._wire):
                if self._content.is_video:
                    yield piece
                else:
                    pieces.append(piece)
        except CodingError as error:
            raise httpx2.DecodingError(str(error)) from None
        yield b"".join(pieces)

    async def aclose(self) -> None:
        await self._wire.aclose()
