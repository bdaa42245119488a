"""Images on disk: loading within limits, hashing, encoding.

Images from models, suites and datasets may be hostile, so file size and declared pixels are checked before decoding.

Whether the pixel data of a PNG is complete is checked here, as Pillow accepts truncated data and leaves the remaining
rows black. Decoding the pixels too would take half the time of a run with 0.1 s a call (``make bench``, W2).
"""

from __future__ import annotations

import hashlib
import io
import threading
import warnings
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from visioneval.bounds import MEGAPIXELS, max_pixels
from visioneval.errors import ImageError, ImageLimitError
from visioneval.media import svg
from visioneval.media.color import SRGB, ColorSpace, color_space, in_srgb
from visioneval.threads import waiting
from visioneval.types import Output

if TYPE_CHECKING:
    from PIL import Image


class PixelBudget:
    """A weighted semaphore over pixels, first come, first served.

    A request larger than the whole budget is granted when no other is active. Nested requests of a thread reserve
    nothing, so that a thread never waits for itself.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._waiting: deque[object] = deque()
        self._reserved = 0
        self._thread = threading.local()

    @contextmanager
    def reserve(self, pixels: int) -> Iterator[None]:
        """Waits until the budget has room for ``pixels``, and reserves them."""
        if getattr(self._thread, "has_share", False):
            yield
            return
        most = max_pixels()
        share, turn = min(pixels, most), object()
        with self._condition:
            self._waiting.append(turn)
            try:
                with waiting():
                    self._condition.wait_for(lambda: self._waiting[0] is turn and self._reserved + share <= most)
                self._reserved += share
            finally:
                self._waiting.remove(turn)
                self._condition.notify_all()
        self._thread.has_share = True
        try:
            yield
        finally:
            self._thread.has_share = False
            with self._condition:
                self._reserved -= share
                self._condition.notify_all()


IN_MEMORY = PixelBudget()
"""The pixel budget of this process."""


MAX_BYTES = 256 * 1024 * 1024

FORMATS = {
    "PNG": "png",
    "JPEG": "jpeg",
    "MPO": "jpeg",
    "WEBP": "webp",
    "GIF": "gif",
    "BMP": "bmp",
    "TIFF": "tiff",
    "SVG": "svg",
}
_OPENED = [name for name in FORMATS if name not in ("MPO", "SVG")]
"""MPO is several JPEGs in one file and opens as JPEG; an SVG is drawn first."""
OPAQUE_FROM = 250
"""Alpha, 0 to 255, from which a pixel counts as opaque: lossy encoders write 254 for 255, and nobody sees it."""
EXTENSIONS = {
    "png": ".png",
    "jpeg": ".jpg",
    "webp": ".webp",
    "gif": ".gif",
    "bmp": ".bmp",
    "tiff": ".tif",
    "svg+xml": ".svg",
}


@contextmanager
def opened(source: Path | bytes) -> Iterator[Image.Image]:
    """Opens an image for decoding, within the limits. Its pixels count as in memory while it is open.

    Raises ``ImageError``.
    """
    with header(source) as handle, IN_MEMORY.reserve(handle.width * handle.height):
        yield handle


@contextmanager
def room_for(*sources: Path | bytes) -> Iterator[None]:
    """Waits until there is memory for all of these images together.

    An unreadable image counts as zero: loading it raises the error.
    """
    pixels = 0
    for source in sources:
        with suppress(ImageError), header(source) as handle:
            pixels += handle.width * handle.height
    with IN_MEMORY.reserve(pixels):
        yield


@contextmanager
def header(source: Path | bytes) -> Iterator[Image.Image]:
    """Opens an image without decoding it, within the limits. An SVG is drawn, once. Raises ``ImageError``."""
    from PIL import Image, UnidentifiedImageError

    try:
        _check_file(source)
        if Image.MAX_IMAGE_PIXELS is not None:  # Pillow's own limit must not be below this one
            Image.MAX_IMAGE_PIXELS = max(Image.MAX_IMAGE_PIXELS, max_pixels())
        is_drawing = svg.is_svg(source)
        opens = io.BytesIO(svg.checked_raster(_bytes_of(source))) if is_drawing else source
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd metadata, and about sizes, which are checked here
            with Image.open(io.BytesIO(opens) if isinstance(opens, bytes) else opens, formats=_OPENED) as file:
                check_size(file.width, file.height)
                file.format = "SVG" if is_drawing else file.format
                yield file
    except ImageError:
        raise
    except UnidentifiedImageError:
        known = ", ".join(dict.fromkeys(FORMATS.values()))
        raise ImageError(f"not a supported image (supported: {known})") from None
    except Image.DecompressionBombError:
        raise too_many_pixels("more pixels than") from None
    except FileNotFoundError:
        raise ImageError("there is no such file") from None
    except Exception as error:  # decoders may raise anything for a hostile file
        detail = str(error) if isinstance(error, (OSError, SyntaxError, ValueError, EOFError)) else ""
        reason = (isinstance(error, OSError) and error.strerror) or detail or "it is damaged"
        raise ImageError(f"the image cannot be decoded: {reason[:1].lower()}{reason[1:]}") from error


def within(folder: Path, relative: str) -> Path:
    """The path of an image in ``folder``. Raises ``ImageError`` if it is outside, after following links."""
    try:
        path = folder / relative
        if path.resolve().is_relative_to(folder.resolve()):
            return path
    except (OSError, ValueError, RuntimeError):
        pass
    raise ImageError("it is outside the run")


def read(path: Path) -> bytes:
    """The bytes of a file, within the size limit. Raises ``ImageError``."""
    try:
        _check_file(path)
        return path.read_bytes()
    except OSError as error:
        raise ImageError(f"the file cannot be read: {error.strerror or error}") from None


def _check_file(source: Path | bytes) -> None:
    size = len(source) if isinstance(source, bytes) else source.stat().st_size
    if not isinstance(source, bytes) and not source.is_file():
        raise ImageError("it is a folder, not an image" if source.is_dir() else "it is not a regular file")
    if size == 0:
        raise ImageError("the file is empty")
    if size > MAX_BYTES:
        raise ImageError(f"the file has {size:,} bytes, over the limit of {MAX_BYTES:,}")


def check_size(width: int, height: int) -> None:
    """Raises ``ImageError`` if a declared size in pixels exceeds the limit."""
    if width * height > max_pixels():
        raise too_many_pixels(f"{width} x {height} pixels, over")


def too_many_pixels(declares: str) -> ImageLimitError:
    """The error for an image that declares a size beyond the limit."""
    limit = MEGAPIXELS.limit
    return ImageLimitError(f"it declares {declares} the limit of {limit:,} million pixels ({MEGAPIXELS.hint})")


def inspect(source: Path | bytes, *, verifies_checksums: bool = False) -> tuple[str, int, int]:
    """Checks that an image decodes completely. Returns its MIME type, width and height. Raises ``ImageError``.

    Of a usual PNG, checks its rows instead, as Pillow fills missing ones with zeros.
    """
    with header(source) as handle:
        kind, width, height = FORMATS[handle.format or ""], handle.width, handle.height
        if verifies_checksums:
            _check_chunks(source)
        with IN_MEMORY.reserve(width * height):
            data = _bytes_of(source) if handle.format == "PNG" else b""
            if not data or is_interlaced(data):
                handle.draft("L", (1, 1))  # decodes a JPEG at an eighth of its size, but reads all of it
                handle.load()
            if handle.mode in ("P", "PA") and not handle.getpalette():  # it loads, and no pixel has a colour
                raise ImageError("the image cannot be decoded: it has no palette for its pixels")
            if data and not is_complete(data):
                raise ImageError("the image cannot be decoded: it has less pixel data than its declared size")
        return "image/svg+xml" if kind == "svg" else f"image/{kind}", width, height


def _bytes_of(source: Path | bytes) -> bytes:
    return source if isinstance(source, bytes) else source.read_bytes()


def identify(source: Path | bytes) -> tuple[str, int, int]:
    """MIME type, width and height of a complete file. Raises ``ImageError``.

    Checks the complete first frame, since checksums do not show missing pixels. Also verifies the checksums of a PNG,
    which decoding ignores.
    """
    return inspect(source, verifies_checksums=True)


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


def load_image(source: Path | bytes, *, as_stored: bool = False) -> Image.Image:
    """The image as displayed: first frame, 8 bits per channel, with EXIF rotation, in sRGB by its color profile.

    With ``as_stored``, its values are not converted. The mode is RGB if every pixel is fully opaque, else RGBA.
    Raises ``ImageError``.
    """
    with opened(source) as handle:
        space = SRGB if as_stored else color_space(handle)
        image = in_srgb(_upright(handle), space)
        if image.mode == "RGB":
            return image
        lowest, _ = image.getchannel("A").getextrema()
        return image.convert("RGB") if lowest == 255 else image


def color_space_of(source: Path | bytes) -> ColorSpace:
    """The color space of an image file. Raises ``ImageError``."""
    with header(source) as handle:
        return color_space(handle)


def on_background(image: Image.Image, color: str) -> Image.Image:
    """An image of ``load_image`` as RGB on a color, such as ``"black"``."""
    from PIL import Image

    if image.mode == "RGB":
        return image
    return Image.alpha_composite(Image.new("RGBA", image.size, color), image).convert("RGB")


def on_checkerboard(image: Image.Image) -> Image.Image:
    """An image of ``load_image`` as RGB, for people: its transparency shows squares of two grays, of 8 pixels each."""
    from PIL import Image

    if image.mode == "RGB":
        return image
    squares = Image.new("L", (2, 2))
    squares.putdata([160, 220, 220, 160])
    tile = squares.resize((16, 16), Image.Resampling.NEAREST).convert("RGBA")
    board = Image.new("RGBA", image.size)
    for top in range(0, image.height, 16):
        for left in range(0, image.width, 16):
            board.paste(tile, (left, top))
    return Image.alpha_composite(board, image).convert("RGB")


def is_transparent(image: Image.Image) -> bool:
    """Whether an image of ``load_image`` has pixels with an alpha below ``OPAQUE_FROM``."""
    return image.mode == "RGBA" and any(image.getchannel("A").histogram()[:OPAQUE_FROM])


def load_mask(source: Path) -> Image.Image:
    """A mask as an ``L`` image: 255 inside, 0 outside. Raises ``ImageError`` without alpha.

    The soft edge of a mask is part of what may change, so partly transparent pixels are inside.
    """
    return mask_alpha(source).point([255] * OPAQUE_FROM + [0] * (256 - OPAQUE_FROM))


def mask_alpha(source: Path) -> Image.Image:
    """The alpha channel of a mask as an ``L`` image. Raises ``ImageError`` without one."""
    with opened(source) as handle:
        if not handle.has_transparency_data:
            raise ImageError("a mask needs an alpha channel: transparent pixels (alpha 0) are inside the mask")
        return _upright(handle).convert("RGBA").getchannel("A")


class MaskShares(NamedTuple):
    """The shares of a mask's pixels, from 0 to 1, that are transparent (alpha 0), partly transparent and opaque."""

    clear: float
    partial: float
    opaque: float


