"""A PNG that is accepted without decoding its pixels is one that a decoder accepts."""

from __future__ import annotations

import io
import random
import struct
import subprocess
import sys
import zlib
from contextlib import suppress

import pytest
from broken_images import chunk
from PIL import Image, UnidentifiedImageError

from visioneval.errors import ImageError
from visioneval.media import images, png
from visioneval.media.png import certainly_decodes, plain_size

SIGNATURE = b"\x89PNG\r\n\x1a\n"
ROWS = b"".join(bytes([number % 5]) + bytes(range(9)) for number in range(7))
"""Seven rows of three RGB pixels, with every filter."""


@pytest.fixture(autouse=True, params=["zlib", "zlib_ng.zlib_ng"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs with Python's own library and with that of the extra ``speed``, if it is installed."""
    monkeypatch.setattr(png, "_zlib", pytest.importorskip(request.param))


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
def test_usual_images_need_no_decoder(mode: str, size: tuple[int, int]) -> None:
    data = saved(mode, size)
    assert certainly_decodes(data)
    assert images.identify(data) == ("image/png", *size)


def test_pixel_data_in_many_chunks_with_every_filter() -> None:
    packed = zlib.compress(ROWS)
    parts = b"".join(chunk(b"IDAT", packed[start : start + 3]) for start in range(0, len(packed), 3))
    assert certainly_decodes(SIGNATURE + header() + chunk(b"IDAT", b"") + parts + END)


def test_large_pixel_data_in_many_chunks_is_read_to_its_last_row() -> None:
    rows = (b"\0" + random.Random(1).randbytes(6000)) * 1000
    packed = zlib.compress(rows, 0)
    parts = b"".join(chunk(b"IDAT", packed[start : start + 8192]) for start in range(0, len(packed), 8192))
    large = chunk(b"IHDR", struct.pack(">IIBBBBB", 2000, 1000, 8, 2, 0, 0, 0))
    assert certainly_decodes(SIGNATURE + large + parts + END)
    one_row_more = chunk(b"IHDR", struct.pack(">IIBBBBB", 2000, 1001, 8, 2, 0, 0, 0))
    assert not certainly_decodes(SIGNATURE + one_row_more + parts + END)


@pytest.mark.parametrize("name", VALID_BUT_UNUSUAL)
def test_an_unusual_image_is_left_to_the_decoder(name: str) -> None:
    data = SIGNATURE + VALID_BUT_UNUSUAL[name]
    assert not certainly_decodes(data)
    assert images.inspect(data) == ("image/png", 3, 7)


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_found(name: str) -> None:
    data = SIGNATURE + DAMAGED[name]
    assert not certainly_decodes(data)
    with pytest.raises(ImageError):
        images.identify(data)


@pytest.mark.slow
def test_more_data_than_declared_is_not_decompressed_to_its_end() -> None:
    assert not certainly_decodes(SIGNATURE + header() + pixels(bytes(100_000_000)) + END)


@pytest.mark.parametrize("mode", ["L", "P", "RGB", "RGBA"])
def test_whatever_is_changed_a_decoder_agrees(mode: str) -> None:
    """Changes of one byte below right checksums, and truncations, in a fixed random order."""
    source, chances = saved(mode, (8, 6)), random.Random(1)
    accepted = 0
    for _ in range(400):
        data = bytearray(source)
        data[chances.randrange(8, len(data))] = chances.randrange(256)
        changed = with_right_checksums(data)[: chances.choice([len(data), chances.randrange(8, len(data))])]
        with suppress(
            Image.DecompressionBombError, UnidentifiedImageError, OSError, SyntaxError, ValueError
        ):  # its header is refused first
            handle = Image.open(io.BytesIO(changed))
            if certainly_decodes(changed):
                accepted += 1
                assert loads(handle)
    assert 0 < accepted < 200


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA"])
def test_a_plain_image_is_what_a_decoder_says_that_it_is(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow does not open the plain ones: whatever is changed in one, the result is the same as if it did."""
    source, chances = saved(mode, (8, 6)), random.Random(2)
    credentials = source[:33] + chunk(b"caBX", b"content credentials") + source[33:]
    changed = [source, credentials]
    for place in chances.choices(range(len(SIGNATURE), 33), k=200) + chances.choices(range(33, len(source)), k=100):
        data = bytearray(source)
        data[place] = chances.randrange(256)
        changed.append(with_right_checksums(data) if chances.random() < 0.8 else bytes(data))
    changed += [source[:length] for length in range(len(source))]
    results = [outcome(data) for data in changed]
    assert plain_size(source) == plain_size(credentials) == (8, 6)
    assert sum(plain_size(data) is not None for data in changed) > 20
    monkeypatch.setattr(images, "plain_size", lambda _: None)
    assert results == [outcome(data) for data in changed]


def test_metadata_is_left_to_the_decoder() -> None:
    cut = SIGNATURE + header() + chunk(b"gAMA", b"\0") + pixels() + END
    assert certainly_decodes(cut)
    assert plain_size(cut) is None
    with pytest.raises(ImageError):
        images.inspect(cut)


def outcome(data: bytes) -> tuple[str, int, int] | None:
    """What an image is; ``None`` if it is refused."""
    try:
        return images.inspect(data)
    except ImageError:
        return None


def test_a_file_that_is_too_large_is_refused_before_its_chunks_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MAX_BYTES", 20)
    monkeypatch.setattr(images, "plain_size", lambda _: pytest.fail("it was read"))
    with pytest.raises(ImageError, match="over the limit of 20"):
        images.inspect(saved("L", (8, 6)))


def test_pillow_is_not_loaded_for_a_plain_image() -> None:
    script = "import sys; from visioneval.media import images; print(images.inspect(sys.stdin.buffer.read())[1:])"
    script += "; print('PIL.Image' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], input=saved("RGB", (8, 6)), capture_output=True, check=True)
    assert ran.stdout.decode().split("\n")[:2] == ["(8, 6)", "False"]


def with_right_checksums(data: bytes | bytearray) -> bytes:
    changed, start = bytearray(data), len(SIGNATURE)
    while start + 12 <= len(data):
        end = start + 8 + int.from_bytes(data[start : start + 4], "big")
        if end + 4 <= len(data):
            changed[end : end + 4] = zlib.crc32(data[start + 4 : end]).to_bytes(4, "big")
        start = end + 4
    return bytes(changed)


@pytest.mark.parametrize("name", [b"IHDR", b"IDAT"])
def test_a_wrong_checksum_of_a_chunk_is_damage(name: bytes) -> None:
    data = bytearray(SIGNATURE + header() + pixels() + END)
    start = data.index(name)
    data[start + 4 + int.from_bytes(data[start - 4 : start], "big")] ^= 1
    assert not certainly_decodes(bytes(data))
    with pytest.raises(ImageError):
        images.identify(bytes(data))


def loads(handle: Image.Image) -> bool:
    """Whether a decoder accepts the pixels."""
    try:
        return handle.load() is not None
    except (OSError, SyntaxError, ValueError, EOFError):
        return False


@pytest.mark.parametrize("progressive", [False, True])
def test_a_truncated_jpeg_is_found_at_an_eighth_of_its_size(progressive: bool) -> None:
    out = io.BytesIO()
    noise((200, 100)).convert("RGB").save(out, "JPEG", progressive=progressive)
    data = out.getvalue()
    assert images.inspect(data) == ("image/jpeg", 200, 100)
    for share in (0.3, 0.6, 0.9):
        with pytest.raises(ImageError):
            images.inspect(data[: int(len(data) * share)])


def test_a_code_that_no_encoder_writes_is_damage_with_every_library() -> None:
    """A length code of 286: zlib and so Pillow refuse it, while libdeflate reads it as 258 bytes."""
    bits = "1" + "10"  # the last block, with the fixed codes
    bits += "00110000" * 9  # nine zeros: the filter and eight pixels
    bits += "11000110" + "00000"  # the length code 286, at a distance of 1
    bits += "0000000"  # the end of the block
    packed = bytes(int(bits[at : at + 8].ljust(8, "0")[::-1], 2) for at in range(0, len(bits), 8))
    stream = b"\x78\x01" + packed + zlib.adler32(bytes(267)).to_bytes(4, "big")
    with pytest.raises(zlib.error):
        zlib.decompress(stream)
    size = chunk(b"IHDR", struct.pack(">IIBBBBB", 266, 1, 8, 0, 0, 0, 0))
    data = SIGNATURE + size + chunk(b"IDAT", stream) + END
    assert not certainly_decodes(data)
    with pytest.raises(ImageError):
        images.identify(data)
