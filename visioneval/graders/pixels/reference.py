"""Reference, the similarity of the output to a reference image; and diversity, the distance of samples of one case.

Metrics over the reference's pixels, after the output is scaled and registered to it:

- ``<key>.ssim``, -1..1, 1 is identical: the mean structural similarity of luma (Wang et al. 2004).
- ``<key>.delta_e``, 0 and up: the mean color difference, CIEDE2000 (Sharma et al. 2005); 1 is just noticeable.
- ``<key>.worst_window``, 0..1: the largest share of any window of 24 x 24 pixels in which a change is seen, as
  ``locality`` measures it, so that a small change cannot hide in the averages. Sharpening of the whole image is undone
  before.
- ``<key>.shift``, 0 and up, and ``<key>.magnification``, 1 and up: the shift of the whole image, as a share of the
  reference's shorter side, and the factor by which it is enlarged or reduced. Up to 2 % of the longer side were undone
  before the comparison. Not measured where the aspect ratio differs.
- ``<key>``: the output has the reference's aspect ratio, and all metrics are within the limits.

All but the share are rounded to 4 decimals first, so that the record and the verdict agree.

Where either image has transparency, both are compared on black and on white, and each pixel counts with the worse of
the two. Pixels that are fully transparent in both do not count.

An output smaller than the reference is compared at its own level of detail: the ``properties`` grader checks the size.

Diversity is the mean distance between the samples of one case on one model run. The distance of two images is measured
after one is scaled and registered to the other, so that a shifted or resized copy has a distance near 0.

- ``distance``, 0..2, 0 is identical: 1 - the mean structural similarity of luma. It does not see color. Two images of
  one prompt by different real models have 0.44 to 0.73, a JPEG copy 0.01.
- ``delta_e``, 0 and up, 0 is identical: the mean color difference.

Both are rounded to 4 decimals. The larger image is the base, so that the order of two images does not matter.

Source of the mean similarity over pairs as a measure of diversity: A. Odena, C. Olah and J. Shlens, "Conditional image
synthesis with auxiliary classifier GANs", ICML 2017, with pairs of images of one class and MS-SSIM instead of SSIM.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import file_digest
from pathlib import Path

from visioneval.errors import GraderError
from visioneval.graders.base import Grade, GradingContext, SampleDistance
from visioneval.graders.measures import Measure
from visioneval.graders.pixels import DiversityGrader, ReferenceGrader
from visioneval.graders.pixels.color import (
    Mask,
    Pixels,
    alpha_changes,
    alpha_text,
    percent,
    visible_pixels,
)
from visioneval.graders.pixels.difference import (
    SCORE_DIGITS,
    TOOL_VERSIONS,
    as_box,
    difference_map,
    different,
    mean_delta_e,
    mean_ssim,
    place,
    worst_window,
)
from visioneval.graders.pixels.registration import (
    AlignedPair,
    ColorSpaces,
    Registration,
    align,
    read_color_spaces,
    read_pixels,
)
from visioneval.graders.pixels.sharpening import softened_alike
from visioneval.media.images import room_for
from visioneval.media.opencv import portable_opencv
from visioneval.types import Output

_LIMITS = ("min_ssim", "max_delta_e", "max_worst_window", "max_shift", "max_magnification")


@dataclass(frozen=True, slots=True)
class ReferenceFinding:
    """``ssim`` is -1..1, ``delta_e`` a mean CIEDE2000, ``changed`` the share of pixels that changed visibly.

    ``window`` is ``(left, top, width, height)`` of the worst window in the reference; ``None`` without a change.
    ``sharpening`` is by how much fine detail was amplified in the whole image: 0 is not, 1 is twice the contrast.

    ``alpha`` are the shares of the pixels that changed in transparency; empty for opaque images.

    Sizes are width and height in pixels.
    """

    image_size: tuple[int, int]
    reference_size: tuple[int, int]
    ssim: float
    delta_e: float
    changed: float
    worst_window: float
    window: tuple[int, int, int, int] | None
    sharpening: float
    alpha: Mapping[str, float]
    registration: Registration
    difference_map: bytes
    color_spaces: ColorSpaces = field(default=ColorSpaces("sRGB", "sRGB", are_same=True))


@portable_opencv()
def measure_reference(reference: Pixels, output: Pixels) -> ReferenceFinding:
    """Measures an output of any size against the reference. Both are RGB or straight RGBA."""
    aligned = align(reference, output)
    region = compared_region(aligned)
    alike, sharpening = softened_alike(aligned, region)
    changed = alike.changed_visibly(region)
    worst, window = worst_window(changed, region)
    return ReferenceFinding(
        image_size=(output.shape[1], output.shape[0]),
        reference_size=(reference.shape[1], reference.shape[0]),
        ssim=round(mean_ssim(aligned.base, aligned.output, region), SCORE_DIGITS),
        delta_e=round(mean_delta_e(aligned.base, aligned.output, region), SCORE_DIGITS),
        changed=int((changed & different(aligned.base, aligned.output)).sum()) / int(region.sum()),
        worst_window=worst,
        window=window if worst else None,
        sharpening=sharpening,
        alpha=alpha_changes(aligned.whole_base, aligned.output, region),
        registration=aligned.registration,
        difference_map=difference_map(aligned.output, changed, window=window if worst else None),
    )


def compared_region(aligned: AlignedPair) -> Mask:
    """The pixels that count, ``(height, width)``: those that are not fully transparent in both images."""
    region = aligned.valid & visible_pixels(aligned.whole_base, aligned.output)
    return region if region.any() else aligned.valid  # both are fully transparent


class Reference:
    """The grader. Stateless, so that cells can be graded concurrently."""

    def __init__(self, config: ReferenceGrader) -> None:
        self._config = config

    async def grade(self, context: GradingContext) -> Grade:
        """Raises ``GraderError`` if the case has no reference or a file does not decode."""
        config = self._config
        if context.files.reference is None:
            raise GraderError("the case has no reference")
        files = {"reference": context.files.reference, "output": context.generated.path}
        run = partial(_measure_files, **files)
        finding = await context.measure(Measure("reference", files, run, ReferenceFinding, tool_versions=TOOL_VERSIONS))
        map_path = await asyncio.to_thread(context.save, f"{config.key}.difference.png", finding.difference_map)
        reasons = failures(finding, config)
        return Grade(
            scores={
                config.key: not reasons,
                f"{config.key}.ssim": finding.ssim,
                f"{config.key}.delta_e": finding.delta_e,
                f"{config.key}.worst_window": finding.worst_window,
                **finding.registration.scores(config, finding.reference_size),
            },
            reasons={config.key: "; ".join(reasons)} if reasons else {},
            details={
                "output_size": "x".join(map(str, finding.image_size)),
                "reference_size": "x".join(map(str, finding.reference_size)),
                **finding.color_spaces.as_details(),
                "registration": finding.registration.as_details(),
                "changed": finding.changed,
                "sharpening": finding.sharpening,
                "window": as_box(finding.window),
                **({"alpha": dict(finding.alpha)} if finding.alpha else {}),
                "limits": {name: getattr(config, name) for name in _LIMITS},
                "difference_map": map_path,
            },
            tool_versions=TOOL_VERSIONS,
        )


def _measure_files(reference: Path, output: Path) -> ReferenceFinding:
    """Measures a file against the reference. Raises ``GraderError`` if one does not decode."""
    with room_for(reference, output):
        finding = measure_reference(read_pixels(reference), read_pixels(output))
        return replace(finding, color_spaces=read_color_spaces(reference, output))


def failures(finding: ReferenceFinding, config: ReferenceGrader) -> list[str]:
    """The reasons why the output fails; empty if all measures are within the limits."""
    reasons = [*finding.registration.failures(config, finding.reference_size)]
    if finding.registration.distorted:
        shapes = ["x".join(map(str, shape)) for shape in (finding.image_size, finding.reference_size)]
        reasons.append(f"the output is {shapes[0]}; its aspect ratio differs from the reference's {shapes[1]}")
    if finding.ssim < config.min_ssim:
        reasons.append(
            f"the structural similarity is {finding.ssim:.{SCORE_DIGITS}f}, below the limit of {config.min_ssim:g}"
        )
    if finding.delta_e > config.max_delta_e:
        reasons.append(
            f"the mean color difference is {finding.delta_e:.{SCORE_DIGITS}f} (CIEDE2000), "
            f"above the limit of {config.max_delta_e:g}"
        )
    if finding.window is not None and finding.worst_window > config.max_worst_window:
        reasons.append(
            f"{percent(finding.worst_window)} of the window {place(finding.window)}"
            f" changed visibly, above the limit of {percent(config.max_worst_window)}"
            f" ({percent(finding.changed)} of all pixels changed)"
        )
    if reasons:
        noted = (alpha_text(finding.alpha), finding.color_spaces.failure("reference"))
        reasons += filter(None, noted)
    return reasons


class Diversity:
    """The grader of samples. Stateless, so that pairs can be measured concurrently."""

    def __init__(self, config: DiversityGrader) -> None:
        self._config = config

    def measure(self, first: Output, second: Output) -> Measure[SampleDistance]:
        """The measure of two images, in any order. It raises ``GraderError`` if one does not decode or has changed."""
        base, other = sorted((first, second), key=lambda image: (-image.width * image.height, image.sha256))
        files = {"base": base.path, "other": other.path}
        run = partial(_measure_pair, base, other)
        return Measure("diversity", files, run, SampleDistance, tool_versions=TOOL_VERSIONS)


@portable_opencv()
def measure_distance(base: Pixels, other: Pixels) -> SampleDistance:
    """The distance of two images of any size, RGB or straight RGBA. Scales ``other`` to the size of ``base``."""
    aligned = align(base, other)
    region = compared_region(aligned)
    return SampleDistance(
        distance=round(1 - mean_ssim(aligned.base, aligned.output, region), SCORE_DIGITS),
        delta_e=round(mean_delta_e(aligned.base, aligned.output, region), SCORE_DIGITS),
    )


def _measure_pair(base: Output, other: Output) -> SampleDistance:
    for image in (base, other):
        try:
            with image.path.open("rb") as file:
                digest = file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise GraderError(f"{image.path.name}: cannot be read: {error.strerror}") from None
        if digest != image.sha256:
            raise GraderError(f"{image.path.name}: was changed after it was generated")
    with room_for(base.path, other.path):
        return measure_distance(read_pixels(base.path), read_pixels(other.path))
