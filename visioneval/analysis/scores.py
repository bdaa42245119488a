"""The mean of scores that come one by one. Pure."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from math import fsum
from typing import TypedDict


class ScoreSummary(TypedDict):
    """The mean of ``n`` scores, a yes being 1; ``null`` where nothing was measured."""

    value: float | None
    n: int
    unmeasured: int


def empty_array() -> array[float]:
    """An empty array of doubles. An order-independent sum needs every number, at eight bytes each."""
    return array("d")


@dataclass(slots=True)
class Scores:
    """Scores of one thing over many cells; what is no number was not measured."""

    measured: array[float] = field(default_factory=empty_array)
    unmeasured: int = 0

    def add(self, score: object) -> None:
        """Counts a score."""
        if isinstance(score, (int, float)):
            self.measured.append(float(score))
        else:
            self.unmeasured += 1

    def summary(self) -> ScoreSummary:
        """What was counted."""
        n = len(self.measured)
        return {"value": fsum(self.measured) / n if n else None, "n": n, "unmeasured": self.unmeasured}
