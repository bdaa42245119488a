"""Locality: an edit changes only what its mask allows.

Metrics over the base image's pixels. What is transparent in the editable mask is inside, and so is what is partly
transparent: its soft edge may change too.

- ``<key>.changed_outside``, 0..1: the share of the pixels outside the mask, dilated by ``dilate``, that changed
  visibly (``difference.changed_visibly``, on CIEDE2000); with ``tolerance: exact``, those with another RGB or alpha
  value. Where either image has transparency, a change on black or on white counts. Pixels with the same value in both
  images do not count, even if the area around them changed.
- ``<key>.worst_window``, 0..1: the largest share of any window of 24 x 24 pixels in which a change is seen, with the
  pixels between and beside those that differ, so that a small change far from the mask cannot hide in a large image.
  24 pixels for any image size: codec blocks and letter strokes do not grow with the image.
- ``<key>.ssim_outside``, -1..1: the mean structural similarity (Wang et al. 2004) outside. The verdict ignores
  it, since models that re-encode the image lose texture everywhere; a rule of the suite may use it.
- ``<key>.changed_inside``, 0..1: the share of the pixels inside the mask (not dilated) that changed.
- ``<key>.sharpness_outside``, 0 and up: the fine detail outside, relative to the base's, 1 is as sharp. Not measured
  where the base has none.
- ``<key>.shift``, 0 and up, and ``<key>.magnification``, 1 and up: the shift of the whole image, as a share of the
  base's shorter side, and the factor by which it is enlarged or reduced. Up to 2 % of the longer side were undone
  before the comparison. Not measured with ``tolerance: exact``, and where the aspect ratio differs.
- ``<key>.isolated_change``, 0 and up: the pixels of the largest change that stands alone (``isolated``). Not measured
  with ``tolerance: exact``, nor in outputs that were encoded again.
- With ``tolerance: redrawn``, ``<key>.content_change``, ``.redraw``, ``.tone`` and ``.displacement`` (``redrawn``),
  which the verdict reads instead of ``changed_outside``, ``worst_window`` and ``isolated_change``.
- ``<key>``: the output has the base's aspect ratio, and all of these but ``ssim_outside`` are within the limits.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from visioneval.errors import GraderError
from visioneval.graders.base import Grade, GradingContext
from visioneval.graders.measures import Measure
from visioneval.graders.pixels import LocalityGrader
from visioneval.graders.pixels.changes import REST, IsolatedChange, Redraw, isolated_change, measure_redraw
from visioneval.graders.pixels.color import Mask, Pixels, alpha_changes, alpha_text, percent
from visioneval.graders.pixels.difference import (
    SCORE_DIGITS,
    TOOL_VERSIONS,
    Box,
    as_box,
    changed_exactly,
    detail_ratio,
    difference_map,
    different,
    mean_ssim,
    place,
    worst_window,
)
from visioneval.graders.pixels.marks import PROVIDER, filled, is_near_corner, mark_on_base
from visioneval.graders.pixels.registration import (
    ColorSpaces,
    Registration,
    align,
    decoded,
    read_color_spaces,
    read_pixels,
    scale_to_base,
)
from visioneval.graders.pixels.sharpening import softened_alike
from visioneval.media.images import load_mask, room_for
from visioneval.media.opencv import portable_opencv
from visioneval.types import Score


@dataclass(frozen=True, slots=True)
class LocalityFinding:
    """The measurements. A share is ``None`` if the mask leaves no pixels to measure; ``sharpness_outside`` also if the
    base has no detail. ``sharpening`` is by how much the detail of the whole image was amplified, which was undone: 0
    is not, 1 is twice the detail.

    ``window`` is ``(left, top, width, height)`` of the worst window, in pixels of the base. ``alpha_outside`` are the
    shares of the pixels outside that changed in transparency; empty for opaque images. ``isolated`` is ``None`` if the
    output was encoded again, or compared exactly.
    """

    changed_outside: float | None
    worst_window: float | None
    ssim_outside: float | None
    changed_inside: float | None
    sharpness_outside: float | None
    sharpening: float
    alpha_outside: Mapping[str, float]
    window: tuple[int, int, int, int] | None
    isolated: IsolatedChange | None
    redraw: Redraw | None
    pixels_outside: int
    pixels_inside: int
    registration: Registration
    image_size: tuple[int, int]
    base_size: tuple[int, int]
    difference_map: bytes
    mark: Box | None = None
    """Where the output has a provider's mark, in pixels of the base: left out, or looked for near the worst window."""
    color_spaces: ColorSpaces = field(default=ColorSpaces("sRGB", "sRGB", are_same=True))


