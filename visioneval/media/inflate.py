"""Decompresses network content in chunks, so that the reader can stop at a limit."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from visioneval.errors import VisionEvalError

ACCEPTED = "gzip, deflate"
"""The value of ``Accept-Encoding`` for the supported encodings."""
_PIECE = 1 << 20
_CODINGS = frozenset({"gzip", "x-gzip", "deflate"})


class CodingError(VisionEvalError):
    """Content that cannot be decompressed: damaged, truncated, or in an encoding that was not requested."""


class Inflater:
    """Decompresses content with a ``Content-Encoding``, in chunks of at most 1 MiB.

    ``problem`` is set for unsupported encodings and for several nested ones, which would multiply the data to read.
    """

    def __init__(self, coding: str) -> None:
        codings = [name for part in coding.split(",") if (name := part.strip().lower()) not in ("", "identity")]
        is_supported = len(codings) <= 1 and _CODINGS.issuperset(codings)
        self.problem = None if is_supported else f"it is encoded as {coding[:80]!r}, which was not requested"
        self._packed = zlib.decompressobj(zlib.MAX_WBITS | 32) if codings else None  # 32: zlib or gzip, by its head

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decompresses a chunk of the content. Ignores data after the end of the compressed content.

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
        """Raises ``CodingError`` if the content ended too early."""
        if self._packed is not None and not self._packed.eof:
            raise CodingError("its compressed content is truncated")
