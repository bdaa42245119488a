"""Whether a PNG is whole: its rows, its checksums and its end."""

from __future__ import annotations

import io
import random
import struct
import tracemalloc
import zlib

import pytest
from broken_images import chunk
from PIL import Image

from visioneval import ImageError
from visioneval.media import images
from visioneval.media.images import is_complete

SIGNATURE = b"\x89PNG\r\n\x1a\n"
ROWS = b"".join(bytes([number % 5]) + bytes(range(9)) for number in range(7))
"""Seven rows of three RGB pixels, with every filter."""


def header(*, depth: int = 8, colour: int = 2, interlaced: int = 0) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", 3, 7, depth, colour, 0, 0, interlaced))


def pixels(rows: bytes = ROWS) -> bytes:
    return chunk(b"IDAT", zlib.compress(rows))


END = chunk(b"IEND", b"")
TEXT = chunk(b"tEXt", b"Comment\0after the pixels")
VALID_BUT_UNUSUAL = {
    "a chunk after the pixels": header() + pixels() + TEXT + END,
    "no end": header() + pixels(),
    "data after the end": header() + pixels() + END + b"more than a chunk needs",
    "more pixel data than declared": header() + pixels(ROWS + b"more") + END,
    "animated": header() + chunk(b"acTL", struct.pack(">II", 1, 0)) + pixels() + END,
}
DAMAGED = {
    "too few rows": header() + pixels(ROWS[:-10]) + END,
    "a row too short": header() + pixels(ROWS[:-1]) + END,
    "an unknown filter": header() + pixels(ROWS[:-10] + b"\5" + ROWS[-9:]) + END,
    "a wrong checksum of the pixel data": header() + chunk(b"IDAT", zlib.compress(ROWS)[:-1] + b"\0") + END,
    "not compressed": header() + chunk(b"IDAT", ROWS) + END,
    "no palette": header(colour=3) + pixels(b"\0\0\0\0" * 7) + END,
    "an empty palette": header(colour=3) + chunk(b"PLTE", b"") + pixels(b"\0\0\0\0" * 7) + END,
    "an impossible depth": header(depth=4) + pixels() + END,
    "pixel data in two places": header() + chunk(b"IDAT", zlib.compress(ROWS)[:9]) + TEXT + pixels() + END,
}


def noise(size: tuple[int, int]) -> Image.Image:
    return Image.frombytes("L", size, random.Random(1).randbytes(size[0] * size[1]))


def saved(mode: str, size: tuple[int, int]) -> bytes:
    out = io.BytesIO()
    noise(size).convert(mode).save(out, "PNG")
    return out.getvalue()


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
@pytest.mark.parametrize("size", [(1, 1), (7, 3), (300, 200)])
def test_usual_images_are_whole(mode: str, size: tuple[int, int]) -> None:
    black = io.BytesIO()
    Image.new(mode, size).save(black, "PNG")
    for data in (saved(mode, size), black.getvalue()):
        assert images.identify(data) == ("image/png", *size)


def in_pieces(packed: bytes, size: int) -> bytes:
    return b"".join(chunk(b"IDAT", packed[start : start + size]) for start in range(0, len(packed), size))


def test_pixel_data_in_many_chunks_with_every_filter() -> None:
    data = SIGNATURE + header() + chunk(b"IDAT", b"") + in_pieces(zlib.compress(ROWS), 3) + END
    assert images.identify(data) == ("image/png", 3, 7)


@pytest.mark.parametrize(("size", "rows"), [((2000, 1000), 1000), ((2000, 1001), 1000), ((2000, 1000), 999)])
def test_large_pixel_data_in_many_chunks_is_read_to_its_last_row(size: tuple[int, int], rows: int) -> None:
    packed = zlib.compress((b"\0" + random.Random(1).randbytes(6000)) * rows, 0)
    large = chunk(b"IHDR", struct.pack(">IIBBBBB", *size, 8, 2, 0, 0, 0))
    assert is_complete(SIGNATURE + large + in_pieces(packed, 8192) + END) is (rows == size[1])