@portable_opencv()
def measure_locality(
    base: Pixels,
    output: Pixels,
    editable: Mask,
    *,
    exact: bool,
    dilate: int,
    redrawn: bool = False,
    except_marks: bool = False,
) -> LocalityFinding:
    """Measures an edit. ``editable`` is True inside the mask and has the size of ``base``, ``output`` any size.

    Both images are RGB or straight RGBA. With ``redrawn``, also measures whether a redraw shows the same. With
    ``except_marks``, a provider's mark in the output is not outside.
    """
    mark = mark_on_base(base, output) if except_marks else None
    dilated = _dilated(editable, dilate)
    may_change = dilated | filled(mark, editable.shape)
    aligned = scale_to_base(base, output) if exact else align(base, output, ~may_change)
    outside, inside = ~may_change & aligned.valid, editable & aligned.valid
    share, window, ssim, sharpness = None, None, None, None
    if outside.any():
        unedited = aligned.base.copy()
        cv2.copyTo(aligned.output, outside.astype(np.uint8), unedited)
        ssim = round(mean_ssim(aligned.base, unedited, outside), SCORE_DIGITS)
        sharpness = detail_ratio(aligned.base, unedited, outside)
    isolated = None if exact or not outside.any() else isolated_change(aligned.whole_base, aligned.output, outside)
    redraw = measure_redraw(aligned.base, aligned.output, outside) if redrawn else None
    alike, sharpening = (aligned, 0.0) if exact else softened_alike(aligned, outside)
    pair = (base, output) if base.shape[:2] == output.shape[:2] else (aligned.whole_base, aligned.output)
    changed_outside, changed_inside = (
        changed_exactly(*pair, region) if exact else alike.changed_visibly(region) for region in (outside, inside)
    )
    differing = changed_outside if exact else changed_outside & different(aligned.base, aligned.output)
    if outside.any():
        share, window = worst_window(changed_outside, outside)
        window = window if share else None
    marked = redraw.window if redraw else window or (isolated.window if isolated else None)
    if not except_marks and marked and is_near_corner(marked, base.shape):
        mark = mark_on_base(base, output)
    map_png = difference_map(aligned.output, changed_outside, changed_inside, editable, marked)
    return LocalityFinding(
        changed_outside=_share(differing, outside),
        worst_window=share,
        ssim_outside=ssim,
        changed_inside=_share(changed_inside, inside),
        sharpness_outside=None if sharpness is None else round(sharpness, SCORE_DIGITS),
        sharpening=sharpening,
        alpha_outside=alpha_changes(aligned.whole_base, aligned.output, outside),
        window=window,
        isolated=isolated,
        redraw=redraw,
        pixels_outside=int(outside.sum()),
        pixels_inside=int(inside.sum()),
        registration=aligned.registration,
        image_size=(output.shape[1], output.shape[0]),
        base_size=(base.shape[1], base.shape[0]),
        difference_map=map_png,
        mark=mark,
    )


class Locality:
    """The grader. Stateless, so that cells can be graded concurrently."""

    def __init__(self, config: LocalityGrader) -> None:
        self._config = config

    async def grade(self, context: GradingContext) -> Grade:
        """Raises ``GraderError`` if the case has no base or mask, or a file does not decode."""
        config = self._config
        base, mask = context.files.base, context.files.masks.get("editable")
        if base is None or mask is None:
            raise GraderError("the case has no input image, or no editable mask")
        output, exact = context.generated.path, config.tolerance == "exact"
        files = {"base": base, "mask": mask, "output": output}
        redrawn = config.tolerance == "redrawn"
        options = {"exact": exact, "dilate": config.dilate, "redrawn": redrawn}
        options |= {"except_marks": True} if config.except_marks else {}
        run = partial(_measure_files, base, mask, output, **options)
        finding = await context.measure(
            Measure("locality", files, run, LocalityFinding, options=options, tool_versions=TOOL_VERSIONS)
        )
        map_path = await asyncio.to_thread(context.save, f"{config.key}.difference.png", finding.difference_map)
        failures, unmeasured = _failures(finding, config), _unmeasured(finding, config)
        passed: Score = False if failures else None if unmeasured else True
        if finding.mark and config.except_marks:
            failures.append(f"{PROVIDER}'s corner mark {place(finding.mark)} was left out")
        return Grade(
            scores=_scores(config, passed, finding),
            reasons={config.key: "; ".join(failures)} if failures else {},
            details=_details(finding, config, map_path),
            error=unmeasured,
            tool_versions=TOOL_VERSIONS,
        )


