"""Images for judges, read and encoded once for all cells."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

from visioneval.judging.shown_images import PASSTHROUGH_FORMATS, shown
from visioneval.providers.base import FilePart, ImagePart
from visioneval.types import Output

MAX_BYTES = 64_000_000


class ImageCache:
    """The most recently used input images and masks. Thread-safe."""

    def __init__(self) -> None:
        self._parts: OrderedDict[tuple[Path, bool], ImagePart] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def show(self, path: Path, *, mask: bool = False) -> ImagePart:
        """An input image encoded for a judge, or a mask in black and white. Raises ``GraderError``."""
        key = (path, mask)
        with self._lock:
            if key in self._parts:
                self._parts.move_to_end(key)
                return self._parts[key]
        part = shown(path, mask=mask)
        with self._lock:
            if key not in self._parts:
                self._parts[key] = part
                self._bytes += len(part.data)
            while self._bytes > MAX_BYTES and len(self._parts) > 1:
                _, dropped = self._parts.popitem(last=False)
                self._bytes -= len(dropped.data)
        return part


class CellImages:
    """The images of one cell: its output, which is already validated, and cached input images."""

    def __init__(self, image: Output | None, image_cache: ImageCache) -> None:
        self._image = image
        self._image_cache = image_cache

    def show(self, path: Path, *, mask: bool = False) -> ImagePart:
        """The cell's output, an input image or a mask. Raises ``GraderError``."""
        output = self._image
        if output is None or path != output.path:
            return self._image_cache.show(path, mask=mask)
        return FilePart(path, output.mime, output.sha256) if output.mime in PASSTHROUGH_FORMATS else shown(path)
