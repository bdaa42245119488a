"""Reference: how like an image of the right answer the output is.

Metrics, over the reference's pixels, once the output has been scaled and registered to it:

- ``<key>.ssim``, -1..1, 1 is the same: the mean structural similarity of luma (Wang et al. 2004).
- ``<key>.delta_e``, 0 and up: the mean colour difference, CIEDE2000 (Sharma et al. 2005); 1 is just noticeable.
- ``<key>``: the output has the reference's shape, and both keep to the options' limits.

Both are rounded to 4 decimals before anything else is done with them, so that the record and the verdict agree.

An output smaller than the reference is compared at its own detail: its size is the ``image`` grader's business.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from visioneval.errors import GraderError
from visioneval.graders.base import Grade, GradingContext
from visioneval.graders.pixels.config import ReferenceGrader
from visioneval.graders.pixels.difference import (
    SCORE_DIGITS,
    TOOL_VERSIONS,
    Pixels,
    changed_visibly,
    difference_map,
    mean_delta_e,
    mean_ssim,
)
from visioneval.graders.pixels.registration import Registration, lay_over, read_pixels
from visioneval.media.images import room_for
from visioneval.media.opencv import portable_opencv


@dataclass(frozen=True, slots=True)
class ReferenceFinding:
    """``ssim`` is -1..1, ``delta_e`` a mean CIEDE2000, ``changed`` the share of visibly changed pixels, 0..1."""

    ssim: float
    delta_e: float
    changed: float
    registration: Registration
    difference_map: bytes


@portable_opencv()
def measure_reference(reference: Pixels, output: Pixels) -> ReferenceFinding:
    """Measures an output of any size against the reference."""
    laid = lay_over(reference, output)
    changed = changed_visibly(
        laid.base, laid.output, laid.valid, grainy=laid.whole_base, coarseness=laid.registration.coarseness
    )
    return ReferenceFinding(
        ssim=round(mean_ssim(laid.base, laid.output, laid.valid), SCORE_DIGITS),
        delta_e=round(mean_delta_e(laid.base, laid.output, laid.valid), SCORE_DIGITS),
        changed=int(changed.sum()) / int(laid.valid.sum()),
        registration=laid.registration,
        difference_map=difference_map(laid.output, changed),
    )


class Reference:
    """The grader. Stateless, so that cells may be graded at the same time."""

    def __init__(self, config: ReferenceGrader) -> None:
        self._config = config

    async def grade(self, subject: GradingContext) -> Grade:
        """Raises ``GraderError`` where the case has no reference, or a file does not decode."""
        return await asyncio.to_thread(self._in_room, subject)

    def _in_room(self, subject: GradingContext) -> Grade:
        with room_for(*filter(None, (subject.files.reference, subject.generated.path))):
            return self._grade(subject)

    def _grade(self, subject: GradingContext) -> Grade:
        config = self._config
        if subject.files.reference is None:
            raise GraderError("the case has no reference")
        reference, output = read_pixels(subject.files.reference), read_pixels(subject.generated.path)
        finding = measure_reference(reference, output)
        saved = subject.save(f"{config.key}.difference.png", finding.difference_map)
        sizes = [f"{image.shape[1]}x{image.shape[0]}" for image in (output, reference)]
        failures = _failures(finding, config, *sizes)
        return Grade(
            scores={
                config.key: not failures,
                f"{config.key}.ssim": finding.ssim,
                f"{config.key}.delta_e": finding.delta_e,
            },
            reasons={config.key: "; ".join(failures)} if failures else {},
            details={
                "picture_size": sizes[0],
                "reference_size": sizes[1],
                "registration": finding.registration.as_details(),
                "changed": finding.changed,
                "limits": {"min_ssim": config.min_ssim, "max_delta_e": config.max_delta_e},
                "difference_map": saved,
            },
            tool_versions=TOOL_VERSIONS,
        )


def _failures(finding: ReferenceFinding, config: ReferenceGrader, size: str, wanted: str) -> list[str]:
    found = []
    if finding.registration.distorted:
        found.append(f"the output is {size}, another shape than the reference's {wanted}")
    if finding.ssim < config.min_ssim:
        found.append(
            f"the structural similarity is {finding.ssim:.{SCORE_DIGITS}f}, at least {config.min_ssim:g} is asked for"
        )
    if finding.delta_e > config.max_delta_e:
        found.append(
            f"the mean colour difference is {finding.delta_e:.{SCORE_DIGITS}f} (CIEDE2000), "
            f"at most {config.max_delta_e:g} may be"
        )
    return found
