"""Diversity: the mean distance between the samples of one case on one model run.

The distance of two images is measured as by ``reference``: after one is scaled and registered to the other, so that a
shifted or resized copy has a distance near 0.

- ``distance``, 0..2, 0 is identical: 1 - the mean structural similarity of luma (Wang et al. 2004). It does
  not see color. Two images of one prompt by different real models have 0.44 to 0.73, a JPEG copy 0.01.
- ``delta_e``, 0 and up, 0 is identical: the mean color difference, CIEDE2000 (Sharma et al. 2005).

Both are rounded to 4 decimals. The larger image is the base, so that the order of two images does not matter.

Source of the mean similarity over pairs as a measure of diversity: A. Odena, C. Olah and J. Shlens, "Conditional image
synthesis with auxiliary classifier GANs", ICML 2017, with pairs of images of one class and MS-SSIM instead of SSIM.
"""

from __future__ import annotations

from functools import partial
from hashlib import file_digest

from visioneval.errors import GraderError
from visioneval.graders.base import SampleDistance
from visioneval.graders.diversity.config import DiversityGrader
from visioneval.graders.measures import Measure
from visioneval.graders.pixels.color import Pixels
from visioneval.graders.pixels.difference import SCORE_DIGITS, TOOL_VERSIONS, mean_delta_e, mean_ssim
from visioneval.graders.pixels.reference import compared_region
from visioneval.graders.pixels.registration import align, read_pixels
from visioneval.media.images import room_for
from visioneval.media.opencv import portable_opencv
from visioneval.types import Output


class Diversity:
    """The grader. Stateless, so that pairs can be measured concurrently."""

    def __init__(self, config: DiversityGrader) -> None:
        self._config = config

    def measure(self, first: Output, second: Output) -> Measure[SampleDistance]:
        """The measure of two images, in any order. It raises ``GraderError`` if one does not decode or has changed."""
        base, other = sorted((first, second), key=lambda image: (-image.width * image.height, image.sha256))
        files = {"base": base.path, "other": other.path}
        run = partial(_measure_files, base, other)
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


def _measure_files(base: Output, other: Output) -> SampleDistance:
    for image in (base, other):
        _check_unchanged(image)
    with room_for(base.path, other.path):
        return measure_distance(read_pixels(base.path), read_pixels(other.path))


def _check_unchanged(image: Output) -> None:
    try:
        with image.path.open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise GraderError(f"{image.path.name}: cannot be read: {error.strerror}") from None
    if digest != image.sha256:
        raise GraderError(f"{image.path.name}: was changed after it was generated")
