"""Combines the votes of one judge into one score, without a bias towards no or towards low scores. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from visioneval.types import Score


def combined_vote(values: Sequence[Score]) -> Score:
    """The majority of yes and no, or the median of numbers; ``None`` if half of the votes or more are lost.

    ``values`` are the votes in the order in which they were asked, ``None`` for a lost one. The first usable vote
    decides a tie, and an even number of numbers has the mean of the two middle ones. With two votes, the expected score
    is then the judge's own rate or mean. A tie rule that always says no would turn a rate of .9 into .81.
    """
    counted = usable_votes(values)
    if len(counted) * 2 <= len(values):
        return None
    if isinstance(counted[0], bool):
        return majority([bool(value) for value in counted])
    return median(counted)


def median(values: Sequence[int | float]) -> int | float:
    """The median of one or more numbers; of an even number, the mean of the two middle ones."""
    low, high = _middle(values)
    return low if low == high else (low + high) / 2


def majority(votes: Sequence[bool]) -> bool:
    """The majority of one or more votes in order; the first one decides a tie."""
    yes = sum(votes)
    return votes[0] if yes * 2 == len(votes) else yes * 2 > len(votes)


def is_tie(values: Sequence[Score]) -> bool:
    """Whether the tie rule decided: as many say yes as no, or the two middle numbers differ."""
    counted = usable_votes(values)
    if len(counted) * 2 <= len(values):
        return False
    if isinstance(counted[0], bool):
        return sum(counted) * 2 == len(counted)
    low, high = _middle(counted)
    return low != high


def usable_votes(values: Sequence[Score]) -> list[bool | int | float]:
    """The votes that are not lost, in order."""
    return [value for value in values if value is not None]


def _middle(values: Sequence[int | float]) -> tuple[int | float, int | float]:
    """The two middle values, which are the same one if their number is odd."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
