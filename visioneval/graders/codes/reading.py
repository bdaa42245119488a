"""Reads QR codes and bar codes with zxing-cpp, and sees QR codes that it cannot read. Pure functions of pixels.

zxing-cpp reads a bar code within about 20 degrees of upright or of a quarter turn, so turned copies are read too. A QR
code without readable content, as models paint it, is seen by its three corners: nested squares whose sides are as
7 : 5 : 3 (ISO/IEC 18004), as large as each other, in the corners of a right angle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import combinations
from math import cos, dist, hypot, radians, sin
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from visioneval.errors import GraderError
from visioneval.graders.pixels.color import Pixels, on_backgrounds, premultiplied
from visioneval.graders.pixels.difference import TOOL_VERSIONS
from visioneval.graders.pixels.registration import read_pixels
from visioneval.installation import needs
from visioneval.media.images import room_for
from visioneval.media.opencv import portable_opencv

TURNS = (0, 30, 60)
"""Degrees by which the image is turned to read bar codes in any direction."""
_BARS = ("EAN13", "EAN8", "UPCA", "UPCE")
SEEN = ("QRCode", "QRCodeModel1", "QRCodeModel2", "MicroQRCode", *_BARS)
"""The formats that count as a code though they cannot be read. What looks like a damaged Data Matrix is often none."""
SQUARE = 0.25
"""The area of a QR code that is seen and not read, over its squared diagonal, at least; that of a square is 0.5."""
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Code:
    """A code: its format, its content, ``None`` if it cannot be read, and the corners of its box in pixels.

    ``only_on`` is the background, white or black, on which alone it is there, in an image with transparency.
    """

    format: str
    content: str | None
    corners: tuple[Point, ...]
    only_on: str | None = None


@dataclass(frozen=True, slots=True)
class CodesFinding:
    """The codes in an image."""

    codes: tuple[Code, ...]


def tool_versions() -> dict[str, str]:
    """The versions of what reads. Raises ``GraderError`` if the extra is not installed."""
    try:
        return {**TOOL_VERSIONS, "zxing-cpp": version("zxing-cpp")}
    except PackageNotFoundError:
        raise GraderError(needs("codes")) from None


def measure_file(path: Path) -> CodesFinding:
    """Reads the codes of a file. Raises ``GraderError`` if it does not decode."""
    with room_for(path):
        return CodesFinding(codes_in(read_pixels(path)))


@portable_opencv()
def codes_in(output: Pixels) -> tuple[Code, ...]:
    """The codes in RGB or straight RGBA pixels, from top to bottom."""
    if output.shape[2] == 3:
        return _by_place(_codes_of(output))
    on_black, on_white = (_codes_of(flat) for (flat,) in on_backgrounds(premultiplied(output)))
    return _by_place([*_without_twins(on_black, on_white, "black"), *_without_twins(on_white, on_black, "white")])


def _without_twins(here: Sequence[Code], there: Sequence[Code], background: str) -> Iterator[Code]:
    """The codes on a background, of which ``there`` are those on the other one. What is the same on both is that of
    black."""
    for code in here:
        twin = next((other for other in there if _is_same(code, other)), None)
        if twin is None or (twin.content is None and code.content is not None):
            yield replace(code, only_on=background)
        elif background == "black" and (twin.content is None) == (code.content is None):
            yield code


def _by_place(codes: Sequence[Code]) -> tuple[Code, ...]:
    return tuple(sorted(codes, key=lambda code: (min(y for _, y in code.corners), min(x for x, _ in code.corners))))


def _codes_of(image: Pixels) -> list[Code]:
    """The codes in RGB pixels: those that can be read first, and each once."""
    gray = np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), np.uint8)
    read = [code for degrees in TURNS for code in _read(gray, degrees)]
    seen = [Code("QRCode", None, corners) for corners in _corner_triples(_finder_patterns(gray))]
    codes: list[Code] = []
    for code in sorted([*read, *seen], key=lambda code: code.content is None):
        if not any(_is_same(code, other) for other in codes):
            codes.append(code)
    return codes


def _read(gray: Any, degrees: int) -> Iterator[Code]:
    """What zxing-cpp reads after a turn of the image, at its places before it."""
    from zxingcpp import TextMode, read_barcodes

    turned, back = _turned(gray, degrees)
    for barcode in read_barcodes(turned, text_mode=TextMode.Plain, return_errors=True):
        name, place = str(barcode.format).replace(" ", "").replace("-", ""), barcode.position
        corners = [
            (corner.x, corner.y) for corner in (place.top_left, place.top_right, place.bottom_right, place.bottom_left)
        ]
        if barcode.valid or (name in SEEN and (name in _BARS or _is_square(corners))):
            yield Code(name, barcode.text if barcode.valid else None, tuple(_moved(back, corner) for corner in corners))


def _is_square(corners: Sequence[Point]) -> bool:
    """Whether a box is about as high as wide. Three spots in a row are no QR code."""
    area = cv2.contourArea(np.asarray(corners, np.float32))
    return area > SQUARE * max(dist(first, second) for first, second in combinations(corners, 2)) ** 2


def _turned(gray: Any, degrees: int) -> tuple[Any, Any]:
    """The image turned, and the matrix that moves its points back."""
    if not degrees:
        return gray, np.eye(2, 3)
    height, width = gray.shape
    across, down = abs(cos(radians(degrees))), abs(sin(radians(degrees)))
    size = (round(width * across + height * down), round(width * down + height * across))
    matrix = cv2.getRotationMatrix2D((width / 2, height / 2), degrees, 1)
    matrix[:, 2] += (size[0] - width) / 2, (size[1] - height) / 2
    return cv2.warpAffine(gray, matrix, size, borderValue=128), cv2.invertAffineTransform(matrix)


def _moved(matrix: Any, point: Point) -> Point:
    x, y = (float(value) for value in matrix @ (*point, 1))
    return round(x, 1), round(y, 1)


def _is_same(first: Code, second: Code) -> bool:
    """Whether two readings are of one code: at one place, and of one content if both have one."""
    if first.content is not None and second.content is not None and first.content != second.content:
        return False
    size = max(_size(first), _size(second))
    return dist(_middle(first), _middle(second)) < size / 2


def _middle(code: Code) -> Point:
    return tuple(np.mean(code.corners, axis=0))


def _size(code: Code) -> float:
    """The longest side of a code's box, or of that of a bar code's line."""
    return max(1.0, *(dist(first, second) for first, second in combinations(code.corners, 2)))


@dataclass(frozen=True, slots=True)
class _Finder:
    """A finder pattern: its center and its side in pixels."""

    x: float
    y: float
    side: float


def _finder_patterns(gray: Any) -> list[_Finder]:
    """Nested squares, dark on light or light on dark, whose sides are about as 7 : 5 : 3."""
    finders: list[_Finder] = []
    for level in (gray, 255 - gray):
        for dark in (
            cv2.threshold(level, 0, 255, cv2.THRESH_BINARY_INV | cv2.THRESH_OTSU)[1],
            cv2.adaptiveThreshold(level, 255, cv2.ADAPTIVE_THRESH_MEAN_C, cv2.THRESH_BINARY_INV, 51, 8),
        ):
            contours, tree = cv2.findContours(dark, cv2.RETR_TREE, cv2.CHAIN_APPROX_SIMPLE)
            for nested in _nested(tree):
                finder = _as_finder([contours[index] for index in nested])
                if finder and all(hypot(finder.x - old.x, finder.y - old.y) > 0.3 * old.side for old in finders):
                    finders.append(finder)
    return finders


def _nested(tree: Any) -> Iterator[tuple[int, int, int]]:
    """Contours with one contour inside, which has one inside that has none, of OpenCV's tree."""
    if tree is None:
        return
    following, child = tree[0][:, 0], tree[0][:, 2]
    outer = np.flatnonzero((child >= 0) & (following[child] < 0))
    ring = child[outer]
    core = child[ring]
    fits = (core >= 0) & (following[core] < 0) & (child[core] < 0)
    yield from zip(outer[fits].tolist(), ring[fits].tolist(), core[fits].tolist(), strict=True)


