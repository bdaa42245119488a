"""Looks again at an image on which the first reading does not show the required copy, with that copy in mind.

First more closely, for text that the detector overlooked. Then each line that is nearly there is weighed: the
recognizer says with what probability the place shows the line as required. A line that it shows for sure counts as
read; one that it may show cannot be decided; all others stay as they were read. Forbidden lines are never weighed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from PIL import Image

from visioneval.graders.text.copy_check import Candidate, candidates, check
from visioneval.graders.text.copy_match import Corners, Reading, copy_of
from visioneval.graders.text.reading import networks, ocr
from visioneval.graders.text.reading.merging import apart, merged
from visioneval.media.opencv import portable_opencv
from visioneval.suite.cases.case import ExpectText

SURE = -3.0
"""The log-likelihood from which a line counts as read."""
POSSIBLE = -8.0
"""The log-likelihood from which a line may be there."""
FEW = 5
"""The most readings of an image beside which single words may have been overlooked. Of 34 words on flat canvases, the
detector overlooked 7 beside one other word, and 5 beside two."""
_ROUNDS = 3
"""How often lines are weighed again, for lines that share a reading."""


def is_needed(readings: Sequence[Reading], expected: ExpectText, *, passed: bool | None, size: tuple[int, int]) -> bool:
    """Whether a second look at an image of a ``size`` may change the verdict ``passed`` of the first."""
    return bool(passed is not True and expected.required) or _may_hide(readings, expected, size)


def _may_hide(readings: Sequence[Reading], expected: ExpectText, size: tuple[int, int]) -> bool:
    """Whether text that must not be there may have been overlooked."""
    must_not_be = bool(expected.forbidden) or expected.extra == "forbid"
    return must_not_be and (len(readings) <= FEW or size[0] * size[1] > ocr.MAX_AREA)


def look_again(
    images: Sequence[Image.Image], readings: Sequence[Reading], expected: ExpectText, min_confidence: float
) -> list[Reading]:
    """The readings of an image, with what a closer look found and what was weighed.

    ``images`` are the image on each background that it needs. Raises ``GraderError``.
    """
    current = list(readings)
    if _is_far(current, expected, min_confidence) or _may_hide(current, expected, images[0].size):
        current = _with(current, [ocr.read_windows(image, current) for image in images], expected, min_confidence)
    if _is_far(current, expected, min_confidence):
        current = _with(current, [ocr.read_enlarged(image) for image in images], expected, min_confidence)
    return _weighed(images, current, expected, min_confidence)


def _is_far(readings: Sequence[Reading], expected: ExpectText, min_confidence: float) -> bool:
    """Whether a required line is missing and nothing that was read is similar."""
    missing = check(readings, expected, fold=True, min_confidence=min_confidence).missing
    return any(miss.nearest is None for miss in missing)


def _with(
    readings: Sequence[Reading], looks: Sequence[Sequence[Reading]], expected: ExpectText, min_confidence: float
) -> list[Reading]:
    """The readings and those of further looks. A reading that has a required line is not replaced."""
    matched = check(readings, expected, fold=True, min_confidence=min_confidence).matched
    settled = [readings[index] for pair in matched for index in pair.readings]
    return merged([readings, *(apart(look, settled) for look in looks)])


@portable_opencv()
def _weighed(
    images: Sequence[Image.Image], readings: Sequence[Reading], expected: ExpectText, min_confidence: float
) -> list[Reading]:
    current = list(readings)
    for _ in range(_ROUNDS):
        changed: set[int] = set()
        for candidate in candidates(current, expected, min_confidence=min_confidence):
            if candidate.reading in changed or current[candidate.reading].possible == candidate.text:
                continue
            decided = _decided(images, current[candidate.reading], candidate)
            if decided != current[candidate.reading]:
                current[candidate.reading] = decided
                changed.add(candidate.reading)
        if not changed:
            break
    return current


def _decided(images: Sequence[Image.Image], reading: Reading, candidate: Candidate) -> Reading:
    """The reading with the candidate as its text, as what it may say, or as it is."""
    if reading.corners is None:
        return reading
    wanted = copy_of(candidate.text, fold=True).chars
    likelihood = max(
        networks.log_likelihoods(line, [wanted])[0] for image in images for line in _lines(image, reading.corners)
    )
    if likelihood > SURE:
        return replace(reading, text=candidate.text, read_as=reading.read_as or reading.text, shown=())
    return replace(reading, possible=candidate.text) if likelihood > POSSIBLE else reading


def _lines(image: Image.Image, corners: Corners) -> Iterator[Image.Image]:
    """The line at a place."""
    yield networks.crop(image, corners)
