"""Pictures on disk: bounded loading, hashing, encoding.

Everything that a model, a suite or a dataset hands us may be hostile, so a file's size and its declared
pixels are checked before anything is decoded.
"""

from __future__ import annotations

import hashlib
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from visioneval.errors import ImageError
from visioneval.types import Picture

if TYPE_CHECKING:
    from PIL import Image

MAX_BYTES = 256 * 1024 * 1024
MAX_PIXELS = 100_000_000

FORMATS = {"PNG": "png", "JPEG": "jpeg", "WEBP": "webp", "GIF": "gif", "BMP": "bmp", "TIFF": "tiff"}
EXTENSIONS = {"png": ".png", "jpeg": ".jpg", "webp": ".webp", "gif": ".gif", "bmp": ".bmp", "tiff": ".tif"}


@contextmanager
def opened(source: Path | bytes) -> Iterator[Image.Image]:
    """Opens a picture without decoding it, within the limits. Raises ``ImageError``."""
    from PIL import Image, UnidentifiedImageError

    try:
        size = len(source) if isinstance(source, bytes) else source.stat().st_size
        if size == 0:
            raise ImageError("the file is empty")
        if size > MAX_BYTES:
            raise ImageError(f"the file has {size:,} bytes, over the limit of {MAX_BYTES:,}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # our own limit on pixels is checked below, with an error
            handle = Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=list(FORMATS))
        with handle:
            if handle.width * handle.height > MAX_PIXELS:
                raise ImageError(
                    f"it declares {handle.width} x {handle.height} pixels, over the limit of {MAX_PIXELS:,}"
                )
            yield handle
    except UnidentifiedImageError:
        raise ImageError(f"not a picture we can read (we read {', '.join(FORMATS.values())})") from None
    except Image.DecompressionBombError:
        raise ImageError(f"it declares more pixels than the limit of {MAX_PIXELS:,}") from None
    except FileNotFoundError:
        raise ImageError("there is no such file") from None
    except IsADirectoryError:
        raise ImageError("it is a directory, not a picture") from None
    except (
        OSError,
        SyntaxError,
        ValueError,
        EOFError,
        KeyError,
        IndexError,
        TypeError,
        AttributeError,
    ) as error:
        raise ImageError(f"the picture does not decode: {error}") from error


def inspect(source: Path | bytes) -> tuple[str, int, int]:
    """Decodes a picture whole and returns its mime type, width and height. Raises ``ImageError``."""
    with opened(source) as handle:
        kind = FORMATS[handle.format or ""]
        handle.load()
        return f"image/{kind}", handle.width, handle.height


def size_of(source: Path) -> tuple[int, int]:
    """Width and height as a viewer shows them (EXIF rotation applied), without decoding. Raises ``ImageError``."""
    with opened(source) as handle:
        if handle.getexif().get(0x0112) in (5, 6, 7, 8):
            return handle.height, handle.width
        return handle.width, handle.height


def load_rgb(source: Path | bytes) -> Image.Image:
    """The picture as a person sees it: 8-bit RGB, rotated as its EXIF says, first frame, on white.

    Raises ``ImageError``.
    """
    from PIL import Image, ImageOps

    with opened(source) as handle:
        handle.load()
        image = ImageOps.exif_transpose(handle)
        if image.mode.startswith("I") or image.mode == "F":
            image = _eight_bits(image)
        if image.has_transparency_data:
            rgba = image.convert("RGBA")
            white = Image.new("RGBA", rgba.size, (255, 255, 255, 255))
            image = Image.alpha_composite(white, rgba)
        return image.convert("RGB")


def load_mask(source: Path) -> Image.Image:
    """A mask as an ``L`` picture: 255 inside (alpha 0), 0 outside. Raises ``ImageError`` without alpha."""
    from PIL import ImageOps

    with opened(source) as handle:
        handle.load()
        if not handle.has_transparency_data:
            raise ImageError("a mask needs an alpha channel: transparent pixels (alpha 0) are inside")
        alpha = ImageOps.exif_transpose(handle).convert("RGBA").getchannel("A")
        return alpha.point([255] + [0] * 255)


def frames(source: Path) -> int:
    """How many frames the file holds; 1 for a still picture. Raises ``ImageError``."""
    with opened(source) as handle:
        return int(getattr(handle, "n_frames", 1))


def encode_png(image: Image.Image) -> bytes:
    """The picture as PNG bytes."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def sha256(data: bytes) -> str:
    """The hex digest that names these bytes."""
    return hashlib.sha256(data).hexdigest()


def picture_at(path: Path, data: bytes) -> Picture:
    """Describes ``data`` that lies, or will lie, at ``path``. Raises ``ImageError`` where it does not decode."""
    mime, width, height = inspect(data)
    return Picture(path, sha256(data), mime, width, height)


def _eight_bits(image: Image.Image) -> Image.Image:
    """Pillow clips 16-bit samples at 255 when it converts; a viewer scales them."""
    import numpy as np
    from PIL import Image

    samples = np.asarray(image, dtype=np.float64)
    top = 1.0 if image.mode == "F" and samples.max(initial=0) <= 1 else 65535.0
    return Image.fromarray((samples / top * 255).clip(0, 255).astype(np.uint8))


def verify(source: Path) -> None:
    """A quick look that finds a file that is no picture, or a PNG that is cut off. Raises ``ImageError``."""
    with opened(source) as handle:
        handle.verify()


def has_alpha(source: Path) -> bool:
    """Whether the picture can be transparent. Raises ``ImageError``."""
    with opened(source) as handle:
        return handle.has_transparency_data
