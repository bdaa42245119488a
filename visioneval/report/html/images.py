"""Images as a page shows them: linked, copied or embedded, with small ones made once.

A run may come from a stranger. So only what decodes as an image is ever copied or embedded, a run's own images are
taken from its folder alone, and a case's inputs from the working directory alone.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict
from urllib.parse import quote

from visioneval.atomic import write_whole
from visioneval.errors import ImageError, UsageError
from visioneval.media import images
from visioneval.suite.loading.paths import Trust

if TYPE_CHECKING:
    from PIL import Image

THUMB_SIDE = 256
EMBEDDED_SIDE = 1024
SHOWN = {".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp"}
VIDEOS = {".mp4", ".webm", ".mov"}
TINT = (255, 0, 128)


class ReportImage(TypedDict, total=False):
    """An image for the page. ``src`` is an address, or absent where there is nothing to show and ``why`` says so."""

    src: str
    why: str
    kind: str
    name: str


class ReportImages(ABC):
    """Where the images of a report come from, and where they go."""

    def __init__(self, run: Path, suite: Path, *, trust: bool) -> None:
        self._run = run
        self._suite = suite
        self._trust = Trust.for_run_suite(everything=trust)
        self._inputs: dict[tuple[str, bool], ReportImage] = {}

    @abstractmethod
    def _put(self, path: Path) -> str:
        """The address of an image that exists. Raises ``ImageError`` or ``OSError``."""

    @abstractmethod
    def _put_own(self, path: Path) -> str:
        """The address of an image of the run itself. Raises ``ImageError`` or ``OSError``."""

    @abstractmethod
    def _put_made(self, image: Image.Image, name: str, /) -> str:
        """The address of an image that was made for the report. Raises ``OSError``."""

    @abstractmethod
    def thumb(self, relative: str) -> str:
        """The address of the small image of one of the run's; empty where there is none to show."""

    def own(self, relative: str) -> ReportImage:
        """An image that lies in the run."""
        found = _tried(lambda: self._put_own(self._own_path(relative)), relative)
        return {**found, "kind": "video"} if Path(relative).suffix.lower() in VIDEOS else found

    def _own_path(self, relative: str) -> Path:
        """Where an image of the run lies. Raises ``ImageError`` for one that leads out of the run."""
        return images.within(self._run, relative)

    def input(self, named: str, *, mask: bool = False) -> ReportImage:
        """An image of a case, or its mask as a tint that lies over the image."""
        key = named, mask
        if key not in self._inputs:
            refusal = self._trust.refusal(named, self._suite)
            path = self._suite / named
            make = (lambda: self._put_made(_tinted(path), _stamp(path))) if mask else (lambda: self._put(path))
            self._inputs[key] = {"why": refusal, "name": named} if refusal else _tried(make, named)
        return self._inputs[key]


class FolderShelf(ReportImages):
    """Images are files of the report's folder; those of the run are linked where the report lies in the run."""

    def __init__(self, run: Path, suite: Path, target: Path, *, trust: bool) -> None:
        super().__init__(run, suite, trust=trust)
        self._target = target
        self._linked = target.resolve().is_relative_to(run.resolve())
        for name in ("thumbs", "images"):
            (target / name).mkdir(exist_ok=True)

    def thumb(self, relative: str) -> str:
        """Made once: a file of the same size and time is the same image."""
        try:
            path = self._own_path(relative)
            name = f"{_stamp(path)}.webp"
            if not (self._target / "thumbs" / name).exists():
                write_whole(self._target / "thumbs" / name, _webp(_small(path, THUMB_SIDE), 78))
        except (OSError, ImageError):
            return ""
        return f"thumbs/{name}"

    def _put(self, path: Path) -> str:
        name = f"{_stamp(path)}{path.suffix.lower() if path.suffix.lower() in SHOWN else '.png'}"
        kept = self._target / "images" / name
        if not kept.exists():
            images.verify(path)
            if path.suffix.lower() in SHOWN:
                shutil.copyfile(path, kept)
            else:
                write_whole(kept, images.encode_png(images.load_rgb(path)))
        return f"images/{name}"

    def _put_own(self, path: Path) -> str:
        if path.suffix.lower() in VIDEOS:
            return self._linked_or_copied(path)
        return self._linked_or_copied(path) if self._linked and path.suffix.lower() in SHOWN else self._put(path)

    def _linked_or_copied(self, path: Path) -> str:
        if not path.is_file():
            raise ImageError("there is no such file")
        if self._linked:
            return quote(Path(os.path.relpath(path.resolve(), self._target.resolve())).as_posix())
        kept = self._target / "images" / f"{_stamp(path)}{path.suffix.lower()}"
        if not kept.exists():
            shutil.copyfile(path, kept)
        return f"images/{kept.name}"

    def _put_made(self, image: Image.Image, name: str, /) -> str:
        kept = self._target / "images" / f"{name}-tint.png"
        if not kept.exists():
            write_whole(kept, images.encode_png(image))
        return f"images/{kept.name}"


class EmbeddedShelf(ReportImages):
    """Images are data within the page, made smaller where one side is over ``side`` pixels."""

    def __init__(self, run: Path, suite: Path, *, trust: bool, side: int = EMBEDDED_SIDE) -> None:
        super().__init__(run, suite, trust=trust)
        self._side = side

    def thumb(self, relative: str) -> str:
        """The small image as a data address."""
        try:
            return _data_url(_webp(_small(self._own_path(relative), THUMB_SIDE // 2), 70), "webp")
        except (OSError, ImageError):
            return ""

    def _put(self, path: Path) -> str:
        return self._embedded(path)

    def _put_own(self, path: Path) -> str:
        if path.suffix.lower() in VIDEOS:
            raise ImageError("a video is too large to be embedded")
        return self._embedded(path)

    def _put_made(self, image: Image.Image, _name: str, /) -> str:
        image.thumbnail((self._side, self._side))
        return _data_url(_webp(image, 80), "webp")

    def _embedded(self, path: Path) -> str:
        return _data_url(_webp(_small(path, self._side), 82), "webp")


def _tried(make: Callable[[], str], name: str) -> ReportImage:
    try:
        return {"src": make(), "name": name}
    except ImageError as error:
        return {"why": str(error), "name": name}
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            raise UsageError(f"{name}: cannot be taken into the report: {error.strerror or error}") from None
        return {"why": "there is no such file", "name": name}


def _stamp(path: Path) -> str:
    """A name for what a file holds now, without reading it. Raises ``OSError``."""
    state = path.stat()
    return hashlib.sha256(f"{path.resolve()}\n{state.st_size}\n{state.st_mtime_ns}".encode()).hexdigest()[:20]


def _small(path: Path, side: int) -> Image.Image:
    """The image as a person sees it, at most ``side`` pixels on its longer side."""
    from PIL import Image

    with images.opened(path) as handle:
        handle.draft("RGB", (side * 2, side * 2))
        if handle.mode == "RGB" and not handle.getexif().get(0x0112, 1) > 1:
            handle.load()
            shown = handle.copy()
        else:
            shown = images.load_rgb(path)
    shown.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=2.0)
    return shown


def _tinted(path: Path) -> Image.Image:
    """A mask as a tint: half covering inside, clear outside."""
    from PIL import Image

    inside = images.load_mask(path)
    tint = Image.new("RGBA", inside.size, (*TINT, 0))
    tint.putalpha(inside.point([0] * 128 + [128] * 128))
    return tint


def _webp(image: Image.Image, quality: int) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=quality, method=2)
    return buffer.getvalue()


def _data_url(data: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
