"""Combines the votes of one judge into one score, without a bias towards no or towards low scores. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, TypeVar

from visioneval.types import Score

AnswerT = TypeVar("AnswerT", bound=Hashable)


def combined_vote(values: Sequence[Score]) -> Score:
    """The most frequent word, or yes or no, or the median of numbers; ``None`` if half of the votes or more are lost.

    ``values`` are the votes in the order in which they were asked, ``None`` for a lost one. The first vote for one of
    the most frequent answers decides a tie, and an even number of numbers has the mean of the two middle ones. With two
    votes, the expected score is then the judge's own rate or mean. A tie rule that always says no would turn a rate of
    .9 into .81.
    """
    counted = usable_votes(values)
    if len(counted) * 2 <= len(values):
        return None
    return most_frequent(counted) if isinstance(counted[0], (bool, str)) else median(counted)


def median(values: Sequence[int | float]) -> int | float:
    """The median of one or more numbers; of an even number, the mean of the two middle ones."""
    low, high = _middle(values)
    return low if low == high else (low + high) / 2


def most_frequent(votes: Sequence[AnswerT]) -> AnswerT:
    """The most frequent of one or more answers in order; the first vote for one of them decides a tie."""
    return Counter(votes).most_common(1)[0][0]


def is_tie(values: Sequence[Score]) -> bool:
    """Whether the tie rule decided: two answers are the most frequent ones, or the two middle numbers differ."""
    counted = usable_votes(values)
    if len(counted) * 2 <= len(values):
        return False
    if isinstance(counted[0], (bool, str)):
        times = sorted(Counter(counted).values())
        return len(times) > 1 and times[-1] == times[-2]
    low, high = _middle(counted)
    return low != high


def usable_votes(values: Sequence[Score]) -> list[Any]:
    """The votes that are not lost, in order."""
    return [value for value in values if value is not None]


def _middle(values: Sequence[int | float]) -> tuple[int | float, int | float]:
    """The two middle values, which are the same one if their number is odd."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
