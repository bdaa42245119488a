"""Locality: an edit changes what its mask allows, and nothing else.

Metrics, each over the base image's pixels (the editable mask has alpha 0 inside):

- ``<key>.changed_outside``, 0..1: the share of the pixels outside the mask, grown by ``dilate``, that a person
  would call changed (``difference.changed_visibly``, on CIEDE2000); with ``tolerance: exact``, whose RGB differs.
- ``<key>.worst_window``, 0..1: the largest such share in any window of 24 x 24 pixels, so that a small change far
  from the mask cannot hide in a large image. 24 pixels whatever the size of the base: a codec's blocks and a
  letter's strokes do not grow with the image.
- ``<key>.ssim_outside``, -1..1: the mean structural similarity (Wang et al. 2004) outside. No threshold is put
  on it, since models that re-encode the image lose texture everywhere; a rule of the suite may.
- ``<key>.changed_inside``, 0..1: the share of the pixels inside the mask (not grown) that changed.
- ``<key>``: the output has the base's shape, and the first, second and fourth keep to the options' limits.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from visioneval.errors import GraderError, ImageError
from visioneval.graders.base import Grade, GradingContext
from visioneval.graders.pixels.config import LocalityGrader
from visioneval.graders.pixels.difference import (
    SCORE_DIGITS,
    TOOL_VERSIONS,
    Mask,
    Pixels,
    changed_exactly,
    changed_visibly,
    difference_map,
    mean_ssim,
    worst_window,
)
from visioneval.graders.pixels.registration import Laid, Registration, lay_over, read_pixels, scaled_over
from visioneval.media.images import load_mask, room_for
from visioneval.media.opencv import portable_opencv
from visioneval.types import Score


@dataclass(frozen=True, slots=True)
class LocalityFinding:
    """What changed where. A share is ``None`` where the mask leaves no pixel to measure it on.

    ``window`` is ``(left, top, width, height)`` of the worst window, in pixels of the base.
    """

    changed_outside: float | None
    worst_window: float | None
    ssim_outside: float | None
    changed_inside: float | None
    window: tuple[int, int, int, int] | None
    pixels_outside: int
    pixels_inside: int
    registration: Registration
    image_size: tuple[int, int]
    base_size: tuple[int, int]
    difference_map: bytes


@portable_opencv()
def measure_locality(base: Pixels, output: Pixels, editable: Mask, *, exact: bool, dilate: int) -> LocalityFinding:
    """Measures an edit. ``editable`` is True inside the mask and has the size of ``base``, ``output`` any size."""
    grown = _grown(editable, dilate)
    laid = scaled_over(base, output) if exact else lay_over(base, output, ~grown)
    outside, inside = ~grown & laid.valid, editable & laid.valid
    changed_outside, changed_inside = (_changed(laid, region, exact) for region in (outside, inside))
    share, window, ssim = None, None, None
    if outside.any():
        share, window = worst_window(changed_outside, outside)
        ssim = round(mean_ssim(laid.base, np.where(outside[..., None], laid.output, laid.base), outside), SCORE_DIGITS)
        window = window if share else None
    generated = difference_map(laid.output, changed_outside, changed_inside, editable, window)
    return LocalityFinding(
        changed_outside=_share(changed_outside, outside),
        worst_window=share,
        ssim_outside=ssim,
        changed_inside=_share(changed_inside, inside),
        window=window,
        pixels_outside=int(outside.sum()),
        pixels_inside=int(inside.sum()),
        registration=laid.registration,
        image_size=(output.shape[1], output.shape[0]),
        base_size=(base.shape[1], base.shape[0]),
        difference_map=generated,
    )


class Locality:
    """The grader. Stateless, so that cells may be graded at the same time."""

    def __init__(self, config: LocalityGrader) -> None:
        self._config = config

    async def grade(self, subject: GradingContext) -> Grade:
        """Raises ``GraderError`` where the case has no base or mask, or a file does not decode."""
        return await asyncio.to_thread(self._in_room, subject)

    def _in_room(self, subject: GradingContext) -> Grade:
        files = (subject.files.base, subject.files.masks.get("editable"), subject.generated.path)
        with room_for(*filter(None, files)):
            return self._grade(subject)

    def _grade(self, subject: GradingContext) -> Grade:
        config = self._config
        base_path, mask_path = subject.files.base, subject.files.masks.get("editable")
        if base_path is None or mask_path is None:
            raise GraderError("the case has no input image, or no editable mask")
        base, editable = read_pixels(base_path), _read_mask(mask_path)
        if editable.shape != base.shape[:2]:
            raise GraderError(f"the mask {mask_path} is {_size(editable)}, the base {base_path} is {_size(base)}")
        exact = config.tolerance == "exact"
        output = read_pixels(subject.generated.path)
        finding = measure_locality(base, output, editable, exact=exact, dilate=config.dilate)
        saved = subject.save(f"{config.key}.difference.png", finding.difference_map)
        failures, unmeasured = _failures(finding, config), _unmeasured(finding)
        passed: Score = False if failures else None if unmeasured else True
        return Grade(
            scores=_scores(config.key, passed, finding),
            reasons={config.key: "; ".join(failures)} if failures else {},
            details=_details(finding, config, saved),
            error=unmeasured,
            tool_versions=TOOL_VERSIONS,
        )


def _scores(key: str, passed: Score, finding: LocalityFinding) -> dict[str, Score]:
    return {
        key: passed,
        f"{key}.changed_outside": finding.changed_outside,
        f"{key}.worst_window": finding.worst_window,
        f"{key}.ssim_outside": finding.ssim_outside,
        f"{key}.changed_inside": finding.changed_inside,
    }


def _failures(finding: LocalityFinding, config: LocalityGrader) -> list[str]:
    """Why the edit fails, a sentence each; none where it holds as far as it was measured."""
    found = []
    width, height = finding.image_size
    base_width, base_height = finding.base_size
    if finding.registration.distorted:
        found.append(
            f"the output is {width}x{height}, another shape than the base's {base_width}x{base_height}, "
            "so everything was cropped or stretched"
        )
    elif config.tolerance == "exact" and finding.image_size != finding.base_size:
        found.append(f"the output is {width}x{height}, the base {base_width}x{base_height}")
    outside = _outside_failure(finding, config)
    if outside is not None:
        found.append(outside)
    inside = finding.changed_inside
    if inside is not None and inside < config.min_changed_inside:
        found.append(
            f"{_percent(inside)} of the pixels inside the mask changed, at least "
            f"{_percent(config.min_changed_inside)} must: the edit is missing"
        )
    return found


def _outside_failure(finding: LocalityFinding, config: LocalityGrader) -> str | None:
    share, worst, window = finding.changed_outside, finding.worst_window, finding.window
    if share is None or worst is None or window is None:
        return None
    left, top, width, height = window
    at = f"at x {left} to {left + width}, y {top} to {top + height}"
    if share > config.max_changed_outside:
        limit = _percent(config.max_changed_outside)
        return f"{_percent(share)} of the pixels outside the mask changed, {limit} may; the worst place is {at}"
    if worst > config.max_worst_window:
        limit = _percent(config.max_worst_window)
        return (
            f"outside the mask, {_percent(worst)} of the pixels changed {at}, {limit} of a window may "
            f"({_percent(share)} of all changed)"
        )
    return None


def _unmeasured(finding: LocalityFinding) -> str | None:
    empty = []
    if finding.changed_outside is None:
        empty.append("the mask leaves nothing outside")
    if finding.changed_inside is None:
        empty.append("the mask has nothing inside")
    return "; ".join(empty) or None


def _details(finding: LocalityFinding, config: LocalityGrader, saved: str) -> dict[str, Any]:
    return {
        "tolerance": config.tolerance,
        "base_size": "x".join(map(str, finding.base_size)),
        "picture_size": "x".join(map(str, finding.image_size)),
        "registration": finding.registration.as_details(),
        "pixels_outside": finding.pixels_outside,
        "pixels_inside": finding.pixels_inside,
        "window": dict(zip(("left", "top", "width", "height"), finding.window, strict=True))
        if finding.window
        else None,
        "limits": {
            "max_changed_outside": config.max_changed_outside,
            "max_worst_window": config.max_worst_window,
            "min_changed_inside": config.min_changed_inside,
            "dilate": config.dilate,
        },
        "difference_map": saved,
    }


def _changed(laid: Laid, region: Mask, exact: bool) -> Mask:
    if exact:
        return changed_exactly(laid.whole_base, laid.output, region)
    coarseness = laid.registration.coarseness
    return changed_visibly(laid.base, laid.output, region, grainy=laid.whole_base, coarseness=coarseness)


def _share(changed: Mask, region: Mask) -> float | None:
    """The share of ``region`` that changed; ``None``, never 0, where there is no region."""
    pixels = int(region.sum())
    return int(changed.sum()) / pixels if pixels else None


def _grown(mask: Mask, pixels: int) -> Mask:
    """The mask and every pixel within that distance of it."""
    if not pixels:
        return mask
    distance = cv2.distanceTransform((~mask).astype(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE)
    # Squares of distances are whole numbers: halfway to the next one, no rounding of a root has a say.
    near: Mask = distance < math.sqrt(pixels**2 + 0.5)
    return near & bool(mask.any())


def _read_mask(path: Path) -> Mask:
    try:
        return np.asarray(load_mask(path)) > 0
    except ImageError as error:
        raise GraderError(f"{path}: {error}") from error


def _size(array: Any) -> str:
    return f"{array.shape[1]}x{array.shape[0]}"


def _percent(share: float) -> str:
    """A share in per cent with two significant digits, and never rounded to 0 or 100."""
    return f"{share * 100:.2g} %" if share < 0.995 else f"{share * 100:.4g} %"