@pytest.mark.parametrize("name", VALID_BUT_UNUSUAL)
def test_an_unusual_image_is_whole(name: str) -> None:
    assert images.inspect(SIGNATURE + VALID_BUT_UNUSUAL[name]) == ("image/png", 3, 7)


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_found(name: str) -> None:
    with pytest.raises(ImageError):
        images.identify(SIGNATURE + DAMAGED[name])


@pytest.mark.parametrize("mode", ["L", "P", "RGB", "RGBA"])
def test_an_image_without_its_last_rows_is_damaged_at_every_length(mode: str) -> None:
    """Below right checksums, and whatever color Pillow gives to the rows that are missing."""
    source = saved(mode, (8, 6))
    start = source.index(b"IDAT")
    before, packed = (
        source[: start - 4],
        source[start + 4 : start + 4 + int.from_bytes(source[start - 4 : start], "big")],
    )
    rows = zlib.decompress(packed)
    assert images.identify(before + chunk(b"IDAT", zlib.compress(rows)) + END)[1:] == (8, 6)
    for length in range(len(rows)):
        with pytest.raises(ImageError):
            images.identify(before + chunk(b"IDAT", zlib.compress(rows[:length])) + END)
    for length in range(len(packed) - 8):  # less than the checksum behind the rows
        with pytest.raises(ImageError):
            images.inspect(before + chunk(b"IDAT", packed[:length]) + END)


@pytest.mark.parametrize("chunk_bytes", [500, 1 << 30])
def test_more_data_than_declared_is_not_decompressed_to_its_end(chunk_bytes: int) -> None:
    bomb = SIGNATURE + header() + in_pieces(zlib.compress(ROWS + bytes(50_000_000)), chunk_bytes) + END
    tracemalloc.start()
    try:
        assert is_complete(bomb)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("chunk_bytes", range(1, len(zlib.compress(ROWS)) + 1))
def test_the_checksum_behind_the_rows_may_be_in_several_chunks(chunk_bytes: int) -> None:
    packed = zlib.compress(ROWS)
    assert is_complete(SIGNATURE + header() + in_pieces(packed, chunk_bytes) + END)
    assert not is_complete(SIGNATURE + header() + in_pieces(packed[:-1] + b"\0", chunk_bytes) + END)


def test_a_file_that_is_too_large_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MAX_BYTES", 20)
    with pytest.raises(ImageError, match="over the limit of 20"):
        images.inspect(saved("L", (8, 6)))


@pytest.mark.parametrize("name", [b"IHDR", b"IDAT"])
def test_a_wrong_checksum_of_a_chunk_is_damage(name: bytes) -> None:
    data = bytearray(SIGNATURE + header() + pixels() + END)
    start = data.index(name)
    data[start + 4 + int.from_bytes(data[start - 4 : start], "big")] ^= 1
    with pytest.raises(ImageError):
        images.identify(bytes(data))


def test_metadata_is_read_by_the_decoder() -> None:
    with pytest.raises(ImageError):
        images.inspect(SIGNATURE + header() + chunk(b"gAMA", b"\0") + pixels() + END)


@pytest.mark.parametrize("progressive", [False, True])
def test_a_truncated_jpeg_is_found_at_an_eighth_of_its_size(progressive: bool) -> None:
    out = io.BytesIO()
    noise((200, 100)).convert("RGB").save(out, "JPEG", progressive=progressive)
    data = out.getvalue()
    assert images.inspect(data) == ("image/jpeg", 200, 100)
    for share in (0.3, 0.6, 0.9):
        with pytest.raises(ImageError):
            images.inspect(data[: int(len(data) * share)])


def test_a_file_that_ends_before_its_end_is_damaged_at_every_length() -> None:
    data = saved("RGB", (8, 6))
    for length in range(len(data) - 4):  # decoders do not miss the checksum of an end
        with pytest.raises(ImageError):
            images.identify(data[:length])
