"""Checks the pixel data of a PNG without decoding its pixels, which takes several times as long.

Pillow itself accepts truncated data and leaves the remaining rows black.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

_zlib: Any = import_module("zlib_ng.zlib_ng" if find_spec("zlib_ng") else "zlib")
"""The library of the extra ``speed`` has the interface of Python's own, and decompresses in a quarter of the time,
which is most of the time of a check."""
HEAD = 8
"""Bytes before the first chunk."""
_BEGINNING = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
_END_OF_HEADER = 29
_PLAIN = {b"IHDR", b"caBX", b"IDAT", b"IEND"}
"""The chunks of a generated image; ``caBX`` has its content credentials, which decoders do not read."""
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
"""The bits per sample that each colour type allows."""
_PALETTE_COLOUR = 3
_HIGHEST_FILTER = 4
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""For each pass of an interlaced image: first column, first row, column step, row step."""
_READ_AT_ONCE = 1 << 18
"""One call decompresses up to twice as many bytes."""
_INFLATED_AT_ONCE = 1 << 22
"""The most bytes that one call returns. Each call releases Python's lock and waits for it, so few are fast; the event
loop waits for each."""


def plain_size(data: bytes) -> tuple[int, int] | None:
    """Width and height of a PNG without metadata that a decoder reads; ``None`` for any other data."""
    if not data.startswith(_BEGINNING) or len(data) < _END_OF_HEADER:
        return None
    width, height, *_ = _header(data)
    has_known_methods = data[26] == data[27] == 0
    is_plain = has_known_methods and _PLAIN.issuperset(name for name, _ in _chunks(data))
    return (width, height) if is_plain and width and height else None


def certainly_decodes(data: bytes) -> bool:
    """Whether a PNG is of the usual form and all of its rows are there: a decoder will then find no fault in it.

    The checksums of its chunks must be right too. False proves nothing: interlaced and animated images, and those with
    chunks after their pixels, need a decoder.
    """
    chunks = list(_chunks(data))
    names = [name for name, _ in chunks]
    before, rest = names[: len(names) - 1 - names.count(b"IDAT")], names[-1 - names.count(b"IDAT") :]
    if before[:1] != [b"IHDR"] or before.count(b"IHDR") > 1 or {b"acTL", b"fcTL", b"fdAT"}.intersection(before):
        return False
    if set(rest[:-1]) != {b"IDAT"} or rest[-1] != b"IEND" or len(chunks[0][1]) != 13:
        return False
    width, height, depth, colour, interlaced = _header(data)
    palettes = [len(content) for name, content in chunks if name == b"PLTE"]
    if colour == _PALETTE_COLOUR and (len(palettes) != 1 or palettes[0] % 3 or not 0 < palettes[0] <= 768):
        return False
    return (
        not interlaced
        and depth in _DEPTHS.get(colour, ())
        and _has_right_checksums(data)
        and _has_exact_rows(data, _row_bytes(data, width), height)
    )


def _has_right_checksums(data: bytes) -> bool:
    """Whether each chunk, name included, has the checksum that follows it."""
    view, start = memoryview(data), HEAD
    for _, content in _chunks(data):
        end = start + 8 + len(content)
        if _zlib.crc32(view[start + 4 : end]) != int.from_bytes(data[end : end + 4], "big"):
            return False
        start = end + 4
    return True


def _has_exact_rows(data: bytes, row_bytes: int, height: int) -> bool:
    """Whether the pixel data decompresses to exactly so many rows, each with a filter that exists."""
    size = 0
    try:
        for piece in _decompressed(data):
            filters = piece[-size % row_bytes :: row_bytes]
            size += len(piece)
            if size > row_bytes * height or max(filters, default=0) > _HIGHEST_FILTER:
                return False
    except _zlib.error:
        return False
    return size == row_bytes * height


def is_complete(data: bytes) -> bool:
    """Whether the decompressed pixel data has at least the size from the header."""
    missing = _expected(data)
    try:
        for piece in _decompressed(data):
            missing -= len(piece)
            if missing <= 0:
                return True
    except _zlib.error:
        return False
    return missing <= 0


def _expected(data: bytes) -> int:
    """Total bytes of all rows, each with its filter byte."""
    width, height, _, _, interlaced = _header(data)
    if not interlaced:
        return height * _row_bytes(data, width)
    sizes = ((-(-(width - x) // across), -(-(height - y) // down)) for x, y, across, down in _ADAM7)
    return sum(rows * _row_bytes(data, columns) for columns, rows in sizes if columns > 0 and rows > 0)


def _header(data: bytes) -> tuple[int, int, int, int, int]:
    """Width, height, bits per sample, colour type, and whether the image is interlaced."""
    width, height = (int.from_bytes(data[start : start + 4], "big") for start in (16, 20))
    return width, height, data[24], data[25], data[28]


def _row_bytes(data: bytes, columns: int) -> int:
    """The bytes of a row with so many pixels, with its filter byte."""
    _, _, depth, colour, _ = _header(data)
    return 1 + (columns * depth * _CHANNELS.get(colour, 0) + 7) // 8


def _decompressed(data: bytes) -> Iterator[bytes]:
    """The pixel data, up to 4 MiB at a time. Raises ``_zlib.error``, also after the last piece if it is truncated."""
    inflate = _zlib.decompressobj()
    for part in _compressed(data):
        while part and not inflate.eof:
            yield inflate.decompress(part, _INFLATED_AT_ONCE)
            part = inflate.unconsumed_tail
    yield inflate.flush()
    if not inflate.eof:
        raise _zlib.error("truncated")


def _compressed(data: bytes) -> Iterator[bytes]:
    """The content of the ``IDAT`` chunks, 256 to 512 KiB at a time: encoders write chunks of 8 KiB or 64 KiB."""
    parts: list[memoryview] = []
    size = 0
    for name, content in _chunks(data):
        for start in range(0, len(content) if name == b"IDAT" else 0, _READ_AT_ONCE):
            parts.append(content[start : start + _READ_AT_ONCE])
            size += len(parts[-1])
            if size >= _READ_AT_ONCE:
                yield b"".join(parts)
                parts, size = [], 0
    yield b"".join(parts)


def _chunks(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """The name and the content of each chunk; the content of the last may be truncated."""
    offset, view = HEAD, memoryview(data)
    while offset + 8 <= len(data):
        end = offset + 8 + int.from_bytes(data[offset : offset + 4], "big")
        yield data[offset + 4 : offset + 8], view[offset + 8 : end]
        offset = end + 4
