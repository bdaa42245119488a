"""Reads text in images with RapidOCR and the models in its package; nothing is downloaded.

The detector overlooks what is small in a large image: of single words on a flat canvas, most. So there is a closer
look, for images on which little was found or something is missing: windows around what stands out. An image with
transparency is read on backgrounds on which its text can be seen: white, black, or both.

Readers mix up O and 0: in "0ffice", and in "2O19". So the glyphs are looked at, without what is expected. Fonts that
mark the zero with a dot or a slash leave ink at its center, and the letter O is empty there. A glyph without a mark
shows a letter only in a font that marks its zeros, which the numbers of the same reading prove, or, without such
numbers, in a monospaced font, where the letter is as narrow as a zero. In other fonts, O and 0 differ in width alone,
which says nothing about a single glyph: they stay open.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from statistics import fmean
from typing import Any, TypeVar
from unicodedata import unidata_version

import cv2
import numpy as np
from PIL import Image

from visioneval.graders.base import GradingContext
from visioneval.graders.measures import Measure
from visioneval.graders.pixels.difference import TOOL_VERSIONS
from visioneval.graders.text import networks
from visioneval.graders.text.layout import Corners, Reading, bounds, merged
from visioneval.graders.text.networks import model_path
from visioneval.media.images import on_background
from visioneval.media.opencv import portable_opencv

_VISIBLE = 64
"""Alpha, 0 to 255, from which a pixel counts as drawn."""
_REACH_PX = 8
"""Only what is drawn this close to transparent pixels is seen against the background."""
_READABLE = 80
"""Of 255: luma that differs by less from the background may not be readable on it."""
_MIN_SHARE = 0.002
"""The share of the pixels beside transparent ones from which light or dark content counts."""


def read(image: Image.Image) -> list[Reading]:
    """The text segments in an image of ``load_image``: RGB as it is, RGBA on each background that it needs.

    Where readings on both backgrounds overlap, those of the background with more confident characters count. Raises
    ``GraderError``.
    """
    return merged([read_flat(flat) for flat in on_backgrounds(image)])


def on_backgrounds(image: Image.Image) -> list[Image.Image]:
    """The image, as RGB, on each background that it needs."""
    return [on_background(image, color) for color in backgrounds(image)]


@portable_opencv()
def backgrounds(image: Image.Image) -> tuple[str, ...]:
    """The backgrounds on which everything that is drawn beside transparent pixels stands out; at least one."""
    if image.mode == "RGB":
        return ("white",)
    visible = (np.asarray(image.getchannel("A")) >= _VISIBLE).astype(np.uint8)
    square = np.ones((2 * _REACH_PX + 1, 2 * _REACH_PX + 1), np.uint8)
    beside = (visible - cv2.erode(visible, square)).astype(np.bool_)
    luma = np.asarray(image.convert("RGB").convert("L"))[beside]
    needed = _MIN_SHARE * luma.size
    is_light, is_dark = (luma > 255 - _READABLE).sum() > needed, (luma < _READABLE).sum() > needed
    if is_light:
        return ("white", "black") if is_dark else ("black",)
    return ("white",)


T = TypeVar("T")
Place = tuple[int, int, int, int]
"""Left, top, right and bottom in pixels."""

MAX_AREA = 4_000_000
"""The most pixels for the detector: about five seconds and one gigabyte of memory."""
_SMALL_SIDE = 640
"""Images with a longer side below this are enlarged to twice their size."""
_MIN_SIDE = 736
"""The detector enlarges images to this shorter side; thin strips are padded instead."""
_THIN = 2.5
"""An image with a larger aspect ratio is a strip."""

_RETRY_BELOW = 0.85
"""Readings below this confidence are also tried upside down. Upside down, capitals are read at up to 0.81, and some
short words as other ones: "Soup" as "dnos"."""
_MIN_GAIN = 0.1
CONFIDENCE_DIGITS = 4
"""Decimals of a confidence."""

_WINDOW = 320
"""The least side of a window. Of 71 single words that the detector overlooked on whole canvases, it found all in
windows of 320 pixels, all but 3 in those of 448, and all but 16 in those of 576."""
_AROUND = 1.5
"""A window is this many times as wide and high as what is in it."""
_MAX_WINDOWS_AREA = 8_000_000
"""Pixels: where windows would be more, as in a photo, there are none."""
_ENLARGED = 2.0
"""How many times the whole image is enlarged for the closest look, to what the detector sees at once."""
_LEAST_ENLARGED = 1.5
"""Where that is less than this, the image is enlarged up to ``_MAX_ENLARGED_AREA`` pixels, and seen in tiles."""
_MAX_ENLARGED_AREA = 16_000_000
_SHARED_SIDE = 160
"""The pixels that neighboring tiles share."""
_RIM = 8
"""What is at most so many pixels from the side of a tile may be cut there."""
_CONTRAST = 24
"""Of 255, in any channel: a pixel that differs by more from one beside it stands out."""
_INK_SIDE = 2048
"""What stands out is looked for in an image with at most this longer side."""
_MIN_INK = 5
"""Pixels of both sides of what stands out, from which it may be text."""
_TOGETHER = np.ones((9, 25), np.uint8)
"""What is not farther apart than this, in pixels, stands out together: the letters and words of a line."""


@portable_opencv()
def read_flat(image: Image.Image, within: Place | None = None) -> list[Reading]:
    """The text segments in an RGB image, at any confidence, from top to bottom; of a place, those in its middle.

    Corners are pixels of ``image``. The same image gives the same readings from any thread. The pre- and
    postprocessing does not depend on the processor; the models do, so the last digits of a confidence may differ
    and are rounded off. Raises ``GraderError`` if RapidOCR or its models are not installed, or fail.
    """
    prepared, scale = _prepare(image)
    # Of a reduced image, the lines are read in their own size.
    source, to_source = (image, 1 / scale) if scale < 1 else (prepared, 1.0)
    readings = []
    for box in networks.detect(prepared):
        corners = _rounded(_scaled(box, 1 / scale, image.size))
        x, y = (sum(corner[axis] for corner in corners) / 4 for axis in (0, 1))
        if within is None or (within[0] <= x <= within[2] and within[1] <= y <= within[3]):
            reading = _read_box(source, _scaled(box, to_source, source.size))
            if reading.text.strip():
                readings.append(replace(reading, corners=corners))
    return readings


@portable_opencv()
def read_windows(image: Image.Image, known: Sequence[Reading]) -> list[Reading]:
    """The text in windows around what stands out in an RGB image and is no ``known`` reading.

    Nothing where too much stands out, as in a photo. Raises ``GraderError``.
    """
    looks: list[list[Reading]] = []
    places = list(_standing_out(image, known))
    windows = []  # they may reach beyond the image
    for left, top, right, bottom in places:
        width, height = (max(_WINDOW, round(side * _AROUND)) for side in (right - left, bottom - top))
        x, y = (left + right - width) // 2, (top + bottom - height) // 2
        windows.append((x, y, x + width, y + height))
    areas = ((right - left) * (bottom - top) for left, top, right, bottom in windows)
    if sum(max(area, _MIN_SIDE**2) for area in areas) > _MAX_WINDOWS_AREA:
        return []
    for window, place in zip(windows, places, strict=True):
        left, top = window[:2]
        within = place[0] - left, place[1] - top, place[2] - left, place[3] - top
        looks.append([_moved(reading, 1.0, (left, top)) for reading in read_flat(_on_canvas(image, window), within)])
    return merged(looks)


@portable_opencv()
def read_enlarged(image: Image.Image) -> list[Reading]:
    """The text in an RGB image after it was enlarged, without what the tiles cut. Raises ``GraderError``."""
    area = image.width * image.height
    scale = min(_ENLARGED, (MAX_AREA / area) ** 0.5)
    if scale < _LEAST_ENLARGED:
        scale = min(_ENLARGED, (_MAX_ENLARGED_AREA / area) ** 0.5)
    size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    enlarged = image.resize(size, Image.Resampling.LANCZOS)
    looks: list[list[Reading]] = []
    side = int(MAX_AREA**0.5)
    across, down = (list(_spans(length, side)) for length in size)
    for tile in ((left, top, right, bottom) for top, bottom in down for left, right in across):
        look = [reading for reading in read_flat(enlarged.crop(tile)) if not _is_cut(reading, tile, size)]
        looks.append([_moved(reading, scale, tile[:2]) for reading in look])
    return merged(looks)


def _is_cut(reading: Reading, tile: Place, size: tuple[int, int]) -> bool:
    """Whether a reading of a tile reaches a side that is no side of the image."""
    left, top, right, bottom = bounds(reading)
    width, height = tile[2] - tile[0], tile[3] - tile[1]
    at_rim = left <= _RIM, top <= _RIM, right >= width - _RIM, bottom >= height - _RIM
    is_inner = tile[0] > 0, tile[1] > 0, tile[2] < size[0], tile[3] < size[1]
    return any(map(all, zip(at_rim, is_inner, strict=True)))


def _moved(reading: Reading, scale: float, corner: tuple[int, int]) -> Reading:
    """A reading of a part of the image that was enlarged by ``scale``, with its corners in the image."""
    assert reading.corners is not None
    a, b, c, d = (((x + corner[0]) / scale, (y + corner[1]) / scale) for x, y in reading.corners)
    return replace(reading, corners=_rounded((a, b, c, d)))


def _spans(length: int, longest: int) -> Iterator[tuple[int, int]]:
    count = max(1, -(-(length - _SHARED_SIDE) // (longest - _SHARED_SIDE)))
    step = (length - _SHARED_SIDE) / count
    for number in range(count):
        yield round(number * step), round((number + 1) * step) + _SHARED_SIDE


def _standing_out(image: Image.Image, known: Sequence[Reading]) -> Iterator[Place]:
    """The places that stand out from their surroundings and are no known text."""
    scale = max(1.0, max(image.size) / _INK_SIDE)
    size = max(1, round(image.width / scale)), max(1, round(image.height / scale))
    pixels = cv2.resize(np.asarray(image), size, interpolation=cv2.INTER_AREA)
    beside = np.ones((3, 3), np.uint8)
    edges = (cv2.dilate(pixels, beside) - cv2.erode(pixels, beside)).max(axis=2)
    ink = (edges > _CONTRAST).astype(np.uint8)
    for reading in known:
        if reading.corners is not None:
            corners = np.array([[round(x / scale), round(y / scale)] for x, y in reading.corners], np.int32)
            cv2.fillPoly(ink, [corners], 0)
    ink = cv2.morphologyEx(cv2.copyMakeBorder(ink, 16, 16, 16, 16, cv2.BORDER_CONSTANT), cv2.MORPH_CLOSE, _TOGETHER)
    _, _, places, _ = cv2.connectedComponentsWithStats(ink)
    for x, y, width, height, _ in places[1:].tolist():
        if min(width, height) >= _MIN_INK:
            left, top = round((x - 16) * scale), round((y - 16) * scale)
            yield left, top, left + round(width * scale), top + round(height * scale)


def _on_canvas(image: Image.Image, window: Place) -> Image.Image:
    """A window of the image; beyond the image, the color of the window's rim."""
    left, top, right, bottom = window
    inside = max(left, 0), max(top, 0), min(right, image.width), min(bottom, image.height)
    shown = image.crop(inside)
    if inside == window:
        return shown
    canvas = Image.new("RGB", (right - left, bottom - top), border_color(shown))
    canvas.paste(shown, (inside[0] - left, inside[1] - top))
    return canvas


