"""The images of the label page: by ids that tell nothing, and generated again, so that no file tells its maker.

A file's name, format, size on disk and metadata can name the model; the page always gets a fresh PNG, or a video
whose images and sound were copied into a new file.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from visioneval.errors import ImageError
from visioneval.label.sampling import rank

if TYPE_CHECKING:
    from PIL import Image

VIDEO_TYPES = ("video/mp4", "video/webm", "video/quicktime")
_DIMMED = 0.24
_EDGE = (214, 40, 98)


@dataclass(frozen=True, slots=True)
class ServedMedia:
    """What the page gets of one image."""

    data: bytes
    mime: str


Source = Callable[[], ServedMedia]


class MediaStore:
    """Ids to images. An id is known from when its item is first shown; nothing is decoded before it is asked for."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._sources: dict[str, Source] = {}
        self._lock = threading.Lock()

    def put(self, item: str, name: str, source: Source) -> str:
        """The id of an item's image."""
        key = rank(self._seed, "image", item, name)
        with self._lock:
            self._sources.setdefault(key, source)
        return key

    def get(self, key: str) -> ServedMedia | None:
        """The image; ``None`` for an id that was never given out. Raises ``ImageError``."""
        with self._lock:
            source = self._sources.get(key)
        return None if source is None else source()


def load_image(path: Path) -> Source:
    """An image as a person sees it."""

    def source() -> ServedMedia:
        from visioneval.media.images import load_rgb

        return _png(load_rgb(path))

    return source


def load_video(path: Path, mime: str) -> Source:
    """A video without its metadata, up to the size of an image's file; as it is where ``can_strip_films`` says no."""

    def source() -> ServedMedia:
        from visioneval.media.images import read

        if not can_strip_videos():
            return ServedMedia(read(path), mime)
        try:
            return ServedMedia(_stripped(path, path.stat().st_mtime_ns), mime)
        except OSError as error:
            raise ImageError(f"cannot read: {error.strerror or error}") from None

    return source


def can_strip_videos() -> bool:
    """Whether PyAV is installed, without which a video is shown with all that its file says."""
    return find_spec("av") is not None


@lru_cache(maxsize=2)
def _stripped(path: Path, _changed: int) -> bytes:
    from visioneval.media.video import without_metadata

    return without_metadata(path)


def missing() -> ServedMedia:
    """Stands for what is not there, or must not be read."""
    raise ImageError("there is no image to show")


def mask_overlay(mask: Path, base: Path | None) -> Source:
    """A mask on its base image: outside dimmed, the border generated. Without a base: white is inside."""

    def source() -> ServedMedia:
        from visioneval.media.images import load_mask, load_rgb

        inside = load_mask(mask)
        under = load_rgb(base) if base is not None else None
        return _png(inside if under is None or under.size != inside.size else _marked(under, inside))

    return source


def _marked(under: Image.Image, inside: Image.Image) -> Image.Image:
    from PIL import Image, ImageChops, ImageFilter

    grey = under.convert("L").convert("RGB")
    dimmed = Image.blend(Image.new("RGB", under.size, (128, 128, 128)), grey, _DIMMED)
    marked = Image.composite(under, dimmed, inside)
    wide = 2 * max(1, max(under.size) // 250) + 1
    border = ImageChops.subtract(inside.filter(ImageFilter.MaxFilter(wide)), inside)
    return Image.composite(Image.new("RGB", under.size, _EDGE), marked, border)


def _png(image: Image.Image) -> ServedMedia:
    image.info.clear()
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return ServedMedia(buffer.getvalue(), "image/png")
