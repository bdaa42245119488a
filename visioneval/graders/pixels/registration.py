"""Lays one image over another: same size, and a small shift or zoom of the whole image taken back.

A shift is taken back only when it explains the whole image. Where it would make any place match worse than
before, or where only one corner of the image speaks for it, something moved on its own, and that is for the
graders to find.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from visioneval.errors import GraderError, ImageError
from visioneval.graders.pixels.difference import Floats, Mask, Pixels, exceeds, luma
from visioneval.media.images import load_rgb

MAX_DISTORTION = 0.02
"""How far width / height may differ from the base's, as a share, before the image counts as distorted."""
MAX_MOVE = 0.02
"""The largest shift that is taken back, as a share of the longer side, and the largest zoom."""
MIN_MOVE_PX = 0.3
"""Shifts below this are left alone: resampling would blur more than it mends."""

_LEVELS = (96, 192, 384, 768)
_STEPS = 12
_LONGEST = 2048
_TILES_PX = (8, 32)
_WORSE = 3.0
_SPREAD = 0.4
_DIGITS = 4
"""Of a pixel, that a step of the registration keeps."""


@dataclass(frozen=True, slots=True)
class Registration:
    """How the image came to lie on the base. All pixels are the base's.

    ``scale_x`` and ``scale_y`` are base size / image size. A point of the base lies ``shift`` (right and down)
    from there in the scaled image, which is generated ``zoom`` times as large as the base, about its middle.
    ``skipped`` are the strips that have no counterpart in the image.
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
        """How many pixels of the base a pixel of the image covers, a side; 1 where the image is not smaller."""
        return max(1.0, self.scale_x, self.scale_y)

    def as_details(self) -> dict[str, Any]:
        """The same, rounded, for a record."""
        return {name: round(value, 5) if isinstance(value, float) else value for name, value in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class Laid:
    """A base and an image of the same ``(height, width)``; ``valid`` is False where the image has nothing.

    Where the image is smaller than the base, ``base`` has lost the detail that the image could not hold;
    ``whole_base`` still has it.
    """

    whole_base: Pixels
    base: Pixels
    output: Pixels
    valid: Mask
    registration: Registration


def read_pixels(path: Path) -> Pixels:
    """An image file as 8-bit sRGB, ``(height, width, 3)``.

    Raises ``GraderError``, with the path in it, where it does not decode.
    """
    try:
        return np.asarray(load_rgb(path))
    except ImageError as error:
        raise GraderError(f"{path}: {error}") from error


def lay_over(base: Pixels, image: Pixels, fixed: Mask | None = None) -> Laid:
    """Scales ``image`` to the size of ``base`` and takes back a small shift and zoom of the whole.

    ``fixed`` says which pixels of the base should not have moved (all, where it is ``None``); what lies outside
    it has no say. A distorted image is stretched to the base's size and not registered.
    """
    laid = scaled_over(base, image)
    if laid.registration.distorted:
        return laid
    fixed = laid.valid if fixed is None else fixed
    move, note = _find_move(*_at_working_size(laid, fixed))
    if move is None:
        return replace(laid, registration=replace(laid.registration, note=note))
    height, width = fixed.shape
    move = move * max(1.0, max(height, width) / _LONGEST)
    valid, skipped = _counterparts(move, fixed.shape)
    registration = replace(
        laid.registration,
        shift_x=float(move[0]),
        shift_y=float(move[2]),
        zoom_x=float(1 + move[1] / width),
        zoom_y=float(1 + move[3] / height),
        skipped=skipped,
    )
    return Laid(laid.whole_base, laid.base, _warp(laid.output, move), valid, registration)


def scaled_over(base: Pixels, image: Pixels) -> Laid:
    """Scales ``image`` to the size of ``base``, and no more."""
    height, width = base.shape[:2]
    own_height, own_width = image.shape[:2]
    shape = (own_width / own_height) / (width / height)
    registration = Registration(width / own_width, height / own_height, distorted=abs(shape - 1) > MAX_DISTORTION)
    valid = np.ones((height, width), np.bool_)
    if (own_height, own_width) == (height, width):
        return Laid(base, base, image, valid, registration)
    poorer = base
    if own_width * own_height < width * height:
        poorer = _resized(_resized(base, own_width, own_height), width, height)
    return Laid(base, poorer, _resized(image, width, height), valid, registration)


def _resized(image: Pixels, width: int, height: int) -> Pixels:
    smaller = width * height < image.shape[0] * image.shape[1]
    interpolation = cv2.INTER_AREA if smaller else cv2.INTER_CUBIC
    return cv2.resize(image, (width, height), interpolation=interpolation)  # type: ignore[return-value]


def _at_working_size(laid: Laid, fixed: Mask) -> tuple[Floats, Floats, Mask]:
    """Both as luma, and ``fixed``, at most ``_LONGEST`` pixels a side: enough to find a shift of a fraction of one."""
    height, width = fixed.shape
    scale = min(1.0, _LONGEST / max(height, width))
    if scale == 1.0:
        return luma(laid.base), luma(laid.output), fixed
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    base, image = (cv2.resize(each, size, interpolation=cv2.INTER_AREA) for each in (laid.base, laid.output))
    kept = cv2.resize(fixed.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST) > 0
    return luma(np.asarray(base, np.uint8)), luma(np.asarray(image, np.uint8)), kept


def _find_move(base: Floats, image: Floats, fixed: Mask) -> tuple[NDArray[np.float64] | None, str | None]:
    """The move of the whole image, or ``None`` and, where one was found and refused, why."""
    move = _estimate(base, image, fixed)
    height, width = base.shape
    reach = np.array([abs(move[0]) + abs(move[1]) / 2, abs(move[2]) + abs(move[3]) / 2])
    if reach.max() < MIN_MOVE_PX:
        return None, None
    zoom = np.array([move[1] / width, move[3] / height])
    found = (
        f"a shift of ({move[0]:.1f}, {move[2]:.1f}) px and a zoom of ({1 + zoom[0]:.3f}, {1 + zoom[1]:.3f}) "
        "were found but not taken back: "
    )
    if reach.max() > MAX_MOVE * max(height, width) or np.abs(zoom).max() > MAX_MOVE:
        return None, found + f"they are over {MAX_MOVE:.0%} of the image"
    before, after, known = _mismatch(base, image, fixed, move)
    if (known & exceeds(after, 1.5 * before + _WORSE)).any():
        return None, found + "other places had not moved with it"
    better = known & exceeds(before, 1.5 * after + _WORSE / 2)
    if not _is_spread(better):
        return None, found + "too little of the image shows them"
    return move, None


def _mismatch(base: Floats, image: Floats, fixed: Mask, move: NDArray[np.float64]) -> tuple[Any, Any, Mask]:
    """Mean absolute luma difference per tile, without and with the move, and which tiles hold enough to tell."""
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
    """Whether tiles that speak for a move lie apart by a good part of the image, both ways."""
    rows, columns = np.nonzero(tiles)
    if not rows.size:
        return False
    tall = (np.ptp(rows) + 1) / tiles.shape[0]
    wide = (np.ptp(columns) + 1) / tiles.shape[1]
    return bool(tall >= _SPREAD and wide >= _SPREAD)


def _estimate(base: Floats, image: Floats, fixed: Mask) -> NDArray[np.float64]:
    """``(shift x, stretch x, shift y, stretch y)`` in pixels of the base, a stretch over the whole side.

    Iteratively reweighted Gauss-Newton from coarse to fine (Lucas and Kanade 1981; Black and Anandan 1996), on
    band-passed luma, so that a drift of colour has no say and places that changed lose theirs.
    """
    move = np.zeros(4)
    longest = max(base.shape)
    for level in _LEVELS:
        scale = min(1.0, level / longest)
        size = (max(8, round(base.shape[1] * scale)), max(8, round(base.shape[0] * scale)))
        small = [cv2.resize(each, size, interpolation=cv2.INTER_AREA) for each in (base, image)]
        weight = exceeds(cv2.resize(fixed.astype(np.float32), size, interpolation=cv2.INTER_AREA), 0.99)
        ratio = np.array([size[0] / base.shape[1]] * 2 + [size[1] / base.shape[0]] * 2)
        move = _refine(_band_passed(small[0]), _band_passed(small[1]), weight, move * ratio) / ratio
        if scale == 1.0:
            break
    return move


def _refine(base: Floats, image: Floats, weight: Mask, move: NDArray[np.float64]) -> NDArray[np.float64]:
    height, width = base.shape
    across = ((np.arange(width) + 0.5) / width - 0.5)[None, :].astype(np.float32)
    down = ((np.arange(height) + 0.5) / height - 0.5)[:, None].astype(np.float32)
    for _ in range(_STEPS):
        warped = _warp(image, move)
        inside, _ = _counterparts(move, (height, width))
        use = weight & inside
        if use.sum() < 64:
            break
        slope = (base + warped) / 2
        gx = cv2.Sobel(slope, cv2.CV_32F, 1, 0, scale=1 / 8)
        gy = cv2.Sobel(slope, cv2.CV_32F, 0, 1, scale=1 / 8)
        residual = (warped - base)[use]
        jacobian = np.stack([gx[use], (gx * across)[use], gy[use], (gy * down)[use]])
        spread = 1.4826 * float(np.median(np.abs(residual))) + 0.5
        trust = 1 / (1 + np.square(residual / (2 * spread))) ** 2
        # The order of such sums is the processor's own. In 64 bits that is far below the digits that the step keeps.
        weighted, jacobian = (jacobian * trust).astype(np.float64), jacobian.astype(np.float64)
        normal = weighted @ jacobian.T
        normal += np.eye(4) * (1e-4 * np.trace(normal) + 1e-6)
        step = np.linalg.solve(normal, weighted @ residual).round(_DIGITS)
        move = move - step
        if np.abs(step).max() < 0.005:
            break
    return move


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
    """Which pixels of the base the moved image covers, and how many pixels each side lost."""
    valid = np.zeros(shape, np.bool_)
    kept = []
    for size, shift, stretch in ((shape[1], move[0], move[1]), (shape[0], move[2], move[3])):
        place = np.arange(size) + shift + stretch * ((np.arange(size) + 0.5) / size - 0.5)
        inside = np.flatnonzero((place > -0.5) & (place < size - 0.5))
        kept.append((int(inside[0]), int(inside[-1]) + 1) if inside.size else (0, 0))
    (left, right), (top, bottom) = kept
    valid[top:bottom, left:right] = True
    return valid, {"left": left, "top": top, "right": shape[1] - right, "bottom": shape[0] - bottom}