def _as_finder(contours: Sequence[Any]) -> _Finder | None:
    """Three nested contours as a finder pattern, if they are squares of its proportions around one center."""
    areas = [cv2.contourArea(contour) for contour in contours]
    if areas[2] < 9:
        return None
    outer, ring, core = (area**0.5 for area in areas)
    if not (1.15 < outer / ring < 1.75 and 1.2 < ring / core < 2.4 and 1.8 < outer / core < 3.2):
        return None
    squares = []
    for contour, area in zip(contours[::2], areas[::2], strict=True):
        (x, y), (width, height), _ = cv2.minAreaRect(contour)
        if not min(width, height) or max(width, height) / min(width, height) > 1.35 or area / (width * height) < 0.8:
            return None
        squares.append(_Finder(x, y, max(width, height)))
    whole, middle = squares
    return whole if hypot(whole.x - middle.x, whole.y - middle.y) <= 0.1 * whole.side else None


def _corner_triples(finders: Sequence[_Finder]) -> Iterator[tuple[Point, ...]]:
    """The boxes of QR codes: three finder patterns of one size in the corners of a right angle with equal sides."""
    for three in combinations(finders, 3):
        for corner in three:
            first, second = (finder for finder in three if finder is not corner)
            across = (first.x - corner.x, first.y - corner.y)
            down = (second.x - corner.x, second.y - corner.y)
            sides, lengths = [finder.side for finder in three], (hypot(*across), hypot(*down))
            is_square = max(lengths) < 1.35 * min(lengths) and max(sides) < 1.4 * min(sides) < min(lengths)
            if is_square and abs(across[0] * down[0] + across[1] * down[1]) < 0.25 * lengths[0] * lengths[1]:
                yield _box_of(corner, across, down)


def _box_of(corner: _Finder, across: Point, down: Point) -> tuple[Point, ...]:
    """The corners of a code whose corner pattern is here, and its others at the ends of two vectors."""
    half = corner.side / 2
    units = [tuple(part / hypot(*vector) * half for part in vector) for vector in (across, down)]
    (ux, uy), (vx, vy) = units
    ends = ((0.0, 0.0, -1, -1), (*across, 1, -1), (across[0] + down[0], across[1] + down[1], 1, 1), (*down, -1, 1))
    return tuple(
        (round(corner.x + x + i * ux + j * vx, 1), round(corner.y + y + i * uy + j * vy, 1)) for x, y, i, j in ends
    )
