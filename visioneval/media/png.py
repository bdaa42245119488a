"""Checks that a PNG has all of its pixel data: Pillow accepts truncated data and leaves the remaining rows black."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

HEAD = 8
"""Bytes before the first chunk."""
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""For each pass of an interlaced image: first column, first row, column step, row step."""
_AT_ONCE = 1 << 16


def is_complete(data: bytes) -> bool:
    """Whether the decompressed pixel data has the size from the header. Decompresses 64 KiB at a time."""
    expected = _expected(data)
    inflate = zlib.decompressobj()
    for part in _pixel_data(data):
        while part and expected > 0 and not inflate.eof:
            try:
                expected -= len(inflate.decompress(part, _AT_ONCE))
            except zlib.error:
                return False
            part = inflate.unconsumed_tail
    return expected <= len(inflate.flush()) if expected > 0 else True


def _expected(data: bytes) -> int:
    """Total bytes of all rows, each with its filter byte."""
    width, height = (int.from_bytes(data[start : start + 4], "big") for start in (16, 20))
    depth, colour, interlaced = data[24], data[25], data[28]
    bits = depth * _CHANNELS.get(colour, 0)
    if not interlaced:
        return height * (1 + (width * bits + 7) // 8)
    sizes = ((-(-(width - x) // across), -(-(height - y) // down)) for x, y, across, down in _ADAM7)
    return sum(rows * (1 + (columns * bits + 7) // 8) for columns, rows in sizes if columns > 0 and rows > 0)


def _pixel_data(data: bytes) -> Iterator[bytes]:
    offset = HEAD
    while offset + 8 <= len(data):
        length = int.from_bytes(data[offset : offset + 4], "big")
        if data[offset + 4 : offset + 8] == b"IDAT":
            yield data[offset + 8 : offset + 8 + length]
        offset += 12 + length