@portable_opencv()
def read_row(image: Image.Image, box: Corners) -> Reading:
    """The text in an upright box of an RGB image. Raises ``GraderError``."""
    line = networks.crop(image, box)
    return _reading(line, networks.read_line(line), box)


def _read_box(image: Image.Image, box: Corners) -> Reading:
    """Reads a box, also upside down if it is not sure; a box that is half again as high as wide is a line that runs up
    or down.

    RapidOCR's classifier of directions is off: it squeezes long lines until they look upside down.
    """
    line = networks.crop(image, box)
    read = networks.read_line(line)
    if _confidence(read.confidence) < _RETRY_BELOW:
        turned_line = line.rotate(180)
        turned = networks.read_line(turned_line)
        if _confidence(turned.confidence) > _confidence(read.confidence) + _MIN_GAIN:
            line, read = turned_line, turned
    return _reading(line, read, box)


def _reading(line: Image.Image, read: networks.Line, box: Corners) -> Reading:
    runs_up = abs(box[3][1] - box[0][1]) + abs(box[3][0] - box[0][0]) >= 1.5 * (
        abs(box[1][0] - box[0][0]) + abs(box[1][1] - box[0][1])
    )
    shown = () if runs_up or not needs_glyphs(read.text) else shown_characters(line, read.text, read.columns)
    return Reading(read.text, _confidence(read.confidence), box, shown)


