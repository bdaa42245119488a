"""Image: the file itself. It decodes, shows something, and is what ``expect`` says.

Metrics, all of them yes or no:

- ``<key>.size``: the size is ``expect.size``, or the size that the model was asked for; and the ratio of width to
  height is within 1 % of ``expect.aspect_ratio``. Sizes are as a viewer shows them, with the EXIF rotation done.
- ``<key>.format``: the file is of the format ``expect.format``, whatever its name says.
- ``<key>.alpha``: it has pixels that are not fully opaque, and ``expect.alpha`` says so; or neither.
- ``<key>.blank``, true is bad: one flat colour. On white as on black, all but 1 in 100,000 pixels, each averaged
  with its 8 neighbours, are within 12 (of 255, per channel) of the median colour: noise of a codec stays
  within, a line of the smallest text does not.
- ``<key>``: the first three hold as far as the case asks for them, and the picture is not blank.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from PIL import ImageOps

from visioneval.errors import GraderError, ImageError
from visioneval.graders.base import Grade, Subject
from visioneval.graders.difference import TOOL_VERSIONS, Pixels
from visioneval.images import FORMATS, frames, load_rgb, opened, room_for
from visioneval.opencv import portable_opencv
from visioneval.suite.case import Expect, pixel_size
from visioneval.suite.graders import ImageGrader
from visioneval.types import Score

ASPECT_TOLERANCE = 0.01
"""How far width / height may be from the ratio asked for, as a share of it."""
BLANK_LEVELS = 12
"""Of 255, per channel: what differs less from the median colour is that colour."""
BAND_ROWS = 256
BLANK_PIXELS = 1e-5
"""The share of pixels that may still stand out of a blank picture."""


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What a picture file is. ``width`` and ``height`` are as shown; ``exif_orientation`` is 1 where nothing turns."""

    width: int
    height: int
    format: str
    mode: str
    frames: int
    exif_orientation: int
    transparent: bool
    blank: bool


def read_facts(path: Path) -> FileFacts:
    """Looks at the first frame of a file. Raises ``ImageError`` where it does not decode."""
    with room_for(path):
        return _facts(path)


def _facts(path: Path) -> FileFacts:
    kind, mode, orientation, alpha = _stored(path)
    shown = np.asarray(load_rgb(path))
    transparent = alpha is not None and int(alpha.min()) < 255
    on_black = _on_black(shown, alpha) if alpha is not None and transparent else shown
    return FileFacts(
        width=shown.shape[1],
        height=shown.shape[0],
        format=kind,
        mode=mode,
        frames=frames(path),
        exif_orientation=orientation,
        transparent=transparent,
        blank=is_flat(shown) and is_flat(on_black),
    )


def _stored(path: Path) -> tuple[str, str, int, Pixels | None]:
    """Format, mode, EXIF orientation and, where there is one, the alpha channel as shown."""
    with opened(path) as handle:
        kind, mode = FORMATS[handle.format or ""], handle.mode
        orientation = int(handle.getexif().get(0x0112, 1))
        handle.load()
        if not handle.has_transparency_data:
            return kind, mode, orientation, None
        ImageOps.exif_transpose(handle, in_place=True)  # a copy would take as much memory again
        image = handle if handle.mode == "RGBA" else handle.convert("RGBA")
        return kind, mode, orientation, np.asarray(image.getchannel("A"))


@portable_opencv()
def is_flat(picture: Pixels) -> bool:
    """Whether ``(height, width, 3)`` pixels are one colour, but for noise."""
    smooth = _blurred(picture)
    stride = max(1, int((smooth.shape[0] * smooth.shape[1] / 1_000_000) ** 0.5))
    median = np.median(smooth[::stride, ::stride], axis=(0, 1)).astype(np.int16)
    low, high = np.maximum(median - BLANK_LEVELS, 0), np.minimum(median + BLANK_LEVELS, 255)
    near = cv2.inRange(smooth, low.astype(np.uint8), high.astype(np.uint8))
    return bool(near.size - cv2.countNonZero(near) <= BLANK_PIXELS * near.size)


def _blurred(picture: Pixels) -> Pixels:
    """A 3 x 3 mean, band by band: OpenCV's portable code sums in 32 bits, which takes four times the pixels' memory."""
    smooth = np.empty_like(picture)
    height = picture.shape[0]
    for top in range(0, height, BAND_ROWS):
        bottom = min(top + BAND_ROWS, height)
        first, last = max(top - 1, 0), min(bottom + 1, height)
        band = cv2.blur(picture[first:last], (3, 3), borderType=cv2.BORDER_REFLECT)
        smooth[top:bottom] = band[top - first : bottom - first]
    return smooth