def _measure_files(base: Path, mask: Path, output: Path, **options: Any) -> LocalityFinding:
    """Measures the files of an edit. Raises ``GraderError`` if one does not decode, or the mask does not fit."""
    with room_for(base, mask, output):
        exact = options["exact"]
        base_pixels = read_pixels(base, as_stored=exact)
        with decoded(mask):
            editable = np.asarray(load_mask(mask)) > 0
        if editable.shape != base_pixels.shape[:2]:
            raise GraderError(f"the mask {mask} is {_size(editable)}, the base image {base} is {_size(base_pixels)}")
        pixels = read_pixels(output, as_stored=exact)
        finding = measure_locality(base_pixels, pixels, editable, **options)
        return replace(finding, color_spaces=read_color_spaces(base, output))


def _scores(config: LocalityGrader, passed: Score, finding: LocalityFinding) -> dict[str, Score]:
    key = config.key
    scores: dict[str, Score] = {
        key: passed,
        f"{key}.changed_outside": finding.changed_outside,
        f"{key}.worst_window": finding.worst_window,
        f"{key}.ssim_outside": finding.ssim_outside,
        f"{key}.changed_inside": finding.changed_inside,
    }
    if finding.sharpness_outside is not None or not finding.pixels_outside:
        scores[f"{key}.sharpness_outside"] = finding.sharpness_outside
    if config.tolerance == "reencode":
        if finding.isolated is not None:
            scores[f"{key}.isolated_change"] = finding.isolated.pixels
        elif not finding.pixels_outside:
            scores[f"{key}.isolated_change"] = None
    if config.tolerance != "exact":
        scores |= finding.registration.scores(config, finding.base_size)
    if config.tolerance == "redrawn":
        redraw = finding.redraw
        values = (redraw.content, redraw.overall, redraw.tone, redraw.displacement) if redraw else (None,) * 4
        scores |= dict(zip(config.redraws, values, strict=True))
    return scores


def _failures(finding: LocalityFinding, config: LocalityGrader) -> list[str]:
    """The reasons why the edit fails; empty if all measured values are within the limits."""
    failures = []
    width, height = finding.image_size
    base_width, base_height = finding.base_size
    if finding.registration.distorted:
        failures.append(
            f"the output is {width}x{height}; its aspect ratio differs from the base image's"
            f" {base_width}x{base_height}, so everything was cropped or stretched"
        )
    elif config.tolerance == "exact" and finding.image_size != finding.base_size:
        failures.append(f"the output is {width}x{height}, the base image {base_width}x{base_height}")
    colors = finding.color_spaces.failure("base image")
    if config.tolerance == "exact" and colors:
        failures.append(colors)
    outside = outside_failure(finding, config)
    if outside is not None:
        noted = None if config.tolerance == "exact" else colors
        hint = None
        if finding.mark and not config.except_marks:
            hint = f"{PROVIDER}'s corner mark is {place(finding.mark)}: 'except_marks: true' leaves it out"
        failures.append("; ".join(filter(None, [outside, alpha_text(finding.alpha_outside), noted, hint])))
    failures += finding.registration.failures(config, finding.base_size)
    sharpness = finding.sharpness_outside
    if sharpness is not None and sharpness < config.min_sharpness_outside:
        failures.append(
            f"outside the mask, {sharpness:g} of the fine detail is left, below the limit of "
            f"{config.min_sharpness_outside:g}: the output is blurred"
        )
    inside = finding.changed_inside
    if inside is not None and inside < config.min_changed_inside:
        failures.append(
            f"{percent(inside)} of the pixels inside the mask changed, below the limit of "
            f"{percent(config.min_changed_inside)}: the edit is missing"
            + (
                ", or the mask is much larger than the edit: set 'min_changed_inside' lower, or draw it closer"
                if inside
                else ""
            )
        )
    return failures


def outside_failure(finding: LocalityFinding, config: LocalityGrader) -> str | None:
    """Why the pixels outside the mask fail, if they do; the first limit that is exceeded."""
    if config.tolerance == "redrawn":
        return _redraw_failure(finding.redraw, config) if finding.redraw else None
    isolated = finding.isolated
    if (spread := _spread_failure(finding, config)) is not None:
        return spread
    if isolated is None or isolated.window is None or isolated.pixels <= config.max_isolated_change:
        return None
    return (
        f"outside the mask, {isolated.pixels:,} pixels {place(isolated.window)}"
        f" changed visibly, above the limit of {config.max_isolated_change:,}, while the area around them is identical"
    )


