"""Images for a page: linked, copied or embedded, with cached thumbnails.

A run may be untrusted. So only files that decode as images are copied or embedded, images of the run are read only
from its folder, and case inputs only from the working directory.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict
from urllib.parse import quote

from visioneval.analysis.redaction import LEFT_OUT, REDACTED
from visioneval.atomic import write_whole
from visioneval.errors import ImageError, UsageError
from visioneval.media import images, video
from visioneval.media.urls import public_address
from visioneval.records.stores.lookup import copies_of
from visioneval.suite.files import Trust

if TYPE_CHECKING:
    from PIL import Image

THUMB_SIDE = 256
EMBEDDED_SIDE = 1024
BROWSER_SUFFIXES = {".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp"}
VIDEOS = {".mp4", ".webm", ".mov"}
MAX_EMBEDDED_VIDEO = 4_000_000
"""Bytes of a video in a page of one file."""
MAX_EMBEDDED_VIDEOS = 64_000_000
"""Bytes of all videos in a page of one file."""
_NO_FILE, _NOT_DOWNLOADED = "there is no such file", "not downloaded from the store of the run"
TINT = (255, 0, 128)
WEBP = "image/webp"


class ReportImage(TypedDict, total=False):
    """An image for the page. ``src`` is its URL; if there is no image, ``why`` gives the reason instead."""

    src: str
    why: str
    kind: str
    name: str


class ReportImages(ABC):
    """Reads the images of a report and stores them."""

    def __init__(self, run: Path, suite: Path, *, trust: bool) -> None:
        self._run = run
        self._suite = suite
        self._trust = Trust.for_run_suite(everything=trust)
        self._inputs: dict[tuple[str, bool], ReportImage] = {}

    @abstractmethod
    def _put(self, path: Path) -> str:
        """The URL of an existing image. Raises ``ImageError`` or ``OSError``."""

    @abstractmethod
    def _put_run_image(self, path: Path) -> str:
        """The URL of an image of the run. Raises ``ImageError`` or ``OSError``."""

    @abstractmethod
    def _put_derived(self, image: Image.Image, name: str, /) -> str:
        """The URL of an image that was created for the report. Raises ``OSError``."""

    @abstractmethod
    def _put_thumb(self, path: Path) -> str:
        """The URL of the thumbnail of an image. Raises ``ImageError`` or ``OSError``."""

    def thumb(self, relative: str) -> str:
        """The URL of the thumbnail of an image of the run, or an empty string."""
        try:
            return self._put_thumb(self._run_image_path(relative))
        except (OSError, ImageError):
            return ""

    def run_image(self, relative: str) -> ReportImage:
        """An image in the run folder."""
        if relative == REDACTED:
            return {"why": LEFT_OUT, "name": REDACTED}
        image = _image_or_reason(lambda: self._put_run_image(self._run_image_path(relative)), relative)
        if "src" not in image and copies_of(self._run) is not None and not (self._run / relative).exists():
            image["why"] = _NOT_DOWNLOADED
        return {**image, "kind": "video"} if Path(relative).suffix.lower() in VIDEOS else image

    def _run_image_path(self, relative: str) -> Path:
        """The path of an image of the run. Raises ``ImageError`` if it is outside the run."""
        return images.within(self._run, relative)

    def input(self, name: str, *, mask: bool = False) -> ReportImage:
        """An image of a case, or its mask as a transparent tint."""
        if name == REDACTED:
            return {"why": LEFT_OUT, "name": REDACTED}
        key = name, mask
        if key not in self._inputs:
            refusal = self._trust.refusal(name, self._suite)
            path = self._suite / name
            put = (lambda: self._put_derived(_tinted(path), _content_name(path))) if mask else (lambda: self._put(path))
            refused: ReportImage = {"why": refusal or "", "name": public_address(name)}
            self._inputs[key] = refused if refusal else _image_or_reason(put, name)
        return self._inputs[key]


def small_webp(run: Path, relative: str, side: int) -> bytes | None:
    """An image of a run, at most ``side`` pixels on its longer side; ``None`` if it cannot be read."""
    try:
        return webp(_small(images.within(run, relative), side), 80)
    except (OSError, ImageError):
        return None


def output_image(run: Path, relative: str, side: int) -> Image.Image | str:
    """An output of a run, at most ``side`` pixels on its longer side, or why there is none."""
    if relative == REDACTED:
        return LEFT_OUT
    try:
        return _small(images.within(run, relative), side)
    except FileNotFoundError:
        return _NOT_DOWNLOADED if copies_of(run) is not None else _NO_FILE
    except (OSError, ImageError) as error:
        return str(error)


class FolderImages(ReportImages):
    """Stores images as files in the report folder. Links images of the run if the report is inside the run folder."""

    def __init__(self, run: Path, suite: Path, target: Path, *, trust: bool) -> None:
        super().__init__(run, suite, trust=trust)
        self._target = target
        self._links_run_images = target.resolve().is_relative_to(run.resolve())
        for name in ("thumbs", "images"):
            (target / name).mkdir(exist_ok=True)

    def _put_thumb(self, path: Path) -> str:
        return self._stored(f"thumbs/{_content_name(path)}.webp", lambda: webp(_small(path, THUMB_SIDE), 78))

    def _put(self, path: Path) -> str:
        name, suffix = f"images/{_content_name(path)}", path.suffix.lower()
        if suffix in BROWSER_SUFFIXES:
            return self._stored(name + suffix, lambda: _verified(path))
        return self._stored(f"{name}.png", lambda: images.encode_png(images.load_image(path)))

    def _put_run_image(self, path: Path) -> str:
        is_video = path.suffix.lower() in VIDEOS
        if not is_video and not (self._links_run_images and path.suffix.lower() in BROWSER_SUFFIXES):
            return self._put(path)
        if not path.is_file():
            raise ImageError("there is no such file")
        if self._links_run_images:
            return quote(Path(os.path.relpath(path.resolve(), self._target.resolve())).as_posix())
        return self._stored(f"images/{_content_name(path)}{path.suffix.lower()}", path.read_bytes)

    def _put_derived(self, image: Image.Image, name: str, /) -> str:
        return self._stored(f"images/{name}-tint.png", lambda: images.encode_png(image))

    def _stored(self, name: str, content: Callable[[], bytes]) -> str:
        """The URL of a file of the report, which is written once: its name changes with its content."""
        if not (self._target / name).exists():
            write_whole(self._target / name, content())
        return name


class EmbeddedImages(ReportImages):
    """Embeds images in the page, scaled down to ``side`` pixels."""

    def __init__(self, run: Path, suite: Path, *, trust: bool, side: int = EMBEDDED_SIDE) -> None:
        super().__init__(run, suite, trust=trust)
        self._side = side
        self._video_bytes = 0

    def _put_thumb(self, path: Path) -> str:
        return data_url(webp(_small(path, THUMB_SIDE // 2), 70), WEBP)

    def _put(self, path: Path) -> str:
        return data_url(webp(_small(path, self._side), 82), WEBP)

    def _put_run_image(self, path: Path) -> str:
        return self._embedded_video(path) if path.suffix.lower() in VIDEOS else self._put(path)

    def _embedded_video(self, path: Path) -> str:
        """The video as a data URL. Raises ``ImageError`` if it is none, or too large."""
        mime, size = video.mime_of(path), path.stat().st_size
        if not mime:
            raise ImageError("not a video")
        if size > MAX_EMBEDDED_VIDEO or self._video_bytes + size > MAX_EMBEDDED_VIDEOS:
            limit = "is too large for a page of one file: write the report as a folder"
            raise ImageError(f"the video ({size / 1_000_000:,.1f} MB) {limit}")
        self._video_bytes += size
        return data_url(path.read_bytes(), mime)

    def _put_derived(self, image: Image.Image, _name: str, /) -> str:
        image.thumbnail((self._side, self._side))
        return data_url(webp(image, 80), WEBP)


def _image_or_reason(put: Callable[[], str], name: str) -> ReportImage:
    shown = public_address(name)
    try:
        return {"src": put(), "name": shown}
    except ImageError as error:
        return {"why": str(error), "name": shown}
    except FileNotFoundError:
        return {"why": _NO_FILE, "name": shown}
    except OSError as error:
        raise UsageError(f"{shown}: cannot be added to the report: {error.strerror or error}") from None


def _verified(path: Path) -> bytes:
    """The bytes of an image. Raises ``ImageError`` if it is not complete."""
    images.verify(path)
    return path.read_bytes()


def _content_name(path: Path) -> str:
    """A name for the current content of a file, from its path, size and time. Raises ``OSError``."""
    state = path.stat()
    return hashlib.sha256(f"{path.resolve()}\n{state.st_size}\n{state.st_mtime_ns}".encode()).hexdigest()[:20]


def _small(path: Path, side: int) -> Image.Image:
    """The image in display orientation, at most ``side`` pixels on its longer side; on squares if it is transparent.

    Of a video, the frame in its middle. Cached files have no suffix.
    """
    from PIL import Image

    if path.suffix.lower() in VIDEOS or (not path.suffix and video.mime_of(path)):
        frame = video.sample_images(path, 1)[0].image
        frame.thumbnail((side, side), Image.Resampling.LANCZOS)
        return frame
    with images.opened(path) as handle:
        handle.draft("RGB", (side * 2, side * 2))
        if handle.mode == "RGB" and not handle.getexif().get(0x0112, 1) > 1:
            handle.load()
            image = handle.copy()
        else:
            image = images.load_image(path)
    image.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=2.0)
    return images.on_checkerboard(image)


def _tinted(path: Path) -> Image.Image:
    """A mask as a tint: half transparent inside, clear outside."""
    from PIL import Image

    inside = images.load_mask(path)
    tint = Image.new("RGBA", inside.size, (*TINT, 0))
    tint.putalpha(inside.point([0] * 128 + [128] * 128))
    return tint


def webp(image: Image.Image, quality: int) -> bytes:
    """An image as a WebP file."""
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=quality, method=2)
    return buffer.getvalue()


def data_url(data: bytes, mime: str) -> str:
    """An address that has the data in itself."""
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"
