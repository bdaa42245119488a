"""Color profiles: images in sRGB, the one color space in which local graders compare, by the ICC profile of the file.

Only ICC profiles are read: not the chunks gAMA, cHRM and cICP of a PNG, nor the color space in EXIF. An image without a
profile is sRGB, and so is one whose profile is unreadable or describes other channels than the image has.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL import Image

MAX_PROFILE = 8 * 1024 * 1024
"""Bytes: profiles of presses have up to 3 MB."""
_SAME_LEVELS = 1
"""Of 255: profiles whose colors differ by no more are the same, such as the many versions of sRGB."""
_LONGEST_NAME = 60
_MODES = {"RGB ": "RGB", "GRAY": "L", "CMYK": "CMYK"}
"""Pillow's mode for the colors of a profile, by its ICC color space."""


@dataclass(frozen=True, slots=True)
class ColorSpace:
    """What the values of an image mean. ``name`` is that of its profile, for people."""

    name: str
    mode: str = "RGB"
    """Pillow's mode of the values that the profile describes: ``RGB``, ``L`` or ``CMYK``."""
    transforms: Any = None
    """The transforms to sRGB by the mode of the image; ``None`` if its values are sRGB already."""
    look: bytes = b""
    """sRGB of some values, which shows whether two spaces are the same."""

    def is_same(self, other: ColorSpace) -> bool:
        """Whether the same values are the same colors in both: the grays that both have, if one is a space of grays."""
        if self.mode != other.mode and "CMYK" in (self.mode, other.mode):
            return False
        common = None if self.mode == other.mode else 256 * len("RGB")
        first, second = ((space.look or _samples(space.mode).tobytes())[:common] for space in (self, other))
        return all(abs(a - b) <= _SAME_LEVELS for a, b in zip(first, second, strict=True))


SRGB = ColorSpace("sRGB")
_UNREADABLE = ColorSpace("an unreadable color profile, which is ignored")


def color_space(handle: Image.Image) -> ColorSpace:
    """The color space of an opened image."""
    if "icc_profile" not in handle.info:
        return SRGB
    profile = handle.info["icc_profile"]
    if not isinstance(profile, bytes) or not 0 < len(profile) <= MAX_PROFILE:
        return _UNREADABLE
    space = _space_of(profile)
    fits = handle.mode == "CMYK" if space.mode == "CMYK" else handle.mode != "CMYK"
    is_gray = handle.mode in ("1", "L", "LA", "F") or handle.mode.startswith("I")
    return space if fits and (space.mode != "L" or is_gray) else _UNREADABLE


@lru_cache(maxsize=16)
def _space_of(profile: bytes) -> ColorSpace:
    """The color space of an ICC profile. Most images of a run have the same few."""
    from PIL import ImageCms

    try:
        opened = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        mode = _MODES[opened.profile.xcolor_space]
        name = "".join(filter(str.isprintable, " ".join(ImageCms.getProfileDescription(opened).split())))
        srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
        transforms = {
            before: ImageCms.ImageCmsTransform(
                opened,
                srgb,
                before,
                "RGBA" if before == "RGBA" else "RGB",
                ImageCms.Intent.RELATIVE_COLORIMETRIC,
                flags=ImageCms.Flags.BLACKPOINTCOMPENSATION,
            )
            for before in ((mode, "RGBA") if mode == "RGB" else (mode,))
        }
        look = transforms[mode].apply(_samples(mode)).tobytes()
    except (OSError, ImageCms.PyCMSError, KeyError, ValueError):  # a profile may be anything
        return _UNREADABLE
    space = ColorSpace(name[:_LONGEST_NAME] or "an unnamed color profile", mode, transforms, look)
    return SRGB if space.is_same(SRGB) else space


@cache
def _samples(mode: str) -> Image.Image:
    """All grays and a lattice of colors."""
    from PIL import Image

    grays = [(level,) * len(mode) for level in range(256)]
    values = [*grays, *product(range(0, 256, 51), repeat=len(mode))]
    return Image.frombytes(mode, (len(values), 1), bytes(channel for value in values for channel in value))


def in_srgb(image: Image.Image, space: ColorSpace) -> Image.Image:
    """A decoded image of ``space`` as RGB in sRGB, or as straight RGBA if it can be transparent.

    Relative colorimetric, with black point compensation; colors outside of sRGB become the nearest ones inside.
    """
    from PIL import ImageCms

    mode = "RGBA" if image.has_transparency_data else "RGB"
    if space.transforms is None or space.mode == "RGB":
        shown = image.convert(mode)
        if space.transforms is not None:
            ImageCms.applyTransform(shown, space.transforms[mode], inPlace=True)
    else:
        colors = image if image.mode == space.mode else image.convert(space.mode)
        shown = space.transforms[space.mode].apply(colors)
        if mode == "RGBA":
            shown.putalpha(image.convert("RGBA").getchannel("A"))
    shown.info.pop("icc_profile", None)
    return shown