def _confidence(score: float) -> float:
    """The confidence as recorded and as compared with ``min_confidence``."""
    return round(score, CONFIDENCE_DIGITS)


def all_versions() -> dict[str, str]:
    """The versions of OCR, and of what prepares images for it and looks at glyphs. Raises ``GraderError``."""
    shaping = {name: version(name) for name in ("pyclipper", "shapely") if find_spec(name)}  # the boxes
    return {**TOOL_VERSIONS, "unicode": unidata_version, **tool_versions(), **shaping}


async def measured(
    context: GradingContext,
    name: str,
    run: Callable[[], T],
    result: type[T],
    *,
    tools: Mapping[str, str] | None = None,
    **options: Any,
) -> T:
    """The result of what reads the output, or depends on its text, by ``options``; ``tools`` are further versions."""
    files, versions = {"output": context.generated.path}, {**all_versions(), **(tools or {})}
    return await context.measure(Measure(name, files, run, result, options=options, tool_versions=versions))


@cache
def tool_versions() -> Mapping[str, str]:
    """The versions of the packages, and the recognition model. Raises ``GraderError`` if they are not installed."""
    model = model_path("Rec")
    return {"rapidocr": version("rapidocr"), "onnxruntime": version("onnxruntime"), "model": model.stem}


def _prepare(image: Image.Image) -> tuple[Image.Image, float]:
    """The image for the detector, and its scale: limited in area, enlarged if small, padded if a strip."""
    width, height = image.size
    scale = 2.0 if max(width, height) < _SMALL_SIDE else 1.0
    scale = min(scale, (MAX_AREA / (width * height)) ** 0.5, MAX_AREA / _MIN_SIDE / max(width, height))
    if scale != 1.0:
        size = (max(1, round(width * scale)), max(1, round(height * scale)))
        image = image.resize(size, Image.Resampling.LANCZOS)
    if min(image.size) >= _MIN_SIDE or max(image.size) <= _THIN * min(image.size):
        return image, scale
    return _on_canvas(image, (0, 0, max(image.width, _MIN_SIDE), max(image.height, _MIN_SIDE))), scale