def mask_shares(source: Path) -> MaskShares:
    """How much of a mask is inside, as its edge, and outside. Raises ``ImageError``."""
    alpha = mask_alpha(source)
    counts, pixels = alpha.histogram(), alpha.width * alpha.height
    return MaskShares(counts[0] / pixels, sum(counts[1:OPAQUE_FROM]) / pixels, sum(counts[OPAQUE_FROM:]) / pixels)


def _upright(handle: Image.Image) -> Image.Image:
    """The decoded first frame with EXIF rotation and 8 bits per channel."""
    from PIL import ImageOps

    handle.load()
    ImageOps.exif_transpose(handle, in_place=True)  # a copy would double the memory
    return _eight_bits(handle) if handle.mode[0] == "I" or handle.mode == "F" else handle


def _eight_bits(image: Image.Image) -> Image.Image:
    """Scales 16-bit samples like a viewer does; Pillow's conversion would clip them at 255."""
    import numpy as np
    from PIL import Image

    samples = np.nan_to_num(np.asarray(image, dtype=np.float64))
    highest = samples.max(initial=0)
    top = 65535 if image.mode != "F" or highest > 255 else 255 if highest > 1 else 1
    converted = Image.fromarray((samples / top * 255).clip(0, 255).round().astype(np.uint8))
    clear = image.info.get("transparency")
    if isinstance(clear, int):
        converted.putalpha(Image.fromarray(np.where(samples == clear, 0, 255).astype(np.uint8)))
    return converted


