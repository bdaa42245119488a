"""Duplicates: outputs of different cases that are nearly the same image, as of a model that ignores its prompt.

Each output has a signature, its small luma without slow changes of brightness. Two outputs whose signatures are alike
are compared in full: the smaller one is scaled and registered to the larger one, on black and on white if either has
transparency, as ``reference`` does. They are near-duplicates if all three are within the limits:

- ``distance``, 0..2: 1 - the mean structural similarity of luma, as ``diversity`` measures it.
- ``delta_e``, 0 and up: the mean color difference, CIEDE2000.
- ``worst_window``, 0..1: the largest share of any window of 24 x 24 pixels in which a change is seen.

Two blank images of one color are near-duplicates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import file_digest
from io import BytesIO

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from visioneval.errors import GraderError
from visioneval.graders.duplicates import DuplicatesGrader
from visioneval.graders.measures import Measure
from visioneval.graders.pixels.color import Pixels, on_backgrounds, premultiplied
from visioneval.graders.pixels.difference import SCORE_DIGITS, TOOL_VERSIONS
from visioneval.graders.pixels.reference import measure_reference
from visioneval.graders.pixels.registration import read_pixels
from visioneval.media.images import room_for
from visioneval.media.opencv import portable_opencv
from visioneval.types import Output

SIDE = 24
"""The width and height of a signature, in pixels."""
_SIGMA = 3.0
"""Slower changes of brightness are no part of a signature."""
_FAINT = 0.5
"""Details with a smaller deviation, in levels of 255, count less: a compressed blank image has some."""
MIN_ALIKE = 0.9
"""The least correlation of the signatures of two outputs that are compared in full."""
Vectors = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Signature:
    """An output as two small images side by side, on black and on white, as PNG."""

    thumbnail: bytes


@dataclass(frozen=True, slots=True)
class Likeness:
    """How much two outputs differ; 0 is identical."""

    distance: float
    delta_e: float
    worst_window: float


class Duplicates:
    """The grader. Stateless, so that outputs can be measured concurrently."""

    def __init__(self, config: DuplicatesGrader) -> None:
        self._config = config

    def signature(self, output: Output) -> Measure[Signature]:
        """The measure of one output. It raises ``GraderError`` if it does not decode or has changed."""
        files, run = {"output": output.path}, partial(_read_signature, output)
        return Measure("duplicates.signature", files, run, Signature, tool_versions=TOOL_VERSIONS, code=("duplicates",))

    def measure(self, first: Output, second: Output) -> Measure[Likeness]:
        """The measure of two outputs, in any order. It raises ``GraderError`` as ``signature`` does."""
        base, other = sorted((first, second), key=lambda image: (-image.width * image.height, image.sha256))
        files, run = {"base": base.path, "other": other.path}, partial(_measure_pair, base, other)
        return Measure("duplicates", files, run, Likeness, tool_versions=TOOL_VERSIONS, code=("duplicates",))

    def thumbnail(self, signature: Signature) -> Pixels:
        """The small images of a signature."""
        with Image.open(BytesIO(signature.thumbnail)) as image:
            return np.asarray(image.convert("RGB"))

    @portable_opencv()
    def details(self, thumbnails: Sequence[Pixels]) -> Vectors:
        """A vector of each output, of length 1: the product of two is how alike they are, from -1 to 1.

        The fainter the details of an image are, the more alike it is to all others of that kind.
        """
        vectors = np.zeros((len(thumbnails), 2 * SIDE * SIDE + 1), np.float32)
        for vector, image in zip(vectors, thumbnails, strict=True):
            halves = (np.ascontiguousarray(image[:, at : at + SIDE]) for at in (0, SIDE))
            fine = np.concatenate([_fine(half).ravel() for half in halves])
            length = max(float(np.linalg.norm(fine)), _FAINT * len(fine) ** 0.5)
            vector[:-1] = fine / np.float32(length)
            vector[-1] = max(0.0, 1 - float(vector[:-1] @ vector[:-1])) ** 0.5
        return vectors

    def alike(self, vectors: Vectors, row: int) -> list[int]:
        """The outputs after ``row`` whose details are alike, the most alike first."""
        likeness = vectors[row + 1 :] @ vectors[row]
        near = np.flatnonzero(likeness >= MIN_ALIKE)
        return [row + 1 + int(at) for at in near[np.argsort(-likeness[near], kind="stable")]]

    def is_duplicate(self, likeness: Likeness) -> bool:
        """Whether two outputs are within the limits."""
        config = self._config
        return (
            likeness.distance <= config.max_distance
            and likeness.delta_e <= config.max_delta_e
            and likeness.worst_window <= config.max_worst_window
        )


@portable_opencv()
def thumbnail(pixels: Pixels) -> Pixels:
    """RGB or straight RGBA pixels, small, on black and on white: ``(SIDE, 2 * SIDE, 3)``."""
    flat = on_backgrounds(premultiplied(pixels))
    return np.asarray(np.hstack([cv2.resize(image, (SIDE, SIDE), interpolation=cv2.INTER_AREA) for (image,) in flat]))


def _fine(small: Pixels) -> Vectors:
    """The luma of a small image without slow changes of brightness."""
    luma = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY).astype(np.float32)
    return np.asarray(luma - cv2.GaussianBlur(luma, (0, 0), _SIGMA), np.float32)


def _read_signature(output: Output) -> Signature:
    _check_unchanged(output)
    with room_for(output.path):
        small = thumbnail(read_pixels(output.path))
    stored = BytesIO()
    Image.fromarray(small).save(stored, "PNG")
    return Signature(stored.getvalue())


def _measure_pair(base: Output, other: Output) -> Likeness:
    for image in (base, other):
        _check_unchanged(image)
    with room_for(base.path, other.path):
        measured = measure_reference(read_pixels(base.path), read_pixels(other.path))
    return Likeness(round(1 - measured.ssim, SCORE_DIGITS), measured.delta_e, measured.worst_window)


def _check_unchanged(image: Output) -> None:
    """Raises ``GraderError`` for a file that is not the output that was recorded."""
    try:
        with image.path.open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise GraderError(f"{image.path.name}: cannot be read: {error.strerror}") from None
    if digest != image.sha256:
        raise GraderError(f"{image.path.name}: was changed after it was generated")
