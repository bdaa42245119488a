"""A statistic as a finding. Imports no NumPy, so that a list of runs starts quickly."""

from __future__ import annotations

from visioneval.types import Frozen


class Statistic(Frozen):
    """A value over ``n`` rows with its 95 % interval. ``note`` explains a missing value or interval."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    note: str | None = None
