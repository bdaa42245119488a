"""Properties of the file: it decodes, is not blank, and matches ``expect``.

Metrics, all yes or no:

- ``<key>.size``: the size is ``expect.size``, or the size requested from the model; and the ratio of width to
  height is within 1 % of ``expect.aspect_ratio``. Sizes are after EXIF rotation.
- ``<key>.format``: the file has the format ``expect.format``, whatever its name.
- ``<key>.alpha``: it has transparent pixels (alpha below 250 of 255) exactly if ``expect.alpha`` is true. Without
  ``expect.alpha``, an edit of an image with transparent pixels must have some; other images have no such metric.
- ``<key>.blank``, true is bad: one flat color. On white and on black, all but 1 in 100,000 pixels, each averaged
  with its 8 neighbors, are within 12 (of 255, per channel) of the median color: codec noise stays
  within, a line of the smallest text does not.
- ``<key>``: those of the first three that the case asks for pass, and the image is not blank.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from visioneval.graders.base import Grade, GradingContext, all_hold
from visioneval.graders.measures import Measure
from visioneval.graders.pixels.color import Pixels, on_backgrounds, premultiplied
from visioneval.graders.pixels.difference import TOOL_VERSIONS
from visioneval.graders.pixels.registration import decoded
from visioneval.graders.properties import PropertiesGrader, keeps_alpha
from visioneval.media.color import color_space
from visioneval.media.images import FORMATS, frames, has_alpha, header, is_transparent, load_image, room_for
from visioneval.media.opencv import portable_opencv
from visioneval.suite.case import Expect, pixel_size
from visioneval.types import Score

BLANK_LEVELS = 12
"""Of 255, per channel: smaller differences from the median color are ignored."""
BAND_ROWS = 64
_LOST_ALPHA = (
    "the image to edit has transparent pixels, but every pixel of the output is opaque"
    " ('expect: {alpha: any}' accepts that)"
)
_WRONG_ALPHA = {
    True: "every pixel is opaque, expected transparency",
    False: "some pixels are transparent, expected none",
}
BLANK_PIXELS = 1e-5
"""The share of pixels of a blank image that may differ."""
MAX_BASES = 4096
"""How many images to edit the grader remembers."""


@dataclass(frozen=True, slots=True)
class FileFacts:
    """The properties of an image file. ``width`` and ``height`` are after EXIF rotation."""

    width: int
    height: int
    format: str
    mode: str
    frames: int
    exif_orientation: int
    transparent: bool
    blank: bool
    color_space: str


def read_facts(path: Path) -> FileFacts:
    """Inspects the first frame of a file. Raises ``ImageError`` if it does not decode."""
    with room_for(path), portable_opencv():
        with header(path) as handle:
            kind, mode, colors = FORMATS[handle.format or ""], handle.mode, color_space(handle).name
            orientation = int(handle.getexif().get(0x0112, 1))
        image = load_image(path)
        (width, height), transparent = image.size, is_transparent(image)
        pixels = np.asarray(image)
        del image  # a second copy of all pixels
        shown = pixels if pixels.shape[2] == 3 else premultiplied(pixels)
        return FileFacts(
            width=width,
            height=height,
            format=kind,
            mode=mode,
            frames=frames(path),
            exif_orientation=orientation,
            transparent=transparent,
            blank=all(is_flat(flat) for (flat,) in on_backgrounds(shown)),
            color_space=colors,
        )


@portable_opencv()
def is_flat(output: Pixels) -> bool:
    """Whether ``(height, width, 3)`` pixels are one color, apart from noise."""
    if _spans_levels(output):
        return False
    smooth, top = np.empty_like(output), 0
    for band in _blurred(output):
        smooth[top : top + len(band)] = band
        top += len(band)
    stride = max(1, int((smooth.shape[0] * smooth.shape[1] / 1_000_000) ** 0.5))
    median = _median(smooth[::stride, ::stride])
    low, high = np.maximum(median - BLANK_LEVELS, 0), np.minimum(median + BLANK_LEVELS, 255)
    flat_pixels = cv2.inRange(smooth, low.astype(np.uint8), high.astype(np.uint8))
    return bool(flat_pixels.size - cv2.countNonZero(flat_pixels) <= BLANK_PIXELS * flat_pixels.size)


def _spans_levels(output: Pixels) -> bool:
    """Whether too many pixels differ for any one color. Most images need a few rows to show it."""
    allowed = BLANK_PIXELS * output.shape[0] * output.shape[1]
    counts = np.zeros((3, 256))
    for band in _blurred(output):
        for channel, count in enumerate(counts):
            count += cv2.calcHist([band], [channel], None, [256], [0, 256]).ravel()
            darkest = int(np.argmax(np.cumsum(count) > allowed))
            brightest = 255 - int(np.argmax(np.cumsum(count[::-1]) > allowed))
            if brightest - darkest > 2 * BLANK_LEVELS and count.sum() > allowed:
                return True
    return False


def _median(output: Pixels) -> NDArray[np.int16]:
    """The median of each channel, rounded down. Counts levels, which is faster than sorting."""
    pixels = np.ascontiguousarray(output)
    size = pixels.shape[0] * pixels.shape[1]
    middle = []
    for channel in range(3):
        counted = np.cumsum(cv2.calcHist([pixels], [channel], None, [256], [0, 256]))  # exact: fewer than 2**24 pixels
        low, high = np.searchsorted(counted, [(size - 1) // 2, size // 2], side="right")
        middle.append((low + high) // 2)
    return np.asarray(middle, np.int16)


def _blurred(output: Pixels) -> Iterator[Pixels]:
    """A 3 x 3 mean, band by band: OpenCV's portable code sums in 32 bits, which takes four times the pixels' memory."""
    height = output.shape[0]
    for top in range(0, height, BAND_ROWS):
        bottom = min(top + BAND_ROWS, height)
        first, last = max(top - 1, 0), min(bottom + 1, height)
        band = cv2.blur(output[first:last], (3, 3), borderType=cv2.BORDER_REFLECT)
        yield np.asarray(band[top - first : bottom - first], np.uint8)


class Properties:
    """The grader. Reads each image to edit once per run."""

    def __init__(self, config: PropertiesGrader) -> None:
        self._config = config
        self._transparent_bases: dict[Path, bool] = {}

    async def grade(self, context: GradingContext) -> Grade:
        """Raises ``GraderError`` if the file does not decode."""
        key, expect, path = self._config.key, context.case.expect, context.generated.path
        measure = Measure(
            "properties", {"output": path}, partial(read_facts, path), FileFacts, tool_versions=TOOL_VERSIONS
        )
        with decoded(path):
            facts = await context.measure(measure)
        scores: dict[str, Score] = {}
        reasons: dict[str, str] = {}
        unknown = None

        def add(name: str, score: Score, why: str | None) -> None:
            scores[f"{key}.{name}"] = score
            if why is not None:
                reasons[f"{key}.{name}"] = why

        if expect.size is not None or expect.aspect_ratio is not None:
            fits, why, unknown = check_size(facts.width, facts.height, expect, context.requested_size)
            add("size", fits, why)
        if expect.format is not None:
            is_right = facts.format == expect.format
            add("format", is_right, None if is_right else f"the file is {facts.format}, expected {expect.format}")
        if keeps_alpha(context.case):
            if await self._is_base_transparent(context.files.base):
                add("alpha", facts.transparent, None if facts.transparent else _LOST_ALPHA)
        elif isinstance(expect.alpha, bool):
            is_right = facts.transparent == expect.alpha
            add("alpha", is_right, None if is_right else _WRONG_ALPHA[expect.alpha])
        checks = [*scores.values(), not facts.blank]
        add("blank", facts.blank, "the image is blank: one flat color" if facts.blank else None)
        scores[key] = all_hold(checks)
        return Grade(
            scores=scores, reasons=reasons, details=_details(facts), error=unknown, tool_versions=TOOL_VERSIONS
        )

    async def _is_base_transparent(self, base: Path | None) -> bool:
        """Whether the image to edit has transparent pixels. Raises ``GraderError`` if it does not decode."""
        if base is None:
            return False
        known = self._transparent_bases.get(base)
        if known is None:
            known = await asyncio.to_thread(_has_transparent_pixels, base)
            if len(self._transparent_bases) >= MAX_BASES:
                self._transparent_bases.clear()
            self._transparent_bases[base] = known
        return known


def _has_transparent_pixels(path: Path) -> bool:
    """Whether an image has transparent pixels. Raises ``GraderError`` if it does not decode."""
    with decoded(path):
        if not has_alpha(path):
            return False
        with room_for(path):
            return is_transparent(load_image(path))


def _details(facts: FileFacts) -> dict[str, object]:
    details: dict[str, object] = {
        "size": f"{facts.width}x{facts.height}",
        "format": facts.format,
        "mode": facts.mode,
        "transparent": facts.transparent,
    }
    if facts.color_space != "sRGB":
        details["color_space"] = facts.color_space
    if facts.frames > 1:  # the pages of a TIFF: animations are videos
        details["frames"] = facts.frames
        details["graded_frame"] = 1
    if facts.exif_orientation != 1:
        details["exif_orientation"] = facts.exif_orientation
    return details


ASPECT_TOLERANCE = 0.01
"""The allowed deviation of width / height from the expected ratio, as a share."""


def check_size(
    width: int, height: int, expect: Expect, requested: str | None, medium: str = "image", pixel_aspect: float = 1.0
) -> tuple[bool | None, str | None, str | None]:
    """Whether the size is right, the failure, and the error if that is unknown (then the first is ``None``).

    ``width`` and ``height`` are pixels in display orientation; ``requested`` is the size that the model run asked for,
    and ``pixel_aspect`` the width of a pixel over its height.
    """
    failures, error = [], None
    actual = f"{width}x{height}"
    expected = requested if expect.size == "requested" else expect.size
    if expect.size == "requested" and not _is_size(requested):
        requested_text = "no size" if requested is None else f"the size {requested!r}"
        error = f"expect.size is 'requested', but the model run requests {requested_text}"
    elif expected is not None and pixel_size(expected) != (width, height):
        failures.append(f"the {medium} is {actual}, expected {expected}")
    if expect.aspect_ratio is not None:
        across, down = map(int, expect.aspect_ratio.split(":"))
        ratio = width * pixel_aspect / height / (across / down)
        if round(abs(ratio - 1), 9) > ASPECT_TOLERANCE:  # 101x100 is exactly 1 % off
            failures.append(f"the {medium} is {actual}, expected an aspect ratio of {expect.aspect_ratio}")
    if failures:
        return False, "; ".join(failures), error
    return (True, None, None) if error is None else (None, None, error)


def _is_size(text: str | None) -> bool:
    try:
        return text is not None and bool(pixel_size(text))
    except ValueError:
        return False