def border_color(image: Image.Image) -> tuple[int, int, int]:
    """The median color of the border, so that padding adds no edge that OCR could read as a letter."""
    pixels = np.asarray(image)
    rim = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    red, green, blue = (int(value) for value in np.median(rim, axis=0))
    return red, green, blue


def _scaled(box: Corners, factor: float, size: tuple[int, int]) -> Corners:
    a, b, c, d = ((min(x * factor, size[0]), min(y * factor, size[1])) for x, y in box)
    return a, b, c, d


def _rounded(box: Corners) -> Corners:
    a, b, c, d = ((round(x, 1), round(y, 1)) for x, y in box)
    return a, b, c, d


_RUN = re.compile(r"[^\W_]+")
_ZERO, _LETTERS = "0", "Oo"

_MIN_HEIGHT = 8
"""Glyphs with fewer pixels are not judged."""
_EMPTY, _MARKED = 0.15, 0.25
"""Ink at the center of a glyph, as a share of the darkest ink. In 11 fonts from 18 to 48 px: at most 0.07 in letters
and plain zeros (599 of 600; one letter touches the next), and at least 0.28 in 60 zeros with a dot or a slash."""
_SMALL = 0.85
"""A lowercase letter has less than this share of the height of the tallest glyph."""

_MONOSPACED = 0.035
"""The most that glyph centers deviate from equal steps (root mean square, in steps) in a monospaced font."""
_MIN_GLYPHS = 5
_UNEQUAL = frozenset("fijlrtI1mwMW%@")
"""Characters that are narrow or wide in proportional fonts: without one, equal steps prove nothing."""

Ink = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class _Glyph:
    """The tallest stroke at a character's position: its center and size in pixels, and the ink at its center."""

    x: float
    height: int
    center_ink: float