def frames(source: Path) -> int:
    """The number of frames in the file; 1 for a still image. Raises ``ImageError``."""
    with header(source) as handle:
        return int(getattr(handle, "n_frames", 1))


def encode_png(image: Image.Image, *, compression: int = 6) -> bytes:
    """The image as PNG bytes; ``compression`` is zlib's, 1 (fast) to 9."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=compression)
    return buffer.getvalue()


def sha256(data: bytes) -> str:
    """The hex digest that names these bytes."""
    return hashlib.sha256(data).hexdigest()


def image_at(path: Path, data: bytes) -> Output:
    """Describes image ``data`` stored, or to be stored, at ``path``. Raises ``ImageError`` if it is damaged."""
    mime, width, height = identify(data)
    return Output(path, sha256(data), mime, width, height)


def verify(source: Path) -> None:
    """Checks that a file is a complete image, before a page shows it. For a PNG, only the checksums are read.

    Raises ``ImageError``.
    """
    with header(source) as handle:
        is_png = handle.format == "PNG"
    if is_png:
        _check_chunks(source)
    else:
        inspect(source)


def has_alpha(source: Path) -> bool:
    """Whether the image can be transparent. Raises ``ImageError``."""
    with header(source) as handle:
        return handle.has_transparency_data


_SIGNATURE_BYTES = 8
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""By color type."""
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""For each pass of an interlaced image: first column, first row, column step, row step."""
_HIGHEST_FILTER = 4
_INFLATED_AT_ONCE = 1 << 18
"""The most bytes that one call decompresses; what comes after the last row is not decompressed."""


def is_complete(data: bytes) -> bool:
    """Whether the pixel data of a PNG that Pillow has opened decompresses to at least the size in its header, without
    an unknown filter before a row and with the right checksum.

    What an interlaced image has for filters is left to a decoder.
    """
    width, depth, color = int.from_bytes(data[16:20], "big"), data[24], data[25]
    # The rows of an interlaced image differ.
    row_bytes = 0 if is_interlaced(data) else 1 + (width * depth * _CHANNELS.get(color, 0) + 7) // 8
    size, expected = 0, _expected(data)
    inflate = zlib.decompressobj()
    try:
        for packed in _pixel_chunks(data):
            while not inflate.eof:
                # Behind the last row, a byte tells whether there is more, and if not, the checksum is compared.
                piece = inflate.decompress(packed, _INFLATED_AT_ONCE if size < expected else 1)
                packed = inflate.unconsumed_tail
                if size >= expected and piece:
                    return True
                filters = piece[-size % row_bytes : expected - size : row_bytes] if row_bytes else b""
                if max(filters, default=0) > _HIGHEST_FILTER:
                    return False
                size += len(piece)
                if not piece and not packed:
                    break
    except zlib.error:
        return False
    return size >= expected


def is_interlaced(data: bytes) -> bool:
    """Whether the rows of a PNG are in several passes."""
    return data[28] != 0


def _expected(data: bytes) -> int:
    """Total bytes of all rows, each with its filter byte."""
    width, height = (int.from_bytes(data[start : start + 4], "big") for start in (16, 20))
    depth, color = data[24], data[25]
    passes = _ADAM7 if is_interlaced(data) else ((0, 0, 1, 1),)
    sizes = ((-(-(width - x) // across), -(-(height - y) // down)) for x, y, across, down in passes)
    bits = depth * _CHANNELS.get(color, 0)
    return sum(rows * (1 + (columns * bits + 7) // 8) for columns, rows in sizes if columns > 0 and rows > 0)


def _pixel_chunks(data: bytes) -> Iterator[bytes | memoryview]:
    """The content of each ``IDAT`` chunk; that of the last may be truncated."""
    offset, view = _SIGNATURE_BYTES, memoryview(data)
    while offset + 8 <= len(data):
        end = offset + 8 + int.from_bytes(data[offset : offset + 4], "big")
        if data[offset + 4 : offset + 8] == b"IDAT":
            yield view[offset + 8 : end]
        offset = end + 4
