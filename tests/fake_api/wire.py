"""Replies that break HTTP, lead elsewhere or have no end: bytes in the order in which they are sent, and pauses."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from functools import cache

from .faults import Fault
from .http1 import Reply

MEGABYTE = 1_000_000
_SPACES = b" " * MEGABYTE
"""JSON allows them between any two tokens, so that no reader can give up early."""


def raw_reply(fault: Fault) -> Reply:
    """The reply of a fault in ``RAW``."""
    status, parts = _RAW[fault.kind](fault)
    return Reply(status, b"", raw=parts)


def _head(status: int, *fields: str) -> bytes:
    lines = (f"HTTP/1.1 {status} Whatever", "content-type: application/json", *fields, "connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _redirect(fault: Fault) -> tuple[int, Iterable[bytes]]:
    where = () if fault.location is None else (f"location: {fault.location}",)
    return fault.status or 307, [_head(fault.status or 307, "content-length: 0", *where)]


def _bad_chunk(fault: Fault) -> tuple[int, Iterable[bytes]]:
    return 200, [_head(200, "transfer-encoding: chunked") + b'a\r\n{"data": [\r\nnot a size\r\n']


def _bad_status_line(fault: Fault) -> tuple[int, Iterable[bytes]]:
    return 200, [b"HTTP/1.1 2OO OK\r\ncontent-length: 2\r\n\r\n{}"]


def _large(fault: Fault) -> tuple[int, Iterable[bytes]]:
    """A reply of ``size`` megabytes with a content length."""
    status = fault.status or 200
    return status, _lines(_head(status, f"content-length: {fault.size * MEGABYTE}"), [_SPACES] * fault.size)


def _endless(fault: Fault) -> tuple[int, Iterable[bytes]]:
    status = fault.status or 200
    chunk = b"%x\r\n%b\r\n" % (MEGABYTE, _SPACES)
    return status, _lines(_head(status, "transfer-encoding: chunked"), _forever(chunk))


def _endless_gzip(fault: Fault) -> tuple[int, Iterable[bytes]]:
    status = fault.status or 200
    coding = fault.coding or "gzip"
    return status, _lines(_head(status, f"content-encoding: {coding}"), _endless_deflated())


def _drip(fault: Fault) -> tuple[int, Iterable[bytes | float]]:
    """A byte and a pause, without end."""
    return 200, _dripping()


def _dripping() -> Iterator[bytes | float]:
    yield _head(200)
    while True:
        yield b" "
        yield 0.05


def _bomb(fault: Fault) -> tuple[int, Iterable[bytes]]:
    """``size`` megabytes, of which a thousandth goes over the wire, ``layers`` times over."""
    body = _deflated(fault.size)
    for _ in range(fault.layers - 1):
        body = gzip.compress(body)
    coding = ", ".join([fault.coding or "gzip"] * fault.layers)
    status = fault.status or 200
    return status, [_head(status, f"content-encoding: {coding}", f"content-length: {len(body)}"), body]


def _lines(head: bytes, parts: Iterable[bytes]) -> Iterator[bytes]:
    yield head
    yield from parts


def _forever(part: bytes) -> Iterator[bytes]:
    while True:
        yield part


def _endless_deflated() -> Iterator[bytes]:
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    while True:
        yield packer.compress(_SPACES) + packer.flush(zlib.Z_SYNC_FLUSH)


@cache
def _deflated(megabytes: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    return b"".join([*(packer.compress(_SPACES) for _ in range(megabytes)), packer.flush()])


_RAW = {
    "redirect": _redirect,
    "bad_chunk": _bad_chunk,
    "bad_status_line": _bad_status_line,
    "large": _large,
    "endless": _endless,
    "endless_gzip": _endless_gzip,
    "bomb": _bomb,
    "drip": _drip,
}
