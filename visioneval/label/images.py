"""Images of the label page, with opaque ids and re-encoded to hide the model.

A file's name, format, size and metadata can reveal the model. The page always gets a new PNG, or a video whose streams
were copied into a new file.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from visioneval.errors import ImageError
from visioneval.label.sampling import rank
from visioneval.media.video import can_read_videos, without_metadata

if TYPE_CHECKING:
    from PIL import Image

VIDEO_TYPES = ("video/mp4", "video/webm", "video/quicktime")
_DIMMED_OPACITY = 0.24
_BORDER_COLOR = (214, 40, 98)
_TEXT_SIDE, _MOST_ENLARGED = 96, 4
_MOST_WIDE, _MOST_HIGH = 1200, 400
_GAP, _BETWEEN = 12, (236, 236, 236)

Box = tuple[tuple[float, float], ...]
"""Four corners in pixels, clockwise from the top left of a text."""


@dataclass(frozen=True, slots=True)
class ServedMedia:
    """The data of one image or video for the page."""

    data: bytes
    mime: str


Source = Callable[[], ServedMedia]


class MediaStore:
    """Images by id. An id is valid once its item was shown; images are decoded on request."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._sources: dict[str, Source] = {}
        self._lock = threading.Lock()

    def put(self, item: str, name: str, source: Source) -> str:
        """Registers an image of an item and returns its id."""
        key = rank(self._seed, "image", item, name)
        with self._lock:
            self._sources.setdefault(key, source)
        return key

    def get(self, key: str) -> ServedMedia | None:
        """The image, or ``None`` for an unknown id. Raises ``ImageError``."""
        with self._lock:
            source = self._sources.get(key)
        return None if source is None else source()


def load_image(path: Path) -> ServedMedia:
    """An image in display orientation, with its transparency: the page shows squares behind it."""
    from visioneval.media.images import load_image as load

    return _png(load(path))


def load_video(path: Path, mime: str) -> ServedMedia:
    """A video without metadata, or unchanged if ``can_read_videos`` is false."""
    from visioneval.media.images import read

    return ServedMedia(_rewritten(without_metadata, path) if can_read_videos() else read(path), mime)


def load_animation(path: Path) -> ServedMedia:
    """An animation as a new WebP, which the page shows as an image."""
    from visioneval.media.animation import as_webp

    return ServedMedia(_rewritten(as_webp, path), "image/webp")


def _rewritten(rewrite: Callable[[Path], bytes], path: Path) -> bytes:
    try:
        return _rewritten_once(rewrite, path, path.stat().st_mtime_ns)
    except OSError as error:
        raise ImageError(f"cannot read: {error.strerror or error}") from None


@lru_cache(maxsize=4)
def _rewritten_once(rewrite: Callable[[Path], bytes], path: Path, _mtime: int) -> bytes:
    return rewrite(path)


def missing_image() -> ServedMedia:
    """The source of a file that is missing or must not be read."""
    raise ImageError("no image available")


def mask_overlay(mask: Path, base: Path | None) -> ServedMedia:
    """A mask over its base image: the outside is dimmed, the border is outlined. Without a base, white is inside."""
    from visioneval.media.images import load_image as load
    from visioneval.media.images import load_mask, on_checkerboard

    inside = load_mask(mask)
    base_image = on_checkerboard(load(base)) if base is not None else None
    return _png(inside if base_image is None or base_image.size != inside.size else _highlight(base_image, inside))


def text_places(path: Path, boxes: Sequence[Box]) -> ServedMedia:
    """The places of an image with text, each enlarged and upright, one below the other."""
    from PIL import Image

    from visioneval.media.images import load_image as load
    from visioneval.media.images import on_checkerboard

    image = on_checkerboard(load(path))
    crops = [_upright(image, box) for box in boxes]
    size = max(crop.width for crop in crops), sum(crop.height + _GAP for crop in crops) - _GAP
    sheet, top = Image.new("RGB", size, _BETWEEN), 0
    for crop in crops:
        sheet.paste(crop, (0, top))
        top += crop.height + _GAP
    return _png(sheet)


def _upright(image: Image.Image, box: Box) -> Image.Image:
    """The place of a text with a margin of half its smaller side, turned so that the text is upright."""
    from PIL import Image

    first, second, _, fourth = (complex(*corner) for corner in box)
    along, down = second - first, fourth - first
    margin = min(abs(along), abs(down)) / 2
    right, below = (margin * side / (abs(side) or 1) for side in (along, down))
    origin, along, down = first - right - below, along + 2 * right, down + 2 * below
    wide, high = max(abs(along), 1), max(abs(down), 1)
    scale = min(max(_TEXT_SIDE / high, 1), _MOST_ENLARGED, _MOST_WIDE / wide, _MOST_HIGH / high)
    corners = (origin, origin + down, origin + down + along, origin + along)
    data = tuple(value for corner in corners for value in (corner.real, corner.imag))
    size = max(1, round(wide * scale)), max(1, round(high * scale))
    return image.transform(size, Image.Transform.QUAD, data, Image.Resampling.BICUBIC, fillcolor=_BETWEEN)


def _highlight(base: Image.Image, inside: Image.Image) -> Image.Image:
    from PIL import Image, ImageChops, ImageFilter

    gray = base.convert("L").convert("RGB")
    dimmed = Image.blend(Image.new("RGB", base.size, (128, 128, 128)), gray, _DIMMED_OPACITY)
    marked = Image.composite(base, dimmed, inside)
    size = 2 * max(1, max(base.size) // 250) + 1
    border = ImageChops.subtract(inside.filter(ImageFilter.MaxFilter(size)), inside)
    return Image.composite(Image.new("RGB", base.size, _BORDER_COLOR), marked, border)


def _png(image: Image.Image) -> ServedMedia:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return ServedMedia(buffer.getvalue(), "image/png")
