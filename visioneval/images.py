"""Pictures on disk: bounded loading, hashing, encoding.

Everything that a model, a suite or a dataset hands us may be hostile, so a file's size and its declared
pixels are checked before anything is decoded.
"""

from __future__ import annotations

import hashlib
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from visioneval.bounds import MEGAPIXELS, max_pixels
from visioneval.errors import ImageError
from visioneval.pixels import IN_MEMORY
from visioneval.png import is_complete
from visioneval.types import Picture

if TYPE_CHECKING:
    from PIL import Image

MAX_BYTES = 256 * 1024 * 1024

FORMATS = {"PNG": "png", "JPEG": "jpeg", "MPO": "jpeg", "WEBP": "webp", "GIF": "gif", "BMP": "bmp", "TIFF": "tiff"}
_OPENED = [name for name in FORMATS if name != "MPO"]  # several JPEGs in one file, which begins as a JPEG
EXTENSIONS = {"png": ".png", "jpeg": ".jpg", "webp": ".webp", "gif": ".gif", "bmp": ".bmp", "tiff": ".tif"}


@contextmanager
def opened(source: Path | bytes) -> Iterator[Image.Image]:
    """Opens an image to be decoded, within the limits; its pixels count as in memory meanwhile.

    Raises ``ImageError``.
    """
    with header(source) as handle, IN_MEMORY.hold(handle.width * handle.height):
        yield handle


@contextmanager
def room_for(*sources: Path | bytes) -> Iterator[None]:
    """Waits until all of these may be in memory together, with what measuring them takes.

    One that cannot be read counts nothing: whoever loads it gets the error.
    """
    pixels = 0
    for source in sources:
        with suppress(ImageError), header(source) as handle:
            pixels += handle.width * handle.height
    with IN_MEMORY.hold(pixels):
        yield


@contextmanager
def header(source: Path | bytes) -> Iterator[Image.Image]:
    """Opens an image without decoding it, within the limits. Raises ``ImageError``."""
    from PIL import Image, UnidentifiedImageError

    try:
        _check_file(source)
        if Image.MAX_IMAGE_PIXELS is not None:  # Pillow's own limit, which must not be below ours
            Image.MAX_IMAGE_PIXELS = max(Image.MAX_IMAGE_PIXELS, max_pixels())
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
        raise too_many_pixels("more pixels than") from None
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
    check_size(image.width, image.height)


def check_size(width: int, height: int) -> None:
    """Raises ``ImageError`` for a declared size in pixels that is over the limit."""
    if width * height > max_pixels():
        raise too_many_pixels(f"{width} x {height} pixels, over")


def too_many_pixels(declares: str) -> ImageError:
    """The error of an image that ``declares`` a size beyond the limit."""
    limit = MEGAPIXELS.limit
    return ImageError(f"it declares {declares} the limit of {limit:,} million pixels ({MEGAPIXELS.hint})")


def inspect(source: Path | bytes) -> tuple[str, int, int]:
    """Decodes an image whole and returns its mime type, width and height. Raises ``ImageError``."""
    with opened(source) as handle:
        kind = FORMATS[handle.format or ""]
        _load(handle, source)
        return f"image/{kind}", handle.width, handle.height


def _load(handle: Image.Image, source: Path | bytes) -> None:
    """Decodes an image. A PNG that ends early leaves its last rows as they were, which is all zero."""
    handle.load()
    if handle.mode in ("P", "PA") and not handle.getpalette():  # it loads, and no pixel has a colour
        raise ImageError("the picture does not decode: it has no palette for its pixels")
    if handle.format != "PNG":
        return
    last = handle.crop((0, handle.height - 1, handle.width, handle.height))
    if handle.info.get("interlace") or not any(last.tobytes()):
        data = source if isinstance(source, bytes) else source.read_bytes()
        if not is_complete(data):
            raise ImageError("the picture does not decode: it has less pixel data than its size says")


def identify(source: Path | bytes) -> tuple[str, int, int]:
    """Mime type, width and height of a file that is whole. Raises ``ImageError``.

    The first frame is decoded, all of it: checksums alone do not show that a file holds all of its pixels. Those of a
    PNG are checked too, as decoding passes over them.
    """
    _check_chunks(source)
    return inspect(source)


def _check_chunks(source: Path | bytes) -> None:
    with header(source) as handle:
        if handle.format == "PNG":
            handle.verify()


def size_of(source: Path) -> tuple[int, int]:
    """Width and height as a viewer shows them (EXIF rotation applied), without decoding. Raises ``ImageError``."""
    with header(source) as handle:
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
        rgba = image if image.mode == "RGBA" else image.convert("RGBA")
        white = (255, 255, 255, 255)
        return Image.alpha_composite(Image.new("RGBA", rgba.size, white), rgba).convert("RGB")


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
    ImageOps.exif_transpose(handle, in_place=True)  # a copy would take as much memory again
    return _eight_bits(handle) if handle.mode[0] == "I" or handle.mode == "F" else handle


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
    with header(source) as handle:
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


def check_decodes(source: Path) -> None:
    """Decodes an image whole, as cheaply as its format allows. Raises ``ImageError``."""
    _check_chunks(source)
    with opened(source) as handle:
        handle.draft("L", (1, 1))  # an eighth of a JPEG's size, which still reads all of it
        _load(handle, source)


def verify(source: Path) -> None:
    """Finds a file that is no image or was cut off, for a page to show it: of a PNG, the checksums alone are read.

    Raises ``ImageError``.
    """
    with header(source) as handle:
        is_png = handle.format == "PNG"
    if is_png:
        _check_chunks(source)
    else:
        check_decodes(source)


def has_alpha(source: Path) -> bool:
    """Whether the picture can be transparent. Raises ``ImageError``."""
    with header(source) as handle:
        return handle.has_transparency_data
