"""The mean of scores that are added one at a time. Pure."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from math import fsum
from typing import TypedDict


class ScoreSummary(TypedDict):
    """The mean of ``n`` scores (yes is 1), or ``null`` if none was measured."""

    value: float | None
    n: int
    unmeasured: int


def empty_array() -> array[float]:
    """An empty array of doubles. An order-independent sum needs every number, at eight bytes each."""
    return array("d")


@dataclass(slots=True)
class Scores:
    """Scores of one metric over many cells. Anything but a number is unmeasured."""

    measured: array[float] = field(default_factory=empty_array)
    unmeasured: int = 0

    def add(self, score: object) -> None:
        """Counts a score."""
        if isinstance(score, (int, float)):
            self.measured.append(float(score))
        else:
            self.unmeasured += 1

    def summary(self) -> ScoreSummary:
        """Returns the mean and the counts."""
        n = len(self.measured)
        return {"value": fsum(self.measured) / n if n else None, "n": n, "unmeasured": self.unmeasured}
