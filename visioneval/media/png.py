"""Whether the pixel data of a PNG is complete: Pillow accepts truncated data and leaves the remaining rows black.

Decoding the pixels too would take half the time of a run with 0.1 s a call (``make bench``, W2).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

_SIGNATURE_BYTES = 8
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""By color type."""
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""For each pass of an interlaced image: first column, first row, column step, row step."""
_HIGHEST_FILTER = 4
_INFLATED_AT_ONCE = 1 << 18
"""The most bytes that one call decompresses; what comes after the last row is not decompressed."""


def is_complete(data: bytes) -> bool:
    """Whether the pixel data of a PNG that Pillow has opened decompresses to at least the size in its header, without
    an unknown filter before a row and with the right checksum.

    What an interlaced image has for filters is left to a decoder.
    """
    row_bytes, size, expected = _row_bytes(data), 0, _expected(data)
    inflate = zlib.decompressobj()
    try:
        for packed in _pixel_chunks(data):
            while not inflate.eof:
                # Behind the last row, a byte tells whether there is more, and if not, the checksum is compared.
                piece = inflate.decompress(packed, _INFLATED_AT_ONCE if size < expected else 1)
                packed = inflate.unconsumed_tail
                if size >= expected and piece:
                    return True
                filters = piece[-size % row_bytes : expected - size : row_bytes] if row_bytes else b""
                if max(filters, default=0) > _HIGHEST_FILTER:
                    return False
                size += len(piece)
                if not piece and not packed:
                    break
    except zlib.error:
        return False
    return size >= expected


def is_interlaced(data: bytes) -> bool:
    """Whether the rows of a PNG are in several passes."""
    return data[28] != 0


def _row_bytes(data: bytes) -> int:
    """The bytes of a row with its filter byte; 0 for an interlaced image, whose rows differ."""
    width = int.from_bytes(data[16:20], "big")
    return 0 if is_interlaced(data) else 1 + (width * data[24] * _CHANNELS.get(data[25], 0) + 7) // 8


def _expected(data: bytes) -> int:
    """Total bytes of all rows, each with its filter byte."""
    width, height = (int.from_bytes(data[start : start + 4], "big") for start in (16, 20))
    depth, color = data[24], data[25]
    passes = _ADAM7 if is_interlaced(data) else ((0, 0, 1, 1),)
    sizes = ((-(-(width - x) // across), -(-(height - y) // down)) for x, y, across, down in passes)
    bits = depth * _CHANNELS.get(color, 0)
    return sum(rows * (1 + (columns * bits + 7) // 8) for columns, rows in sizes if columns > 0 and rows > 0)


def _pixel_chunks(data: bytes) -> Iterator[bytes | memoryview]:
    """The content of each ``IDAT`` chunk; that of the last may be truncated."""
    offset, view = _SIGNATURE_BYTES, memoryview(data)
    while offset + 8 <= len(data):
        end = offset + 8 + int.from_bytes(data[offset : offset + 4], "big")
        if data[offset + 4 : offset + 8] == b"IDAT":
            yield view[offset + 8 : end]
        offset = end + 4
