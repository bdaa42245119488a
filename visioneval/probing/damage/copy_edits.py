"""Mistakes in a line of copy, as pure functions of its text. Every mistake is visible in print."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from visioneval.probing.damage.subject import CannotPlantError

Random = np.random.Generator

_SHAPES = ("OQCGDSUJ", "ILTEFHN", "AVWXYKMZ", "BPR", "oceasuqdgbp", "iltfjr", "vwxyzk", "hnm")
"""Letters of similar shapes. A replacement comes from another group of the same case."""
_SAME_IN_BOTH_CASES = "cosuvwxzpk"
_MARKS = ".,!?:;"


def letter_replaced(line: str, random: Random) -> str:
    """One letter becomes a letter of another shape."""
    at = _pick(line, lambda position: any(line[position] in group for group in _SHAPES), random, "no Latin letter")
    others = [
        letter
        for group in _SHAPES
        if line[at] not in group and group[0].isupper() == line[at].isupper()
        for letter in group
    ]
    return line[:at] + others[int(random.integers(len(others)))] + line[at + 1 :]


def letter_dropped(line: str, random: Random) -> str:
    """One letter is missing."""
    at = _pick(line, lambda position: line[position].isalpha(), random, "no letter")
    return line[:at] + line[at + 1 :]


def letter_doubled(line: str, random: Random) -> str:
    """One letter is there twice."""
    at = _pick(line, lambda position: line[position].isalpha(), random, "no letter")
    return line[:at] + line[at] + line[at:]


def letters_swapped(line: str, random: Random) -> str:
    """Two neighboring letters change places."""

    def is_pair(position: int) -> bool:
        pair = line[position : position + 2]
        return (
            len(pair) == 2
            and pair.isalpha()
            and pair[0].lower() != pair[1].lower()
            and (pair.islower() or pair.isupper())
        )

    at = _pick(line, is_pair, random, "no two different letters of one case side by side")
    return line[:at] + line[at + 1] + line[at] + line[at + 2 :]


def case_changed(line: str, random: Random) -> str:
    """One letter changes its case, and by that its shape."""

    def has_two_shapes(position: int) -> bool:
        letter = line[position]
        return letter.isascii() and letter.isalpha() and letter.lower() not in _SAME_IN_BOTH_CASES

    at = _pick(line, has_two_shapes, random, "no letter whose capital has another shape")
    return line[:at] + line[at].swapcase() + line[at + 1 :]


def punctuation_changed(line: str, random: Random) -> str:
    """A mark of the line is missing; a line without marks gets an exclamation mark at its end."""
    positions = [position for position, letter in enumerate(line) if letter in _MARKS]
    if not positions:
        return f"{line}!"
    at = positions[int(random.integers(len(positions)))]
    return line[:at] + line[at + 1 :]


def _pick(line: str, fits: Callable[[int], bool], random: Random, without: str) -> int:
    positions: Sequence[int] = [position for position in range(len(line)) if fits(position)]
    inner = [
        position
        for position in positions
        if 0 < position < len(line) - 1 and line[position - 1 : position + 2].isalpha()
    ]
    positions = inner or positions
    if not positions:
        raise CannotPlantError(f"its line has {without}")
    return positions[int(random.integers(len(positions)))]
