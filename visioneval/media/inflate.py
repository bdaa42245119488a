"""Decompressing what comes over a network, piece by piece, so that the reader can stop it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from visioneval.errors import VisionEvalError

ACCEPTED = "gzip, deflate"
"""The value of ``Accept-Encoding`` for what is read here."""
_PIECE = 1 << 20
_CODINGS = frozenset({"gzip", "x-gzip", "deflate"})


class CodingError(VisionEvalError):
    """Content that cannot be decompressed: damaged, cut off, or in a coding that nobody asked for."""


class Inflater:
    """Decompresses content that came with a ``Content-Encoding``, in pieces of at most 1 MiB.

    ``problem`` says why it cannot: a coding that was not asked for, or several on top of each other, each of which
    multiplies what a reader must go through.
    """

    def __init__(self, coding: str) -> None:
        codings = [name for part in coding.split(",") if (name := part.strip().lower()) not in ("", "identity")]
        is_supported = len(codings) <= 1 and _CODINGS.issuperset(codings)
        self.problem = None if is_supported else f"it is encoded as {coding[:80]!r}, which was not asked for"
        self._packed = zlib.decompressobj(zlib.MAX_WBITS | 32) if codings else None  # 32: zlib or gzip, by its head

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What a piece of the content becomes. What follows the end of compressed content is passed over.

        Raises ``CodingError``.
        """
        if self.problem:
            raise CodingError(self.problem)
        packed = self._packed
        if packed is None:
            yield data
            return
        try:
            while not packed.eof and (piece := packed.decompress(data, _PIECE)):
                yield piece
                data = packed.unconsumed_tail
        except zlib.error as error:
            raise CodingError(f"it cannot be decompressed: {error}") from None

    def finish(self) -> None:
        """Raises ``CodingError`` where the content has come to its end too early."""
        if self._packed is not None and not self._packed.eof:
            raise CodingError("its compressed content is cut off")
