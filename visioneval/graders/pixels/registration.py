"""Aligns an image with another: scales it, and undoes a small shift or zoom of the whole image.

A shift is undone only if it explains the whole image. If undoing it would make any area match worse, or if only
one corner of the image supports it, a part of the image moved, and the graders must find that. A larger shift or zoom
of the whole image is measured, and not undone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from visioneval.errors import GraderError, ImageError
from visioneval.graders.pixels import RegisteringGrader
from visioneval.graders.pixels.color import Floats, Mask, Pixels, comparable, percent
from visioneval.graders.pixels.difference import SCORE_DIGITS, changed_visibly, different, exceeds, luma
from visioneval.media.images import color_space_of, load_image

MAX_DISTORTION = 0.02
"""How far width / height may differ from the base's, as a share, before the image counts as distorted."""
MAX_MOVE = 0.02
"""The largest shift that is undone, as a share of the longer side, and the largest zoom."""
MIN_MOVE_PX = 0.3
"""Smaller shifts are ignored: resampling would blur more than it corrects."""

_LEVELS = (96, 192, 384, 768)
_STEPS = 12
_LONGEST = 2048
_TILES_PX = (8, 32)
_WORSE = 3.0
_SPREAD = 0.4
_RARELY = 0.1
"""The share of areas that a move beyond ``MAX_MOVE`` may make worse, of those that it makes better: it is only
measured, and a redraw differs in single areas anyway."""
_DIGITS = 4
"""Decimals of a pixel to which each registration step is rounded."""


@dataclass(frozen=True, slots=True)
class Registration:
    """The alignment of an image with the base. All pixels are pixels of the base.

    ``scale_x`` and ``scale_y`` are base size / image size. A point of the base is moved by ``shift`` (right
    and down) in the scaled image, which is zoomed by ``zoom`` around its center; this was undone unless ``note``
    states why not. ``skipped`` are the strips of the base without a counterpart in the image.
    """

    scale_x: float = 1.0
    scale_y: float = 1.0
    distorted: bool = False
    shift_x: float = 0.0
    shift_y: float = 0.0
    zoom_x: float = 1.0
    zoom_y: float = 1.0
    skipped: Mapping[str, int] | None = None
    note: str | None = None

    @property
    def coarseness(self) -> float:
        """The size of an image pixel in base pixels, per side; 1 if the image is not smaller."""
        return max(1.0, self.scale_x, self.scale_y)

    def shift(self, size: tuple[int, int]) -> float:
        """The length of the shift as a share of the shorter side of the base, whose size in pixels is given."""
        return round(math.hypot(self.shift_x, self.shift_y) / min(size), SCORE_DIGITS)

    @property
    def magnification(self) -> float:
        """The factor, 1 or more, by which the whole image was enlarged or reduced, on the axis where it is larger."""
        return round(max(max(zoom, 1 / zoom) for zoom in (self.zoom_x, self.zoom_y)), SCORE_DIGITS)

    def scores(self, config: RegisteringGrader, size: tuple[int, int]) -> dict[str, float]:
        """The metrics of the grader's ``moves``; empty for a distorted image, which was not registered."""
        return {} if self.distorted else dict(zip(config.moves, (self.shift(size), self.magnification), strict=True))

    def failures(self, config: RegisteringGrader, size: tuple[int, int]) -> Iterator[str]:
        """The limits of the grader that the shift or the zoom exceeds, in words."""
        if self.shift(size) > config.max_shift:
            yield (
                f"the whole image moved by {percent(self.shift(size))} of its shorter side ({self.shift_x:.1f} px to"
                f" the right, {self.shift_y:.1f} px down), above the limit of {percent(config.max_shift)}"
            )
        if self.magnification > config.max_magnification:
            yield (
                f"the whole image was enlarged or reduced by a factor of {self.magnification:g}, above the limit of "
                f"{config.max_magnification:g}"
            )

    def as_details(self) -> dict[str, Any]:
        """The same, rounded, for a record."""
        values = ((name, getattr(self, name)) for name in _FIELDS)  # asdict is ten times as slow
        return {name: round(value, 5) if isinstance(value, float) else value for name, value in values}


