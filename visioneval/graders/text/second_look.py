"""Looks again at an image on which the first reading does not show the required copy, with that copy in mind.

Each line that was nearly read is weighed: the recognizer says with what probability the place shows the line as
required. A line that it shows for sure counts as read; one that it may show cannot be decided; all others stay as they
were read. Forbidden lines are never weighed, nor is a reading in which one stands. Where a line is still missing, the
image is read more closely, for text that the detector overlooked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Literal

import numpy as np
from PIL import Image

from visioneval.graders.text import networks, ocr
from visioneval.graders.text.check import candidates, check, torn_lines
from visioneval.graders.text.layout import Corners, Reading, apart, around, merged, overlap
from visioneval.graders.text.match import copy_of
from visioneval.media.opencv import portable_opencv
from visioneval.suite.case import ExpectText

SURE = -3.0
"""The log-likelihood from which a line counts as read, in its box and in a wider one. Of 1,202 lines with one mistake
each, none reached it in both (2 in the box alone)."""
SURE_IN_ONE = -0.7
"""The log-likelihood from which a line counts as read that is possible, if it is read at another size. None of the
1,202 lines reached it at any size."""
POSSIBLE = -8.0
"""The log-likelihood from which a line may be there: 17 of the 1,202 lines reached it."""
FEW = 5
"""The most readings of an image beside which single words may have been overlooked. Of 34 words on flat canvases, the
detector overlooked 7 beside one other word, and 5 beside two."""
MISSPELLED = 2
"""A line that was read with at most so many other characters is misspelled. With more, it may have been read badly."""
_WIDER = (0.25, 0.08)
"""How much wider and higher the wider box is on each side, in heights of the line."""
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
    """The readings of an image, with those of closer looks, and with lines that were weighed.

    ``images`` are the image on each background that it needs. Raises ``GraderError``.
    """
    weighed = current = _weighed(images, readings, expected, min_confidence)
    state = _state(current, expected, min_confidence)
    is_looked_for = state == "far" or (state == "misspelled" and len(current) <= FEW)
    if is_looked_for or _may_hide(current, expected, images[0].size):
        current = _with(current, [ocr.read_windows(image, current) for image in images], expected, min_confidence)
        state = _state(current, expected, min_confidence)
    if state == "far":
        current = _with(current, [ocr.read_enlarged(image) for image in images], expected, min_confidence)
    return current if current == weighed else _weighed(images, current, expected, min_confidence)


def _state(
    readings: Sequence[Reading], expected: ExpectText, min_confidence: float
) -> Literal["settled", "misspelled", "far"]:
    """Whether all required lines were read or may be, or one was read with other characters, or not at all."""
    comparison = check(readings, expected, fold=True, min_confidence=min_confidence)
    doubts = {pair.doubt for pair in comparison.unsettled}
    is_far = any(miss.nearest is None or miss.edits > MISSPELLED for miss in comparison.missing)
    if is_far or doubts & {"unread", "curved"}:
        return "far"
    return "misspelled" if comparison.missing or "faint" in doubts else "settled"


def _with(
    readings: Sequence[Reading], looks: Sequence[Sequence[Reading]], expected: ExpectText, min_confidence: float
) -> list[Reading]:
    """The readings and those of further looks. A reading with a required or forbidden line is not replaced."""
    comparison = check(readings, expected, fold=True, min_confidence=min_confidence)
    pairs = (*comparison.matched, *comparison.forbidden, *comparison.unsettled_forbidden)
    settled = [readings[index] for pair in pairs for index in pair.readings]
    return merged([readings, *(apart(look, settled) for look in looks)])


@portable_opencv()
def _weighed(
    images: Sequence[Image.Image], readings: Sequence[Reading], expected: ExpectText, min_confidence: float
) -> list[Reading]:
    """The readings after each line that was nearly read was weighed, also with lines that share its reading."""
    current, weighed = _in_one_piece(images, readings, expected, min_confidence), set[tuple[Reading, str]]()
    for _ in range(_ROUNDS):
        changed: set[int] = set()
        for index, text in candidates(current, expected, min_confidence=min_confidence):
            reading = current[index]
            if index in changed or (reading, text) in weighed:
                continue
            weighed.add((reading, text))
            current[index] = _decided(images, reading, text)
            if current[index].text != reading.text:
                changed.add(index)
        if not changed:
            break
    return current


def _in_one_piece(
    images: Sequence[Image.Image], readings: Sequence[Reading], expected: ExpectText, min_confidence: float
) -> list[Reading]:
    """The readings, with each nearly read line of which the row was torn into several read again as a whole.

    The detector tears lines with wide spacing, and leaves out narrow letters between the pieces.
    """
    current = list(readings)
    torn = torn_lines(readings, expected, min_confidence=min_confidence)
    for row in ([readings[index] for index in indices] for indices in torn):
        others = [reading for reading in current if reading not in row]
        whole = replace(row[0], corners=around(row))
        if len(others) + len(row) == len(current) and not any(overlap(whole, other) for other in others):
            again = max((ocr.read_row(image, around(row)) for image in images), key=lambda reading: reading.confidence)
            has_all = len(again.text.replace(" ", "")) >= sum(len(reading.text.replace(" ", "")) for reading in row)
            if has_all and again.confidence >= min(reading.confidence for reading in row):
                current = merged([[*others, again]])
    return current


def _decided(images: Sequence[Image.Image], reading: Reading, text: str) -> Reading:
    """The reading with another text, with that as what it may say, or as it is."""
    if reading.corners is None:
        return reading
    chars = copy_of(text, fold=True).chars
    best = max((_likelihoods(image, reading.corners, chars) for image in images), key=max)
    in_box, in_wider_box, *at_other_sizes = best
    is_possible = max(in_box, in_wider_box) >= POSSIBLE
    if min(in_box, in_wider_box) >= SURE or (is_possible and max(at_other_sizes) >= SURE_IN_ONE):
        return replace(reading, text=text, read_as=reading.read_as or reading.text, shown=(), possible=None)
    # Another case or a letter too many is a mistake: the model weighs these much like the text, and reads them only
    # where they stand.
    read, letters = (copy_of(line, fold=True).chars.casefold() for line in (reading.text, text))
    once = [[letter for letter, _ in groupby(line)] for line in (read, letters)]
    is_misspelled = len(read) >= len(letters) and once[0] == once[1]
    return replace(reading, possible=text) if is_possible and not is_misspelled else reading


def _likelihoods(image: Image.Image, corners: Corners, chars: str) -> list[float]:
    """The log-likelihoods of a text in the box, in a wider one, and in the box at half and at twice its size."""
    line = networks.crop(image, corners)
    half, double = (
        line.resize((max(1, round(line.width * factor)), max(1, round(line.height * factor))), Image.Resampling.LANCZOS)
        for factor in (0.5, 2.0)
    )
    views = (line, networks.crop(image, _wider(corners)), half, double)
    return [networks.log_likelihood(view, chars) for view in views]


def _wider(corners: Corners) -> Corners:
    """The box with more around it, as a detector may cut the first or last character."""
    a, b, c, d = (np.array(corner) for corner in corners)
    along, down = (b - a + c - d) / 2, (d - a + c - b) / 2
    side = min(np.hypot(*along), np.hypot(*down))
    along, down = (way / max(np.hypot(*way), 1) * side for way in (along, down))
    x, y = along * _WIDER[0], down * _WIDER[1]
    first, second, third, fourth = ((float(px), float(py)) for px, py in (a - x - y, b + x - y, c + x + y, d - x + y))
    return first, second, third, fourth
