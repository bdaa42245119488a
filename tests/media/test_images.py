"""Images as a person sees them, and every file that is none."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from png_bytes import chunk, png

from visioneval import ImageError
from visioneval.media import images

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)
Make = Callable[..., Path]


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def rgb(data: bytes | Path, at: tuple[int, int] = (0, 0)) -> tuple[int, ...]:
    image = images.on_background(images.load_image(data), "white")
    assert image.mode == "RGB"
    pixel = image.getpixel(at)
    assert isinstance(pixel, tuple)
    return pixel


def refusal(look: Callable[[], object]) -> str:
    with pytest.raises(ImageError) as caught:
        look()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_formats(kind: str) -> None:
    data = encoded(Image.new("RGB", (20, 10), RED), kind)
    assert images.inspect(data) == (f"image/{kind.lower()}", 20, 10)
    assert max(abs(a - b) for a, b in zip(rgb(data), RED, strict=True)) <= 3


def test_palette_and_bilevel_and_grey() -> None:
    palette = Image.new("P", (4, 4), 1)
    palette.putpalette([0, 0, 0, *GREEN])
    assert rgb(encoded(palette)) == GREEN
    assert rgb(encoded(Image.new("1", (4, 4), 1))) == WHITE
    assert rgb(encoded(Image.new("L", (4, 4), 77))) == (77, 77, 77)


def test_cmyk() -> None:
    shown = rgb(encoded(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG"))
    assert shown[0] > 240
    assert max(shown[1:]) < 15
    assert rgb(encoded(Image.new("CMYK", (4, 4), (0, 0, 0, 0)), "TIFF")) == WHITE


def test_sixteen_bits_are_scaled_not_clipped() -> None:
    grey = Image.fromarray(np.full((4, 4), 32896, dtype=np.uint16))
    assert rgb(encoded(grey)) == (128, 128, 128)
    assert rgb(encoded(grey, "TIFF")) == (128, 128, 128)
    colour = png(1, 1, depth=16, rows=b"\0" + struct.pack(">HHH", 65535, 32896, 0))
    assert rgb(colour) == (255, 128, 0)


@pytest.mark.parametrize(("sample", "shown"), [(0.5, 128), (1.0, 255)])
def test_floats_are_shown_from_black_to_white(sample: float, shown: int) -> None:
    assert rgb(encoded(Image.new("F", (4, 4), sample), "TIFF")) == (shown,) * 3


def test_a_nan_float_does_not_crash() -> None:
    assert rgb(encoded(Image.new("F", (4, 4), float("nan")), "TIFF")) == (0, 0, 0)


def test_transparent_pixels_show_white() -> None:
    assert rgb(encoded(Image.new("RGBA", (4, 4), (255, 0, 0, 0)))) == WHITE
    assert rgb(encoded(Image.new("RGBA", (4, 4), (255, 0, 0, 51)))) == (255, 204, 204)
    assert rgb(encoded(Image.new("LA", (4, 4), (0, 0)))) == WHITE
    assert rgb(encoded(Image.new("RGB", (4, 4), RED), transparency=RED)) == WHITE
    palette = Image.new("P", (4, 4), 1)
    palette.putpalette([0, 0, 0, *GREEN])
    assert rgb(encoded(palette, transparency=1)) == WHITE
    sixteen = png(1, 1, chunk(b"tRNS", struct.pack(">H", 300)), depth=16, colour=0, rows=b"\0" + struct.pack(">H", 300))
    assert rgb(sixteen) == WHITE


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_an_animation_shows_its_first_frame(kind: str, tmp_path: Path) -> None:
    options = {"lossless": True} if kind == "WEBP" else {}
    path = tmp_path / "a"
    path.write_bytes(
        encoded(
            Image.new("RGB", (8, 8), RED),
            kind,
            save_all=True,
            append_images=[Image.new("RGB", (8, 8), BLUE)],
            **options,
        )
    )
    assert rgb(path) == RED
    assert images.frames(path) == 2
    images.verify(path)


@pytest.mark.parametrize(
    ("orientation", "size", "first"),
    [(1, (20, 10), RED), (2, (20, 10), BLUE), (3, (20, 10), BLUE), (6, (10, 20), RED), (8, (10, 20), BLUE)],
)
def test_exif_rotation_is_applied(
    make_exif: Make, orientation: int, size: tuple[int, int], first: tuple[int, ...]
) -> None:
    path = make_exif(orientation)
    assert images.size_of(path) == size
    assert images.load_image(path).size == size
    assert rgb(path) == first
    assert images.inspect(path)[1:] == (20, 10)  # as stored


@pytest.fixture
def make_exif(tmp_path: Path) -> Make:
    """An image, red on its left and blue on its right as stored, with an orientation."""

    def make(orientation: int) -> Path:
        image = Image.new("RGB", (20, 10), RED)
        image.paste(BLUE, (10, 0, 20, 10))
        exif = Image.Exif()
        exif[0x0112] = orientation
        image.save(tmp_path / "exif.png", exif=exif)
        return tmp_path / "exif.png"

    return make


def test_a_mask_is_white_where_it_is_transparent(mask: Make) -> None:
    shown = images.load_mask(mask(box=(0, 0, 8, 48)))
    assert (shown.mode, shown.size) == ("L", (64, 48))
    assert [shown.getpixel((x, 0)) for x in (0, 7, 8, 63)] == [255, 255, 0, 0]


@pytest.mark.parametrize(
    ("mode", "color", "inside"),
    [
        ("RGBA", (0, 0, 0, 1), 255),
        ("RGBA", (9, 9, 9, 249), 255),
        ("RGBA", (9, 9, 9, 250), 0),
        ("LA", (0, 0), 255),
        ("LA", (0, 128), 255),
        ("LA", (0, 255), 0),
    ],
)
def test_what_is_partly_transparent_is_inside_a_mask(save_image: Make, mode: str, color: Any, inside: int) -> None:
    assert images.load_mask(save_image(mode=mode, color=color)).getextrema() == (inside, inside)


def test_a_mask_without_alpha_is_refused(save_image: Make) -> None:
    path = save_image()
    assert not images.has_alpha(path)
    assert (
        refusal(lambda: images.load_mask(path))
        == "a mask needs an alpha channel: transparent pixels (alpha 0) are inside the mask"
    )


NOISE = Image.effect_noise((120, 90), 60)

BAD = {
    "empty": (b"", "the file is empty"),
    "text": (b"hello, world", "not a supported image (supported: png, jpeg, webp, gif, bmp, tiff, svg)"),
    "cut.png": (encoded(NOISE)[:-40], "the image cannot be decoded: truncated File Read"),
    "cut.jpg": (encoded(NOISE, "JPEG")[:900], "the image cannot be decoded: image file is truncated"),
    "cut.webp": (encoded(NOISE, "WEBP")[:200], "the image cannot be decoded: "),
    "cut.bmp": (encoded(NOISE, "BMP")[:600], "the image cannot be decoded: image file is truncated"),
    "bomb": (png(50_000, 50_000), "it declares more pixels than the limit of 50 million pixels"),
    "large": (png(12_000, 10_000), "it declares 12000 x 10000 pixels, over the limit of 50 million pixels"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("look", [images.verify, images.load_image, images.inspect])
def test_non_images_are_rejected(tmp_path: Path, name: str, look: Callable[[Path], object]) -> None:
    data, message = BAD[name]
    path = tmp_path / name
    path.write_bytes(data)
    if name == "cut.png" and look is not images.verify:
        message = "the image cannot be decoded: "
    assert refusal(lambda: look(path)).startswith(message)


def test_non_files_are_rejected(tmp_path: Path) -> None:
    assert refusal(lambda: images.verify(tmp_path / "gone.png")) == "there is no such file"
    assert refusal(lambda: images.verify(tmp_path)) == "it is a folder, not an image"
    assert refusal(lambda: images.verify(Path("/dev/zero"))) == "it is not a regular file"
    assert refusal(lambda: images.verify(tmp_path / ("x" * 300))) == "the image cannot be decoded: file name too long"


def test_a_file_over_the_limit_of_bytes_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.png"
    with path.open("wb") as file:
        file.truncate(images.MAX_BYTES + 1)
    assert refusal(lambda: images.load_image(path)) == "the file has 268,435,457 bytes, over the limit of 268,435,456"


def test_a_image_is_described_with_its_hash(tmp_path: Path) -> None:
    data = encoded(Image.new("RGB", (3, 2)))
    described = images.image_at(tmp_path / "later.png", data)
    assert (described.mime, described.width, described.height) == ("image/png", 3, 2)
    assert described.sha256 == images.sha256(data)


def test_encoding_preserves_every_pixel() -> None:
    image = images.load_image(encoded(NOISE.convert("RGB")))
    assert images.load_image(images.encode_png(image)).tobytes() == image.tobytes()


SEEDS = [
    encoded(Image.linear_gradient("L").resize((16, 12)).convert(mode), kind)
    for mode, kind in [("RGB", "PNG"), ("P", "PNG"), ("RGB", "JPEG"), ("P", "GIF"), ("RGB", "BMP"), ("RGB", "WEBP")]
]


@given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.integers(0, 160), st.integers(0, 255)), max_size=6),
    st.integers(1, 2000),
)
def test_a_damaged_file_is_a_image_or_an_image_error(seed: bytes, edits: list[tuple[int, int]], length: int) -> None:
    data = bytearray(seed[:length])
    for position, value in edits:
        data[position % len(data)] = value
    for look in (images.load_image, images.inspect):
        try:
            look(bytes(data))
        except ImageError as error:
            assert str(error)