_FIELDS = tuple(item.name for item in fields(Registration))


@dataclass(frozen=True, slots=True)
class AlignedPair:
    """A base and an image of the same ``(height, width)``, as ``comparable`` returns them.

    ``valid`` is False where the image has no pixels.

    If the image is smaller than the base, ``base`` is reduced to the detail that the image can have;
    ``whole_base`` is the original.
    """

    whole_base: Pixels
    base: Pixels
    output: Pixels
    valid: Mask
    registration: Registration

    def changed_visibly(self, region: Mask) -> Mask:
        """The visibly changed pixels of ``region``."""
        coarseness = self.registration.coarseness
        return changed_visibly(self.base, self.output, region, grainy=self.whole_base, coarseness=coarseness)


@contextmanager
def decoded(path: Path) -> Iterator[None]:
    """Raises ``GraderError`` with the path if an image does not decode."""
    try:
        yield
    except ImageError as error:
        raise GraderError(f"{path}: {error}") from error


def read_pixels(path: Path, *, as_stored: bool = False) -> Pixels:
    """An image file as 8-bit sRGB, ``(height, width, 3)``; RGBA, ``(height, width, 4)``, if it has transparency.

    With ``as_stored``, in the color space of the file. Raises ``GraderError`` with the path if it does not decode.
    """
    with decoded(path):
        return np.asarray(load_image(path, as_stored=as_stored))


@dataclass(frozen=True, slots=True)
class ColorSpaces:
    """The names of the color spaces of two compared files, and whether these are the same."""

    base: str
    output: str
    are_same: bool

    def failure(self, what: str) -> str | None:
        """That they differ, in words; ``what`` is the base."""
        return None if self.are_same else f"the output's color space is {self.output}, the {what}'s {self.base}"

    def as_details(self) -> dict[str, Any]:
        """The same for a record; empty where both are sRGB, as almost everywhere."""
        names = {"base": self.base, "output": self.output}
        return {} if set(names.values()) == {"sRGB"} else {"color_spaces": names}


def read_color_spaces(base: Path, output: Path) -> ColorSpaces:
    """The color spaces of two files. Raises ``GraderError`` with the path if one does not decode."""
    spaces = []
    for path in (base, output):
        with decoded(path):
            spaces.append(color_space_of(path))
    first, second = spaces
    return ColorSpaces(first.name, second.name, first.is_same(second))


def align(base: Pixels, image: Pixels, fixed: Mask | None = None) -> AlignedPair:
    """Scales ``image`` to the size of ``base`` and undoes a small shift and zoom of the whole image.

    ``fixed`` marks the pixels of the base that should not have moved (default: all); others are
    ignored. A distorted image is stretched to the base's size and not registered.
    """
    aligned = scale_to_base(base, image)
    if aligned.registration.distorted:
        return aligned
    fixed = aligned.valid if fixed is None else fixed
    differs = different(aligned.base, aligned.output)
    if not (differs & fixed).any():
        return aligned
    move, note = _find_move(*_at_working_size(aligned, fixed), may_be_whole=_may_be_spread(differs))
    registration = replace(aligned.registration, note=note)
    if move is None:
        return replace(aligned, registration=registration)
    height, width = fixed.shape
    move = move * max(1.0, max(height, width) / _LONGEST)
    registration = replace(
        registration,
        shift_x=float(move[0]),
        shift_y=float(move[2]),
        zoom_x=float(1 + move[1] / width),
        zoom_y=float(1 + move[3] / height),
    )
    if note:
        return replace(aligned, registration=registration)
    valid, skipped = _counterparts(move, fixed.shape)
    registration = replace(registration, skipped=skipped)
    return AlignedPair(aligned.whole_base, aligned.base, _warp(aligned.output, move), valid, registration)