class ImageFile:
    """The grader. Stateless, so that cells may be graded at the same time."""

    def __init__(self, config: ImageGrader) -> None:
        self._config = config

    async def grade(self, subject: Subject) -> Grade:
        """Raises ``GraderError`` where the file does not decode."""
        return await asyncio.to_thread(self._grade, subject)

    def _grade(self, subject: Subject) -> Grade:
        key, expect = self._config.key, subject.case.expect
        try:
            facts = read_facts(subject.drawn.path)
        except ImageError as error:
            raise GraderError(f"{subject.drawn.path}: {error}") from error
        scores: dict[str, Score] = {}
        reasons: dict[str, str] = {}
        unknown = None
        if expect.size is not None or expect.aspect_ratio is not None:
            scores[f"{key}.size"], why, unknown = check_size(facts, expect, subject.requested_size)
            _note(reasons, f"{key}.size", why)
        if expect.format is not None:
            scores[f"{key}.format"] = facts.format == expect.format
            _note(reasons, f"{key}.format", _format_failure(facts, expect.format))
        if expect.alpha is not None:
            scores[f"{key}.alpha"] = facts.transparent == expect.alpha
            _note(reasons, f"{key}.alpha", _alpha_failure(facts, expect.alpha))
        checks = [*scores.values(), not facts.blank]
        scores[f"{key}.blank"] = facts.blank
        _note(reasons, f"{key}.blank", "the picture is blank: one flat colour" if facts.blank else None)
        scores[key] = False if False in checks else None if None in checks else True
        return Grade(
            scores=scores, reasons=reasons, details=_details(facts), error=unknown, tool_versions=TOOL_VERSIONS
        )


def check_size(facts: FileFacts, expect: Expect, requested: str | None) -> tuple[bool | None, str | None, str | None]:
    """Whether the size is right, why not, and why it could not be told (then the first is ``None``)."""
    wrong, error = [], None
    shown = f"{facts.width}x{facts.height}"
    wanted = requested if expect.size == "requested" else expect.size
    if expect.size == "requested" and not _is_size(requested):
        said = "no size" if requested is None else f"the size {requested!r}"
        error = f"expect.size is 'requested', but the model was asked for {said}"
    elif wanted is not None and pixel_size(wanted) != (facts.width, facts.height):
        wrong.append(f"the picture is {shown}, {wanted} is expected")
    if expect.aspect_ratio is not None:
        across, down = map(int, expect.aspect_ratio.split(":"))
        ratio = facts.width / facts.height / (across / down)
        if round(abs(ratio - 1), 9) > ASPECT_TOLERANCE:  # 101x100 is 1 % off, and not a float's breadth more
            wrong.append(f"the picture is {shown}, which is not {expect.aspect_ratio}")
    if wrong:
        return False, "; ".join(wrong), error
    return (True, None, None) if error is None else (None, None, error)


def _is_size(text: str | None) -> bool:
    try:
        return text is not None and bool(pixel_size(text))
    except ValueError:
        return False


def _format_failure(facts: FileFacts, wanted: str) -> str | None:
    return None if facts.format == wanted else f"the file is {facts.format}, {wanted} is expected"


def _alpha_failure(facts: FileFacts, wanted: bool) -> str | None:
    if facts.transparent == wanted:
        return None
    if wanted:
        return "every pixel is fully opaque, transparency is expected"
    return "some pixels are transparent, none should be"


def _note(reasons: dict[str, str], metric: str, why: str | None) -> None:
    if why is not None:
        reasons[metric] = why


def _details(facts: FileFacts) -> dict[str, object]:
    details: dict[str, object] = {
        "size": f"{facts.width}x{facts.height}",
        "format": facts.format,
        "mode": facts.mode,
        "transparent": facts.transparent,
    }
    if facts.frames > 1:
        details["frames"] = facts.frames
        details["graded_frame"] = 1
    if facts.exif_orientation != 1:
        details["exif_orientation"] = facts.exif_orientation
    return details


def _on_black(on_white: Pixels, alpha: Pixels) -> Pixels:
    """A picture that was laid on white, laid on black instead: white's own share taken off."""
    return np.asarray(cv2.subtract(on_white, cv2.merge([255 - alpha] * 3)), dtype=np.uint8)
