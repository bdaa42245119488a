"""What is added to an image though its case does not expect it: a color off the palette, and codes. All are pure."""

from __future__ import annotations

from math import pi

import cv2
import numpy as np

from visioneval.graders.palette import levels
from visioneval.graders.pixels.color import ciede2000, to_lab
from visioneval.media.opencv import portable_opencv
from visioneval.probing.pixels import free_box
from visioneval.probing.subject import CannotPerturbError, Perturbed, Pixels, Random, Subject

CONTENT = "https://example.com/added"
"""What the added QR code has."""
FAR = 30.0
"""How far (CIEDE2000) the added color is from each color of the palette, at least."""
_QUIET = 4
"""Modules of free space around a QR code (ISO/IEC 18004)."""
_CORNER = 8
"""Modules of each side of a corner of a QR code, with the light ones around its finder pattern."""


@portable_opencv()
def off_palette(subject: Subject, share: float, random: Random) -> Perturbed:
    """A disk of this share of the image, in a color far from all of its case's palette."""
    if subject.expect.palette is None:
        raise CannotPerturbError("its case has no palette")
    height, width = subject.image.shape[:2]
    radius = max(1, round((share * height * width / pi) ** 0.5))
    box = free_box(subject.region, 2 * radius + 1, 2 * radius + 1, random)
    disk = np.zeros((height, width), np.uint8)
    cv2.circle(disk, (box[0] + radius, box[1] + radius), radius, 1, -1)
    perturbed = subject.image.copy()
    perturbed[..., :3][disk > 0] = _far_color(subject.expect.palette, random)
    return Perturbed(perturbed, box)


def _far_color(palette: tuple[str, ...], random: Random) -> Pixels:
    steps = np.arange(0, 256, 51, dtype=np.uint8)
    colors = np.stack(np.meshgrid(steps, steps, steps), axis=-1).reshape(-1, 3)
    lab = to_lab(colors[None])[0]
    named = to_lab(np.array([[levels(color) for color in palette]], np.uint8))[0]
    distance = np.min([ciede2000(lab, np.broadcast_to(color, lab.shape)) for color in named], axis=0)
    far = np.flatnonzero(distance >= FAR)
    if not far.size:
        raise CannotPerturbError("its palette leaves no other color")
    color: Pixels = colors[far[int(random.integers(far.size))]]
    return color


def added_code(subject: Subject, share: float, random: Random) -> Perturbed:
    """A QR code, with its quiet zone as wide as this share of the shorter side."""
    return _with_code(subject, _modules(), share, random)


def painted_code(subject: Subject, share: float, random: Random) -> Perturbed:
    """The same with random modules between its corners, as models paint a code: nothing can read it."""
    modules = _modules()
    side = len(modules)
    painted = np.where(random.random((side, side)) < 0.5, 0, 255).astype(np.uint8)
    for rows, columns in ((slice(_CORNER), slice(_CORNER)), (slice(_CORNER), slice(-_CORNER, None))):
        painted[rows, columns] = modules[rows, columns]
        painted[columns, rows] = modules[columns, rows]
    return _with_code(subject, painted, share, random)


@portable_opencv()
def _modules() -> Pixels:
    """The QR code without its quiet zone, a pixel for each module: 0 is dark."""
    encoded = np.asarray(cv2.QRCodeEncoder.create().encode(CONTENT), np.uint8)
    rows, columns = (np.flatnonzero((encoded < 128).any(axis=axis)) for axis in (1, 0))
    return encoded[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def _with_code(subject: Subject, modules: Pixels, share: float, random: Random) -> Perturbed:
    if subject.expect.codes is None:
        raise CannotPerturbError("its case expects no codes and forbids none")
    framed = np.pad(modules, _QUIET, constant_values=255)
    scale = int(share * min(subject.image.shape[:2]) / len(framed))
    if scale < 2:
        raise CannotPerturbError("it is too small for a code of this size")
    code = np.kron(framed, np.ones((scale, scale), np.uint8))
    box = free_box(subject.region, len(code), len(code), random)
    left, top, width, height = box
    perturbed = subject.image.copy()
    perturbed[top : top + height, left : left + width, :3] = code[..., None]
    if perturbed.shape[2] == 4:
        perturbed[top : top + height, left : left + width, 3] = 255
    return Perturbed(perturbed, box)
