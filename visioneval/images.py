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

FORMATS = {"PNG": "png", "JPEG": "jpeg", "MPO": "jpeg", "WEBP": "webp", "GIF": "gif", "BMP": "bmp", "TIFF": "tiff"}
_OPENED = [name for name in FORMATS if name != "MPO"]  # several JPEGs in one file, which begins as a JPEG
EXTENSIONS = {"png": ".png", "jpeg": ".jpg", "webp": ".webp", "gif": ".gif", "bmp": ".bmp", "tiff": ".tif"}


@contextmanager
def opened(source: Path | bytes) -> Iterator[Image.Image]:
    """Opens a picture without decoding it, within the limits. Raises ``ImageError``."""
    from PIL import Image, UnidentifiedImageError

    try:
        _check_file(source)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd metadata, and of sizes, for which we have an error of our own
            with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=_OPENED) as file:
                _check_pixels(file)
                yield file
    except ImageError:
        raise
    except UnidentifiedImageError:
        known = ", ".join(dict.fromkeys(FORMATS.values()))
        raise ImageError(f"not a picture we can read (we read {known})") from None
    except Image.DecompressionBombError:
        raise ImageError(f"it declares more pixels than the limit of {MAX_PIXELS:,}") from None
    except FileNotFoundError:
        raise ImageError("there is no such file") from None
    except Exception as error:  # a decoder that is fed a hostile file may raise anything
        told = str(error) if isinstance(error, (OSError, SyntaxError, ValueError, EOFError)) else ""
        why = (isinstance(error, OSError) and error.strerror) or told or "it is damaged"
        raise ImageError(f"the picture does not decode: {why[:1].lower()}{why[1:]}") from error


def within(folder: Path, relative: str) -> Path:
    """Where a picture of ``folder`` lies. Raises ``ImageError`` for one that leads out of it, links followed."""
    try:
        path = folder / relative
        if path.resolve().is_relative_to(folder.resolve()):
            return path
    except (OSError, ValueError, RuntimeError):
        pass
    raise ImageError("it lies outside the run")


def read(path: Path) -> bytes:
    """A file as it is, within the limit of its size. Raises ``ImageError``."""
    try:
        _check_file(path)
        return path.read_bytes()
    except OSError as error:
        raise ImageError(f"the file cannot be read: {error.strerror or error}") from None


def _check_file(source: Path | bytes) -> None:
    size = len(source) if isinstance(source, bytes) else source.stat().st_size
    if not isinstance(source, bytes) and not source.is_file():
        raise ImageError("it is a directory, not a picture" if source.is_dir() else "it is not a regular file")
    if size == 0:
        raise ImageError("the file is empty")
    if size > MAX_BYTES:
        raise ImageError(f"the file has {size:,} bytes, over the limit of {MAX_BYTES:,}")


def _check_pixels(image: Image.Image) -> None:
    if image.width * image.height > MAX_PIXELS:
        raise ImageError(f"it declares {image.width} x {image.height} pixels, over the limit of {MAX_PIXELS:,}")


def inspect(source: Path | bytes) -> tuple[str, int, int]:
    """Decodes a picture whole and returns its mime type, width and height. Raises ``ImageError``."""
    with opened(source) as handle:
        kind = FORMATS[handle.format or ""]
        handle.load()
        return f"image/{kind}", handle.width, handle.height


def identify(source: Path | bytes) -> tuple[str, int, int]:
    """Mime type, width and height of a file that is whole, as cheaply as its format allows. Raises ``ImageError``.

    A PNG is held to the checksums of all its chunks, which costs a fortieth of decoding it; others are decoded.
    """
    with opened(source) as handle:
        found = f"image/{FORMATS[handle.format or '']}", handle.width, handle.height
        if handle.format == "PNG":
            handle.verify()
        else:
            handle.load()
        return found


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
    from PIL import Image

    with opened(source) as handle:
        image = _upright(handle)
        if not image.has_transparency_data:
            return image.convert("RGB")
        rgba = image.convert("RGBA")
        white = Image.new("RGBA", rgba.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, rgba).convert("RGB")


def load_mask(source: Path) -> Image.Image:
    """A mask as an ``L`` picture: 255 inside (alpha 0), 0 outside. Raises ``ImageError`` without alpha."""
    with opened(source) as handle:
        if not handle.has_transparency_data:
            raise ImageError("a mask needs an alpha channel: transparent pixels (alpha 0) are inside")
        alpha = _upright(handle).convert("RGBA").getchannel("A")
        return alpha.point([255] + [0] * 255)


def _upright(handle: Image.Image) -> Image.Image:
    """The first frame, decoded, rotated as its EXIF says, with 8 bits a sample."""
    from PIL import ImageOps

    handle.load()
    image = ImageOps.exif_transpose(handle)
    return _eight_bits(image) if image.mode[0] == "I" or image.mode == "F" else image


def _eight_bits(image: Image.Image) -> Image.Image:
    """Pillow clips 16-bit samples at 255 when it converts; a viewer scales them."""
    import numpy as np
    from PIL import Image

    samples = np.nan_to_num(np.asarray(image, dtype=np.float64))
    highest = samples.max(initial=0)
    top = 65535 if image.mode != "F" or highest > 255 else 255 if highest > 1 else 1
    shown = Image.fromarray((samples / top * 255).clip(0, 255).round().astype(np.uint8))
    clear = image.info.get("transparency")
    if isinstance(clear, int):
        shown.putalpha(Image.fromarray(np.where(samples == clear, 0, 255).astype(np.uint8)))
    return shown


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
    """Describes ``data`` that lies, or will lie, at ``path``. Raises ``ImageError`` where it is damaged."""
    mime, width, height = identify(data)
    return Picture(path, sha256(data), mime, width, height)


def verify(source: Path) -> None:
    """Finds a file that is no picture or is cut off, as cheaply as its format allows. Raises ``ImageError``."""
    with opened(source) as handle:
        if handle.format == "PNG":
            handle.verify()  # reads every chunk and its checksum
            return
        handle.draft("L", (1, 1))  # an eighth of a JPEG's size, which still reads all of it
        handle.load()


def has_alpha(source: Path) -> bool:
    """Whether the picture can be transparent. Raises ``ImageError``."""
    with opened(source) as handle:
        return handle.has_transparency_data