def scale_to_base(base: Pixels, image: Pixels) -> AlignedPair:
    """Scales ``image`` to the size of ``base``, without registration. Both are RGB or straight RGBA."""
    base, image = comparable(base, image)
    height, width = base.shape[:2]
    image_height, image_width = image.shape[:2]
    shape = (image_width / image_height) / (width / height)
    registration = Registration(width / image_width, height / image_height, distorted=abs(shape - 1) > MAX_DISTORTION)
    valid = np.ones((height, width), np.bool_)
    if (image_height, image_width) == (height, width):
        return AlignedPair(base, base, image, valid, registration)
    reduced = base
    if image_width * image_height < width * height:
        reduced = _resized(_resized(base, image_width, image_height), width, height)
    return AlignedPair(base, reduced, _resized(image, width, height), valid, registration)


def _resized(image: Pixels, width: int, height: int) -> Pixels:
    smaller = width * height < image.shape[0] * image.shape[1]
    interpolation = cv2.INTER_AREA if smaller else cv2.INTER_CUBIC
    return cv2.resize(image, (width, height), interpolation=interpolation)  # type: ignore[return-value]


def _at_working_size(aligned: AlignedPair, fixed: Mask) -> tuple[Floats, Floats, Mask]:
    """Both as one channel, and ``fixed``, at most ``_LONGEST`` pixels a side: enough for sub-pixel shifts."""
    height, width = fixed.shape
    scale = min(1.0, _LONGEST / max(height, width))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    base, image = (cv2.resize(pixels, size, interpolation=cv2.INTER_AREA) for pixels in (aligned.base, aligned.output))
    fixed_small = cv2.resize(fixed.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST) > 0
    return _outlines(np.asarray(base, np.uint8)), _outlines(np.asarray(image, np.uint8)), fixed_small


def _outlines(pixels: Pixels) -> Floats:
    """Luma. Transparent pixels get a value below black (minus half of white), so that all content stands out."""
    if pixels.shape[2] == 3:
        return luma(pixels)
    return luma(np.ascontiguousarray(pixels[..., :3])) + pixels[..., 3].astype(np.float32) / np.float32(2)


def _find_move(
    base: Floats, image: Floats, fixed: Mask, *, may_be_whole: bool
) -> tuple[NDArray[np.float64] | None, str | None]:
    """The move of the whole image, or ``None``; and why it is not undone, or was rejected.

    Without ``may_be_whole`` it will be rejected, and a coarse estimate shows whether there is one to report.
    """
    if not may_be_whole and _reach(_estimate(base, image, fixed, _LEVELS[:2])).max() < MIN_MOVE_PX:
        return None, None
    move = _estimate(base, image, fixed, _LEVELS)
    height, width = base.shape
    reach = _reach(move)
    if reach.max() < MIN_MOVE_PX:
        return None, None
    zoom = np.array([move[1] / width, move[3] / height])
    description = (
        f"a shift of ({move[0]:.1f}, {move[2]:.1f}) px and a zoom of ({1 + zoom[0]:.3f}, {1 + zoom[1]:.3f}) "
        "were detected but not corrected: "
    )
    before, after, measurable = _mismatch(base, image, fixed, move)
    worse = measurable & exceeds(after, 1.5 * before + _WORSE)
    better = measurable & exceeds(before, 1.5 * after + _WORSE / 2)
    if reach.max() > MAX_MOVE * max(height, width) or np.abs(zoom).max() > MAX_MOVE:
        is_whole = _is_spread(better) and worse.sum() <= _RARELY * better.sum()
        return move if is_whole else None, description + f"they exceed {MAX_MOVE:.0%} of the image"
    if worse.any():
        return None, description + "other areas did not move"
    if not _is_spread(better):
        return None, description + "too little of the image supports them"
    return move, None


