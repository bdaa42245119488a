"""How often the 95 % intervals of ``rank`` contain the truth: differences of strengths, strengths and ranks.

    python -m tests.calibration.ranking [REPETITIONS]

Each simulation ranks five model runs, two of which are equally good, with ``rank_group`` itself; with ``spread`` 0, all are.
How much better a model run is differs from case to case (``effect``, a standard deviation in log-odds), so that the
answers of a case depend on each other. A share of the answers are ties. The pairs of a case are ``all``, a ``chain`` of neighbors, or ``one`` random link
of that chain; with ``few``, the last model run met the others in five cases only. The truth is what infinitely many cases
give. A rank is covered where its interval contains every rank that equally good model runs may take.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import sqrt

import numpy as np

from visioneval.analysis.stats.ranks import Floats, rank_group, strengths, tiers

STRENGTHS = np.array([0.9, 0.3, 0.0, 0.0, -1.2])
SIZE, LAST, EQUAL = len(STRENGTHS), len(STRENGTHS) - 1, (2, 3)
PAIRS = {"all": list(combinations(range(SIZE), 2)), "chain": list(pairwise(range(SIZE)))}
FEW = 5
REPETITIONS = 400


@dataclass(frozen=True)
class Design:
    """What is judged. ``samples`` are judged of each case and pair."""

    pairs: str
    cases: int
    ties: float = 0.3
    effect: float = 0.7
    samples: int = 1
    spread: float = 1.0

    def __str__(self) -> str:
        answers = f"ties {self.ties:.1f}, effect {self.effect:.1f}, spread {self.spread:.0f}"
        return f"{self.pairs:5} {self.cases:3} cases x {self.samples}, {answers}"

    @property
    def strengths(self) -> Floats:
        """The mean strengths over the cases."""
        return np.asarray(STRENGTHS * self.spread)

    @property
    def met(self) -> list[tuple[int, int]]:
        """The pairs that are judged in some case."""
        return PAIRS["all" if self.pairs in ("all", "few") else "chain"]


DESIGNS = (
    *(Design(pairs, cases) for pairs in ("all", "chain", "one", "few") for cases in (20, 50, 200)),
    Design("all", 6),
    Design("all", 10),
    Design("all", 50, ties=0.0),
    Design("all", 50, ties=0.9),
    Design("all", 50, effect=0.0),
    Design("all", 50, effect=1.5, samples=4),
    Design("all", 50, spread=0.0),
    Design("chain", 50, spread=0.0),
)


def simulate(design: Design, repetitions: int, chance: np.random.Generator) -> Floats:
    """Points of shape ``(repetitions, cases, n, n)``."""
    shape = (repetitions, design.cases)
    of_case = design.strengths + design.effect * chance.standard_normal((*shape, SIZE))
    link = chance.integers(0, len(PAIRS["chain"]), shape)
    points = np.zeros((*shape, SIZE, SIZE))
    for number, (i, j) in enumerate(design.met):
        wins = 1 / (1 + np.exp(of_case[..., j] - of_case[..., i]))
        outcomes = chance.random((*shape, design.samples)) < wins[..., None]
        scores = np.where(chance.random(outcomes.shape) < design.ties, 0.5, outcomes)
        is_met = link == number if design.pairs == "one" else np.full(shape, fill_value=True)
        if design.pairs == "few" and j == LAST:
            is_met = np.broadcast_to(np.arange(design.cases) < FEW, shape)
        points[..., i, j] = scores.sum(axis=-1) * is_met
        points[..., j, i] = (1 - scores).sum(axis=-1) * is_met
    return points


def truth(design: Design) -> Floats:
    """The strengths that infinitely many cases give."""
    effects = design.effect * np.random.default_rng(1).standard_normal((200_000, SIZE))
    of_case = design.strengths + np.concatenate([effects, -effects])
    points = np.zeros((SIZE, SIZE))
    for i, j in design.met:
        wins = float(np.mean(1 / (1 + np.exp(of_case[:, j] - of_case[:, i])))) if (i, j) != EQUAL else 0.5
        points[i, j] = design.ties / 2 + (1 - design.ties) * wins
        points[j, i] = 1 - points[i, j]
    return strengths(points)


@dataclass(frozen=True)
class Coverage:
    """The share of intervals that contain the truth, of the least covered pair or model run and of all, and widths."""

    differences: Floats
    strengths: Floats
    ranks: Floats
    unbounded: int
    mean_ranks: float
    """The mean number of ranks in an interval, of 5."""


def coverage(design: Design, repetitions: int, seed: int = 0) -> Coverage:
    """Simulates a design. Strengths and differences count only where all are finite, and only those with an interval."""
    actual = truth(design)
    best = 1 + (actual[None, :] > actual[:, None] + 1e-6).sum(axis=1)
    worst = SIZE - (actual[None, :] < actual[:, None] - 1e-6).sum(axis=1)
    differences, values, ranks, sizes, unbounded = [], [], [], [], 0
    for points in simulate(design, repetitions, np.random.default_rng(seed)):
        standings = rank_group(points)
        assert standings.low_rank is not None
        assert standings.high_rank is not None
        ranks.append((standings.low_rank <= best) & (standings.high_rank >= worst))
        sizes.append(standings.high_rank - standings.low_rank + 1)
        if len(tiers(points.sum(axis=0))) > 1:
            unbounded += 1
            continue
        error = np.abs(standings.difference - np.subtract.outer(actual, actual))[np.triu_indices(SIZE, 1)]
        differences.append(_is_covered(error, standings.difference_reach[np.triu_indices(SIZE, 1)]))
        values.append(_is_covered(np.abs(standings.strength - actual), standings.reach))
    return Coverage(*map(np.array, (differences, values, ranks)), unbounded, float(np.mean(sizes)))


def _is_covered(error: Floats, reach: Floats) -> Floats:
    """1 where the truth is within reach, 0 where it is not, NaN without an interval."""
    return np.where(np.isnan(reach), np.nan, error <= reach)


def _share(covered: Floats) -> str:
    """The share of all intervals, with its standard error over repetitions, and that of the least covered one."""
    error = float(np.nanstd(np.nanmean(covered, axis=1), ddof=1)) / sqrt(len(covered))
    return f"{np.nanmean(covered):.3f} +- {error:.3f} (least {np.nanmean(covered, axis=0).min():.3f})"


def table(repetitions: int) -> Iterator[str]:
    """One line for each design."""
    for design in DESIGNS:
        result = coverage(design, repetitions)
        shares = ", ".join(
            f"{name} {_share(covered)}"
            for name, covered in (
                ("differences", result.differences),
                ("strengths", result.strengths),
                ("ranks", result.ranks),
            )
        )
        yield f"{design}: {shares}, {result.mean_ranks:.1f} ranks, {result.unbounded} unbounded"


def main() -> None:
    """Prints the table."""
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else REPETITIONS
    for line in table(repetitions):
        print(line, flush=True)


if __name__ == "__main__":
    main()
