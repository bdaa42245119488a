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


def numbers() -> array[float]:
    """No numbers yet. Eight bytes each: a sum that does not depend on the order needs them all."""
    return array("d")


@dataclass(slots=True)
class Scores:
    """Scores of one thing over many cells; what is no number was not measured."""

    measured: array[float] = field(default_factory=numbers)
    unmeasured: int = 0

    def add(self, score: object) -> None:
        """Counts a score."""
        if isinstance(score, (int, float)):
            self.measured.append(float(score))
        else:
            self.unmeasured += 1

    def told(self) -> ScoreSummary:
        """What was counted."""
        n = len(self.measured)
        return {"value": fsum(self.measured) / n if n else None, "n": n, "unmeasured": self.unmeasured}