def needs_glyphs(text: str) -> bool:
    """Whether a reading has a zero among letters, or the letter O among digits."""
    return bool(_mixed(text))


def shown_characters(image: Image.Image, text: str, columns: Sequence[float]) -> tuple[tuple[int, str], ...]:
    """The positions in ``text`` whose glyph shows another character than was read, with that character.

    ``image`` is the line of text, and ``columns`` has the position (0 to 1 of its width) of each character that is
    not white space.
    """
    positions = [position for position, char in enumerate(text) if not char.isspace()]
    if len(positions) != len(columns):
        return ()
    gray = np.asarray(image.convert("L"), dtype=np.float64)
    paper = np.median(np.concatenate([gray[0], gray[-1], gray[:, 0], gray[:, -1]]))
    ink: Ink = np.abs(gray - paper)
    ink /= max(float(ink.max()), 1.0)
    labels = cv2.connectedComponentsWithStats((ink > 0.5).astype(np.uint8), connectivity=8)[2][1:]
    glyphs = {
        position: glyph
        for position, column in zip(positions, columns, strict=True)
        if (glyph := _glyph(ink, labels, column * ink.shape[1])) is not None
    }
    tallest = max((glyph.height for position, glyph in glyphs.items() if text[position].isalnum()), default=0)
    numbers = [run for run in _RUN.finditer(text) if run[0].isdecimal()]
    zeros = [
        _is_marked(glyphs.get(run.start() + index))
        for run in numbers
        for index, char in enumerate(run[0])
        if char == _ZERO
    ]
    empty_is_letter = all(zeros) if zeros else _is_monospaced(text, glyphs)
    shown: list[tuple[int, str]] = []
    for position in _mixed(text):
        glyph = glyphs.get(position)
        if glyph is None or glyph.height < _MIN_HEIGHT:
            continue
        if text[position] == _ZERO and empty_is_letter and glyph.center_ink <= _EMPTY:
            shown.append((position, "o" if glyph.height < _SMALL * tallest else "O"))
        if text[position] in _LETTERS and _is_marked(glyph):
            shown.append((position, _ZERO))
    return tuple(shown)


def _mixed(text: str) -> list[int]:
    """The positions of zeros in words of letters, and of the letter O in numbers."""
    positions: list[int] = []
    for run in _RUN.finditer(text):
        rest = run[0].translate({ord(char): None for char in (_ZERO, *_LETTERS)})
        sought = _ZERO if rest.isalpha() else _LETTERS if rest.isdecimal() else ""
        positions.extend(run.start() + index for index, char in enumerate(run[0]) if char in sought)
    return positions


def _is_marked(glyph: _Glyph | None) -> bool:
    return glyph is not None and glyph.height >= _MIN_HEIGHT and glyph.center_ink >= _MARKED


def _glyph(ink: Ink, components: Any, x: float) -> _Glyph | None:
    covering = [component for component in components.tolist() if component[0] - 1 <= x <= component[0] + component[2]]
    if not covering:
        return None
    left, top, width, height, _ = max(covering, key=lambda component: component[3])
    middle = ink[
        top + int(height * 0.4) : top + int(np.ceil(height * 0.6)),
        left + int(width * 0.4) : left + int(np.ceil(width * 0.6)),
    ]
    return _Glyph(left + width / 2, height, float(middle.mean()))


def _is_monospaced(text: str, glyphs: dict[int, _Glyph]) -> bool:
    """Whether the glyphs of each word stand in equal steps, by a least squares fit with one step for all words."""
    words = [list(range(*word.span())) for word in re.finditer(r"\S+", text)]
    measured = sum(len(word) for word in words)
    if measured != len(glyphs) or measured < _MIN_GLYPHS or _UNEQUAL.isdisjoint(text):
        return False
    offsets: list[tuple[float, float]] = []
    for word in words:
        middle, center = fmean(word), fmean(glyphs[position].x for position in word)
        offsets.extend((position - middle, glyphs[position].x - center) for position in word)
    spread = sum(index * index for index, _ in offsets)
    step = sum(index * x for index, x in offsets) / spread if spread else 0.0
    if step <= 0:
        return False
    return fmean((x - step * index) ** 2 for index, x in offsets) <= (_MONOSPACED * step) ** 2