def _reach(move: NDArray[np.float64]) -> NDArray[np.float64]:
    """The farthest that a move takes any point, in pixels to the side and up or down."""
    return np.array([abs(move[0]) + abs(move[1]) / 2, abs(move[2]) + abs(move[3]) / 2])


def _mismatch(base: Floats, image: Floats, fixed: Mask, move: NDArray[np.float64]) -> tuple[Any, Any, Mask]:
    """Mean absolute luma difference per tile, without and with the move, and which tiles have enough pixels."""
    inside, _ = _counterparts(move, fixed.shape)
    weight = (fixed & inside).astype(np.float32)
    smooth = cv2.GaussianBlur(base, (0, 0), 1.5)
    tile = max(_TILES_PX[0], min(_TILES_PX[1], min(base.shape) // 8))
    size = (max(1, base.shape[1] // tile), max(1, base.shape[0] // tile))

    share = cv2.resize(weight, size, interpolation=cv2.INTER_AREA)
    still, moved = (
        cv2.resize(np.abs(cv2.GaussianBlur(other, (0, 0), 1.5) - smooth) * weight, size, interpolation=cv2.INTER_AREA)
        / np.maximum(share, 1e-3)
        for other in (image, _warp(image, move))
    )
    return still, moved, exceeds(share, 0.25)


def _is_spread(tiles: Mask) -> bool:
    """Whether the tiles that support a move span a large part of the image in both directions."""
    rows, columns = np.nonzero(tiles)
    if not rows.size:
        return False
    tall = (np.ptp(rows) + 1) / tiles.shape[0]
    wide = (np.ptp(columns) + 1) / tiles.shape[1]
    return bool(tall >= _SPREAD and wide >= _SPREAD)


def _may_be_spread(differs: Mask) -> bool:
    """Whether tiles that match better after a move can satisfy ``_is_spread``: they touch pixels that differ."""
    margin = 2 * (_TILES_PX[1] + 8) * max(1.0, max(differs.shape) / _LONGEST)
    return all(
        np.ptp(np.flatnonzero(differs.any(axis=axis))) + 1 + margin >= _SPREAD * differs.shape[1 - axis]
        for axis in (0, 1)
    )


def _estimate(base: Floats, image: Floats, fixed: Mask, levels: tuple[int, ...]) -> NDArray[np.float64]:
    """``(shift x, stretch x, shift y, stretch y)`` in pixels of the base, a stretch over the whole side.

    Iteratively reweighted Gauss-Newton from coarse to fine (Lucas and Kanade 1981; Black and Anandan 1996), on
    band-passed luma, so that color drift is ignored and changed areas lose their weight.
    """
    move = np.zeros(4)
    longest = max(base.shape)
    whole = bool(fixed.all())
    for level in levels:
        scale = min(1.0, level / longest)
        size = (max(8, round(base.shape[1] * scale)), max(8, round(base.shape[0] * scale)))
        pair = [cv2.resize(channel, size, interpolation=cv2.INTER_AREA) for channel in (base, image)]
        weight = np.ones(size[::-1], np.bool_)
        if not whole:
            weight = exceeds(cv2.resize(fixed.astype(np.float32), size, interpolation=cv2.INTER_AREA), 0.99)
        ratio = np.array([size[0] / base.shape[1]] * 2 + [size[1] / base.shape[0]] * 2)
        move = _refine(_band_passed(pair[0]), _band_passed(pair[1]), weight, move * ratio) / ratio
        if scale == 1.0:
            break
    return move


def _refine(base: Floats, image: Floats, weight: Mask, move: NDArray[np.float64]) -> NDArray[np.float64]:
    height, width = base.shape
    for _ in range(_STEPS):
        warped = _warp(image, move)
        inside, _ = _counterparts(move, (height, width))
        use = weight & inside
        if use.sum() < 64:
            break
        residual = warped - base
        spread = 1.4826 * float(np.median(np.abs(residual)[use])) + 0.5
        trust = use / np.square(1 + np.square(residual / (2 * spread)))
        normal, target = _normal_equations((base + warped) / 2, residual, trust)
        normal += np.eye(4) * (1e-4 * np.trace(normal) + 1e-6)
        step = np.linalg.solve(normal, target).round(_DIGITS)
        move = move - step
        if np.abs(step).max() < 0.005:
            break
    return move


def _normal_equations(slope: Floats, residual: Floats, trust: Floats) -> tuple[Any, Any]:
    """The weighted normal equations of a step, of 4 x 4 and 4 values, with the gradients of ``slope``.

    A stretch is a shift that grows along its side, so all sums are sums of columns or rows, weighted by place.
    """
    height, width = slope.shape
    # The order of these sums depends on the processor. In 64 bits, the effect is far below a step's rounding.
    across, down = ((np.arange(size) + 0.5) / size - 0.5 for size in (width, height))
    gx = cv2.Sobel(slope, cv2.CV_32F, 1, 0, scale=1 / 8)
    gy = cv2.Sobel(slope, cv2.CV_32F, 0, 1, scale=1 / 8)
    tx, ty = gx * trust, gy * trust
    xx, both, x_target = _sums(tx * gx, 0), tx * gy, _sums(tx * residual, 0)
    yy, y_target = _sums(ty * gy, 1), _sums(ty * residual, 1)
    xy, xy_down = _sums(both, 0), _sums(both * down[:, None].astype(np.float32), 0)
    upper = [
        [xx.sum(), xx @ across, xy.sum(), xy_down.sum()],
        [0, xx @ across**2, xy @ across, xy_down @ across],
        [0, 0, yy.sum(), yy @ down],
        [0, 0, 0, yy @ down**2],
    ]
    normal = np.triu(upper) + np.triu(upper, 1).T
    return normal, np.array([x_target.sum(), x_target @ across, y_target.sum(), y_target @ down])


def _sums(values: Any, axis: int) -> NDArray[np.float64]:
    """The sum of each column (axis 0) or row, in 64 bits."""
    return np.asarray(cv2.reduce(values, axis, cv2.REDUCE_SUM, dtype=cv2.CV_64F), np.float64).ravel()


def _band_passed(grey: Any) -> Floats:
    passed: Floats = (cv2.GaussianBlur(grey, (0, 0), 1.0) - cv2.GaussianBlur(grey, (0, 0), 6.0)).astype(np.float32)
    return passed


def _warp(image: Any, move: NDArray[np.float64]) -> Any:
    height, width = image.shape[:2]
    zoom_x, zoom_y = move[1] / width, move[3] / height
    matrix = np.array(
        [[1 + zoom_x, 0, move[0] - zoom_x * (width - 1) / 2], [0, 1 + zoom_y, move[2] - zoom_y * (height - 1) / 2]]
    )
    flags = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
    return cv2.warpAffine(image, matrix, (width, height), flags=flags, borderMode=cv2.BORDER_REPLICATE)


def _counterparts(move: NDArray[np.float64], shape: tuple[int, ...]) -> tuple[Mask, dict[str, int]]:
    """The pixels of the base that the moved image covers, and the pixels lost on each side."""
    valid = np.zeros(shape, np.bool_)
    ranges = []
    for size, shift, stretch in ((shape[1], move[0], move[1]), (shape[0], move[2], move[3])):
        position = np.arange(size) + shift + stretch * ((np.arange(size) + 0.5) / size - 0.5)
        inside = np.flatnonzero((position > -0.5) & (position < size - 0.5))
        ranges.append((int(inside[0]), int(inside[-1]) + 1) if inside.size else (0, 0))
    (left, right), (top, bottom) = ranges
    valid[top:bottom, left:right] = True
    return valid, {"left": left, "top": top, "right": shape[1] - right, "bottom": shape[0] - bottom}
