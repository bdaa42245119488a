"""ICC profiles of cameras, screens and paper, made here, and images in them."""

from __future__ import annotations

import io
import struct

import numpy as np
from PIL import Image, ImageCms

_D50 = (0.9642, 1.0, 0.8249)
_DISPLAY_P3 = ((0.515121, 0.241196, -0.001053), (0.291977, 0.692245, 0.041885), (0.157104, 0.066574, 0.784073))
"""The red, green and blue of Display P3 as XYZ, adapted to D50."""
SRGB_CURVE = (2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045)


def _fixed(*numbers: float) -> bytes:
    return b"".join(struct.pack(">i", round(number * 65536)) for number in numbers)


def _xyz(values: tuple[float, ...]) -> bytes:
    return b"XYZ \0\0\0\0" + _fixed(*values)


def _curve(parameters: tuple[float, ...]) -> bytes:
    kind = 0 if len(parameters) == 1 else 3
    return b"para\0\0\0\0" + struct.pack(">HH", kind, 0) + _fixed(*parameters)


def _text(text: str) -> bytes:
    encoded = text.encode("utf-16-be")
    return b"mluc\0\0\0\0" + struct.pack(">II2s2sII", 1, 12, b"en", b"US", len(encoded), 28) + encoded


def _profile(space: bytes, tags: dict[bytes, bytes]) -> bytes:
    """A display profile of version 4."""
    offset, table, body = 128 + 4 + 12 * len(tags), struct.pack(">I", len(tags)), b""
    for name, data in tags.items():
        table += name + struct.pack(">II", offset + len(body), len(data))
        body += data + b"\0" * (-len(data) % 4)
    head = struct.pack(
        ">I4sI4s4s4s12s4s", offset + len(body), b"\0\0\0\0", 0x04300000, b"mntr", space, b"XYZ ", b"", b"acsp"
    )
    return (head.ljust(68, b"\0") + _fixed(*_D50)).ljust(128, b"\0") + table + body


def display_p3(name: str = "Display P3") -> bytes:
    """Apple's color space of wide-gamut screens."""
    columns = {key: _xyz(color) for key, color in zip((b"rXYZ", b"gXYZ", b"bXYZ"), _DISPLAY_P3, strict=True)}
    curves = {key: _curve(SRGB_CURVE) for key in (b"rTRC", b"gTRC", b"bTRC")}
    return _profile(b"RGB ", {b"desc": _text(name), b"cprt": _text("none"), b"wtpt": _xyz(_D50), **columns, **curves})


def gray(*curve: float) -> bytes:
    """A gray space, such as that of a scanner: linear, or with a gamma or the parameters of a curve."""
    curve = curve or (1.0,)
    return _profile(
        b"GRAY",
        {b"desc": _text(f"Gray {curve[0]}"), b"cprt": _text("none"), b"wtpt": _xyz(_D50), b"kTRC": _curve(curve)},
    )


def srgb() -> bytes:
    """The sRGB profile of Little CMS."""
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def srgb_of(image: Image.Image, profile: bytes) -> Image.Image:
    """The same look in sRGB, as another program converts it."""
    source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
    target = ImageCms.ImageCmsProfile(io.BytesIO(srgb()))
    return ImageCms.profileToProfile(image.convert("RGB"), source, target, renderingIntent=1, outputMode="RGB")


def portrait(size: tuple[int, int] = (192, 160)) -> Image.Image:
    """Skin, sky and a garment of strong colors, with the fine texture that cameras have."""
    rng = np.random.default_rng(8)
    pixels = np.empty((size[1], size[0], 3), np.int16)
    for number, color in enumerate(((214, 160, 130), (90, 150, 220), (200, 40, 60), (60, 170, 90))):
        pixels[:, number * size[0] // 4 : (number + 1) * size[0] // 4] = color
    pixels += rng.integers(-14, 15, pixels.shape)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def encoded(image: Image.Image, profile: bytes | None, kind: str = "PNG", **options: object) -> bytes:
    """The image with a profile, or with none."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **({} if profile is None else {"icc_profile": profile}), **options)
    return buffer.getvalue()
