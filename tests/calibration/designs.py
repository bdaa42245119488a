"""What the simulations share: correlated samples of cases, and tables of shares with standard errors."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Row:
    """A measured share of ``repetitions`` simulated runs, or another figure if there are no ``repetitions``."""

    design: str
    figure: str
    value: float
    repetitions: int = 0

    @property
    def error(self) -> float:
        """The standard error of a share."""
        return sqrt(self.value * (1 - self.value) / self.repetitions) if self.repetitions else 0.0


def odds(rate: float, correlation: float, shape: tuple[int, ...], random: np.random.Generator) -> Floats:
    """The pass rate of each case: beta-distributed, so that two samples of a case have this correlation."""
    if correlation == 0:
        return np.full(shape, rate)
    spread = (1 - correlation) / correlation
    return random.beta(rate * spread, (1 - rate) * spread, shape)


def repetitions(default: int) -> int:
    """The number of repetitions from the command line."""
    return int(sys.argv[1]) if len(sys.argv) > 1 else default


def show(title: str, rows: Iterable[Row]) -> None:
    """Prints rows as they come, with their standard errors."""
    print(f"\n{title}")
    for row in rows:
        error = f"  ({row.error:.3f})" if row.repetitions else ""
        print(f"{row.design:<52} {row.figure:<12} {row.value:.3f}{error}", flush=True)
