"""Perturbations of pixels. Every function is pure: the same image, strength and generator give the same result.

Where no unit is given, a strength is a share of the shorter side of the image, 0 to 1.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from PIL import Image, ImageDraw

from visioneval.media.opencv import portable_opencv
from visioneval.probing.subject import Box, CannotPerturbError, Mask, Perturbed, Pixels, Random
from visioneval.providers.mock.text import font

CONTRAST = 96
"""Levels of 255 between a patch or stroke and its surroundings."""
BACKGROUND_LEVELS = 16
"""Pixels within this many levels of the border's median color are background."""
MIN_BACKGROUND = 0.05
"""The smallest share of an image that counts as a background."""
CANDIDATES = 48
"""Places that are tried to find an object, which is the place with the most detail."""
MIN_DETAIL = 8.0
"""The standard deviation of luma, in levels, below which a place shows no object."""


def patch(image: Pixels, side: float, random: Random, region: Mask) -> Perturbed:
    """A square of ``side`` pixels in a color that differs clearly from its surroundings."""
    box = free_box(region, round(side), round(side), random)
    perturbed = image.copy()
    _cut(perturbed, box)[..., :3] = _contrasting(_cut(image, box))
    return Perturbed(perturbed, box)


def stroke(image: Pixels, width: float, random: Random, region: Mask) -> Perturbed:
    """A slanted line, ``width`` pixels wide and as long as a quarter of the shorter side."""
    length = max(8, _shorter(image) // 4)
    box = free_box(region, length, max(4, length // 3), random)
    left, top, box_width, height = box
    perturbed = image.copy()
    line = np.zeros(image.shape[:2], np.uint8)
    cv2.line(line, (left, top + height - 1), (left + box_width - 1, top), 1, max(1, round(width)))
    perturbed[..., :3][line.astype(bool) & region] = _contrasting(_cut(image, box))
    return Perturbed(perturbed, box)


def recolor(image: Pixels, delta_e: float, random: Random, region: Mask) -> Perturbed:
    """A square of a sixth of the shorter side, shifted in color by ``delta_e`` (CIE76)."""
    side = max(4, _shorter(image) // 6)
    box = free_box(region, side, side, random)
    perturbed = image.copy()
    part = _cut(perturbed, box)
    part[..., :3] = _shifted_color(part[..., :3], delta_e, random)
    return Perturbed(perturbed, box)


def repaint_background(image: Pixels, delta_e: float, random: Random, region: Mask) -> Perturbed:
    """The background, all that is like the border, in a color that differs by ``delta_e`` (CIE76)."""
    rgb = image[..., :3]
    border = np.concatenate([rgb[0], rgb[-1], rgb[:, 0], rgb[:, -1]])
    median = np.median(border, axis=0)
    background = (np.abs(rgb.astype(np.int16) - median) <= BACKGROUND_LEVELS).all(axis=2) & region
    if image.shape[2] == 4:
        background &= image[..., 3] >= 128  # at least half opaque
    if background.mean() < MIN_BACKGROUND:
        raise CannotPerturbError("it has no plain background")
    perturbed = image.copy()
    colors = np.ascontiguousarray(rgb[background][:, None])
    perturbed[background, :3] = _shifted_color(colors, delta_e, random)[:, 0]
    return Perturbed(perturbed)


@portable_opencv()
def blur(image: Pixels, sigma: float, _random: Random, _region: Mask) -> Perturbed:
    """A Gaussian blur of the whole image, ``sigma`` in pixels."""
    return Perturbed(np.asarray(cv2.GaussianBlur(image, (0, 0), sigma), dtype=np.uint8))


def noise(image: Pixels, sigma: float, random: Random, _region: Mask) -> Perturbed:
    """Gaussian noise on the whole image, ``sigma`` in levels of 255."""
    perturbed = image.copy()
    noisy = image[..., :3] + random.normal(0, sigma, image[..., :3].shape).astype(np.float32)
    perturbed[..., :3] = np.clip(np.rint(noisy), 0, 255).astype(np.uint8)
    return Perturbed(perturbed)


def shift(image: Pixels, share: float, random: Random, _region: Mask) -> Perturbed:
    """The whole image moved sideways or up and down, with its edge repeated."""
    distance = share * _shorter(image)
    dx, dy = ((distance, 0), (-distance, 0), (0, distance), (0, -distance))[int(random.integers(4))]
    return Perturbed(_warped(image, np.array([[1, 0, dx], [0, 1, dy]], np.float64)))


def zoom(image: Pixels, share: float, _random: Random, _region: Mask) -> Perturbed:
    """The whole image enlarged around its center by ``share``, and cropped to its size."""
    height, width = image.shape[:2]
    scale = 1 + share
    return Perturbed(
        _warped(image, np.array([[scale, 0, (1 - scale) * width / 2], [0, scale, (1 - scale) * height / 2]]))
    )


def flip(image: Pixels, _strength: float, _random: Random, _region: Mask) -> Perturbed:
    """The image mirrored left to right."""
    return Perturbed(np.ascontiguousarray(image[:, ::-1]))


def erase(image: Pixels, share: float, random: Random, region: Mask) -> Perturbed:
    """An object erased: painted over from its surroundings, or made transparent in an image with transparency."""
    side = max(6, round(share * _shorter(image)))
    box = _detailed_box(image, region, side, random)
    return Perturbed(_erased(image, box), box)


def move(image: Pixels, share: float, random: Random, region: Mask) -> Perturbed:
    """An object a tenth of the shorter side in size, moved sideways by ``share``."""
    side, distance = max(6, _shorter(image) // 10), max(1, round(share * _shorter(image)))
    left, top, width, height = _detailed_box(image, region, side, random, extra=distance)
    perturbed = _erased(image, (left, top, side, height))
    perturbed[top : top + height, left + distance : left + distance + side] = image[
        top : top + height, left : left + side
    ]
    return Perturbed(perturbed, (left, top, width, height))


@portable_opencv()
def warp(image: Pixels, share: float, random: Random, region: Mask) -> Perturbed:
    """A place with much detail as large as a face, a seventh of the shorter side, pulled by up to ``share``."""
    side = max(8, _shorter(image) // 7)
    box = _detailed_box(image, region, side, random)
    left, top, width, height = box
    rows, columns = np.mgrid[:height, :width].astype(np.float32)
    distance = np.hypot(columns - (width - 1) / 2, rows - (height - 1) / 2) / (side / 2)
    pull = share * _shorter(image) * np.square(np.maximum(0, 1 - np.square(distance)))
    angle = random.uniform(0, 2 * np.pi)
    perturbed = image.copy()
    perturbed[top : top + height, left : left + width] = cv2.remap(
        np.ascontiguousarray(_cut(image, box)),
        (columns + pull * np.cos(angle)).astype(np.float32),
        (rows + pull * np.sin(angle)).astype(np.float32),
        cv2.INTER_CUBIC,
        borderMode=cv2.BORDER_REPLICATE,
    )
    return Perturbed(perturbed, box)


def letter(image: Pixels, share: float, random: Random, region: Mask) -> Perturbed:
    """A letter of this size in a color that differs clearly from its surroundings."""
    side = max(8, round(share * _shorter(image)))
    box = free_box(region, side, side, random)
    left, top, _, _ = box
    ink = Image.new("L", (side, side), 0)
    glyph = "AKRS8"[int(random.integers(5))]
    ImageDraw.Draw(ink).text((side / 2, side / 2), glyph, 255, font(side), "mm")
    opacity = np.asarray(ink, np.float32)[..., None] / 255
    part = _cut(image, box)
    perturbed = image.copy()
    mixed = part[..., :3] * (1 - opacity) + _contrasting(part).astype(np.float32) * opacity
    perturbed[top : top + side, left : left + side, :3] = np.rint(mixed).astype(np.uint8)
    return Perturbed(perturbed, box)


def watermark(image: Pixels, opacity: float, random: Random, region: Mask) -> Perturbed:
    """The word SAMPLE in slanted rows over the whole image, 0 to 1 opaque."""
    height, width = image.shape[:2]
    size = max(10, _shorter(image) // 9)
    side = int(np.hypot(width, height)) + 2 * size
    ink = Image.new("L", (side, side), 0)
    pen = ImageDraw.Draw(ink)
    offset = int(random.integers(size))
    for top in range(0, side, size * 2):
        pen.text((offset - (top % (4 * size)), top), "SAMPLE  " * (side // size + 1), 255, font(size))
    ink = ink.rotate(30, Image.Resampling.BILINEAR)
    left, top = (side - width) // 2, (side - height) // 2
    share = np.asarray(ink.crop((left, top, left + width, top + height)), np.float32)[..., None] / 255 * opacity
    share *= region[..., None]
    color = 255.0 if float(image[..., :3].mean()) < 128 else 0.0
    perturbed = image.copy()
    perturbed[..., :3] = np.rint(image[..., :3] * (1 - share) + color * share).astype(np.uint8)
    return Perturbed(perturbed)


def flatten(image: Pixels, _strength: float, _random: Random, _region: Mask) -> Perturbed:
    """An image with transparency, flattened on white."""
    if image.shape[2] == 3:
        raise CannotPerturbError("it has no transparent pixels")
    alpha = image[..., 3:].astype(np.float32) / 255
    return Perturbed(np.rint(image[..., :3] * alpha + 255 * (1 - alpha)).astype(np.uint8))


def resize(image: Pixels, share: float, _random: Random, _region: Mask) -> Perturbed:
    """The image smaller by ``share`` of each side, in the same aspect ratio."""
    height, width = image.shape[:2]
    size = max(1, round(width * (1 - share))), max(1, round(height * (1 - share)))
    return Perturbed(np.asarray(Image.fromarray(image).resize(size, Image.Resampling.LANCZOS), dtype=np.uint8))


def blank(image: Pixels, _strength: float, _random: Random, _region: Mask) -> Perturbed:
    """One flat color, the mean of the image."""
    perturbed = np.empty_like(image)
    perturbed[:] = np.rint(image.reshape(-1, image.shape[2]).mean(axis=0)).astype(np.uint8)
    return Perturbed(perturbed)


def _shorter(image: Pixels) -> int:
    return int(min(image.shape[:2]))


def _cut(image: Pixels, box: Box) -> Pixels:
    left, top, width, height = box
    return image[top : top + height, left : left + width]


def _free_positions(region: Mask, width: int, height: int) -> np.ndarray[Any, Any]:
    """The left top corners, as flat indices, of all boxes of this size that lie in the region."""
    rows, columns = region.shape[0] - height + 1, region.shape[1] - width + 1
    if rows < 1 or columns < 1:
        raise CannotPerturbError("it is too small")
    sums = cv2.integral(region.astype(np.uint8))
    inside = sums[height:, width:] - sums[:-height, width:] - sums[height:, :-width] + sums[:-height, :-width]
    positions = np.flatnonzero(inside == width * height)
    if not positions.size:
        raise CannotPerturbError("it has no free place outside the mask")
    return positions


def free_box(region: Mask, width: int, height: int, random: Random) -> Box:
    """A random box of this size that lies in the region."""
    positions = _free_positions(region, width, height)
    top, left = divmod(int(positions[random.integers(positions.size)]), region.shape[1] - width + 1)
    return left, top, width, height


def _detailed_box(image: Pixels, region: Mask, side: int, random: Random, extra: int = 0) -> Box:
    """A box with much detail in its left ``side`` columns; it is ``extra`` wider than it is high."""
    positions = _free_positions(region, side + extra, side)
    chosen = random.choice(positions, min(CANDIDATES, positions.size), replace=False)
    columns = region.shape[1] - side - extra + 1
    corners = [divmod(int(position), columns) for position in chosen]

    details = [float(image[top : top + side, left : left + side].mean(axis=2).std()) for top, left in corners]
    best = int(np.argmax(details))
    if details[best] < MIN_DETAIL:
        raise CannotPerturbError("it shows no object in a free place")
    top, left = corners[best]
    return left, top, side + extra, side


def _contrasting(part: Pixels) -> Pixels:
    """A color ``CONTRAST`` levels brighter or darker than the mean of these pixels."""
    mean = part[..., :3].reshape(-1, 3).mean(axis=0)
    step = CONTRAST if mean.mean() < 128 else -CONTRAST
    return np.asarray(np.clip(np.rint(mean + step), 0, 255), dtype=np.uint8)


@portable_opencv()
def _shifted_color(rgb: Pixels, delta_e: float, random: Random) -> Pixels:
    """RGB pixels moved by ``delta_e`` in CIELAB, in a random direction in which sRGB has room."""
    lab = cv2.cvtColor(rgb.astype(np.float32) / 255, cv2.COLOR_RGB2LAB)
    best, reached = rgb, 0.0
    for axis in random.permutation(6):
        step = np.zeros(3, np.float32)
        step[axis % 3] = delta_e if axis < 3 else -delta_e
        shifted = cv2.cvtColor(lab + step, cv2.COLOR_LAB2RGB)
        moved = np.clip(np.rint(shifted * 255), 0, 255).astype(np.uint8)
        change = cv2.cvtColor(moved.astype(np.float32) / 255, cv2.COLOR_RGB2LAB) - lab
        mean = float(np.sqrt((change**2).sum(axis=2)).mean())
        if abs(mean - delta_e) < abs(reached - delta_e):
            best, reached = moved, mean
        if reached >= 0.9 * delta_e:
            return best
    if reached < 0.5 * delta_e:
        raise CannotPerturbError("its colors leave no room for this change")
    return best


@portable_opencv()
def _erased(image: Pixels, box: Box) -> Pixels:
    """The image without what is in the box."""
    perturbed = image.copy()
    if image.shape[2] == 4:
        _cut(perturbed, box)[..., 3] = 0
        return perturbed
    left, top, width, height = box
    margin = 12
    x, y = max(0, left - margin), max(0, top - margin)
    part = np.ascontiguousarray(image[y : top + height + margin, x : left + width + margin])
    hole = np.zeros(part.shape[:2], np.uint8)
    hole[top - y : top - y + height, left - x : left - x + width] = 255
    perturbed[y : top + height + margin, x : left + width + margin] = cv2.inpaint(part, hole, 5, cv2.INPAINT_TELEA)
    return perturbed


@portable_opencv()
def _warped(image: Pixels, matrix: Any) -> Pixels:
    height, width = image.shape[:2]
    return np.asarray(
        cv2.warpAffine(image, matrix, (width, height), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE),
        dtype=np.uint8,
    )