def _spread_failure(finding: LocalityFinding, config: LocalityGrader) -> str | None:
    share, worst, window = finding.changed_outside, finding.worst_window, finding.window
    if share is None or worst is None or window is None:
        return None
    at = place(window)
    if share > config.max_changed_outside:
        limit = percent(config.max_changed_outside)
        return (
            f"{percent(share)} of the pixels outside the mask changed, above the limit of {limit}; "
            f"the worst window is {at}"
        )
    if worst > config.max_worst_window:
        limit = percent(config.max_worst_window)
        return (
            f"outside the mask, {percent(worst)} of the window {at} changed visibly, above the limit of {limit} "
            f"({percent(share)} of all pixels outside changed)"
        )
    return None


def _redraw_failure(redraw: Redraw, config: LocalityGrader) -> str | None:
    sharpened = f"a {'gain' if redraw.sharpness > 0 else 'loss'} of sharpness of {percent(abs(redraw.sharpness))}"
    undone = (
        f"after a displacement of up to {percent(redraw.displacement)} of the shorter side, a change of tone by"
        f" {redraw.tone:g} levels and {sharpened if redraw.sharpness else 'no change of sharpness'} were undone"
    )
    if redraw.overall > config.max_redraw:
        return (
            f"outside the mask, one of ten windows differs by {redraw.overall:g} or more, above the limit of"
            f" {config.max_redraw:g} (CIE76): the output shows something else, {undone}"
        )
    if redraw.content > config.max_content_change:
        detail = ""
        if redraw.cause == "sharpness":
            word = "gained" if redraw.local_sharpness > 0 else "lost"
            detail = f"; detail {word} {percent(abs(redraw.local_sharpness))} of its contrast"
        return (
            f"outside the mask, the {redraw.cause} changed by {redraw.content:g}, above the limit of"
            f" {config.max_content_change:g}, {place(redraw.window)} (CIE76 beyond {REST:g} times the rest{detail}),"
            f" {undone}"
        )
    return None


def _unmeasured(finding: LocalityFinding, config: LocalityGrader) -> str | None:
    empty = []
    if finding.changed_outside is None:
        empty.append("no pixel is outside the mask")
    elif config.tolerance == "redrawn" and finding.redraw is None:
        empty.append("too little is outside the mask to tell a redraw from a change")
    if finding.changed_inside is None:
        empty.append("no pixel is inside the mask")
    return "; ".join(empty) or None


def _details(finding: LocalityFinding, config: LocalityGrader, map_path: str) -> dict[str, Any]:
    redraw = finding.redraw
    limits = ["max_changed_outside", "max_worst_window", "max_isolated_change"]
    limits += ["max_content_change", "max_redraw"] if config.tolerance == "redrawn" else []
    limits += ["min_changed_inside", "max_shift", "max_magnification", "min_sharpness_outside", "dilate"]
    return {
        "tolerance": config.tolerance,
        "base_size": "x".join(map(str, finding.base_size)),
        "output_size": "x".join(map(str, finding.image_size)),
        **finding.color_spaces.as_details(),
        "registration": finding.registration.as_details(),
        "sharpening": finding.sharpening,
        **({"encoded_again": finding.isolated is None} if config.tolerance == "reencode" else {}),
        "pixels_outside": finding.pixels_outside,
        "pixels_inside": finding.pixels_inside,
        **({"alpha_outside": dict(finding.alpha_outside)} if finding.alpha_outside else {}),
        "window": as_box(finding.window),
        "isolated_window": as_box(finding.isolated.window if finding.isolated else None),
        "limits": {name: getattr(config, name) for name in limits},
        **({"corner_mark": as_box(finding.mark)} if finding.mark else {}),
        **({"redraw_window": as_box(redraw.window), "redraw_sharpness": redraw.sharpness} if redraw else {}),
        "difference_map": map_path,
    }


def _share(changed: Mask, region: Mask) -> float | None:
    """The share of ``region`` that changed; ``None``, never 0, where there is no region."""
    pixels = int(region.sum())
    return int(changed.sum()) / pixels if pixels else None


def _dilated(mask: Mask, pixels: int) -> Mask:
    """The mask and every pixel within that distance of it."""
    if not pixels:
        return mask
    distance = cv2.distanceTransform((~mask).astype(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE)
    # Squared distances are integers, so a limit halfway between two of them is safe from rounding errors.
    dilated: Mask = distance < math.sqrt(pixels**2 + 0.5)
    return dilated & bool(mask.any())


def _size(array: Any) -> str:
    return f"{array.shape[1]}x{array.shape[0]}"
