"""The kinds of graders, by what they look at.

When a grader works, and where its results are stored, depends on its kind alone. Its type matters only to code that
reads its details or its metrics, such as the questions of a gecko grader or the gaps of an alignment.

What a layer does for a kind has one place there: the work after the cells in ``running/runner.py``, what a run has
of it in ``analysis/summary/summary.py``, and what is shown of it in ``report/run.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Protocol, TypeVar

from visioneval.suite.cases.case import TestCase

PREFERENCES = "preferences.jsonl"
DIVERSITY = "diversity.jsonl"


@dataclass(frozen=True, slots=True)
class GraderKind:
    """What a grader looks at, and when: one cell, as soon as it has an output, or several, after all cells are done."""

    name: str
    file: str | None = None
    """The file in the run's folder with what it finds; ``None`` if the records of cells have it."""
    compares: str = ""
    """What it compares, in words; empty if it looks at one cell."""
    shown: int = 1
    """How many outputs a question to a judge shows."""
    turns: bool = True
    """Whether it grades later turns, too. One that compares model runs does not: each run edits another image there."""

    comparisons: Callable[[Sequence[int]], int] = lambda _: 0
    """How many comparisons it makes of a case, of which each model run has so many samples."""

    @property
    def grades_cells(self) -> bool:
        """Whether it grades each cell by itself."""
        return self.file is None

    def is_for(self, case: TestCase) -> bool:
        """Whether it is about a case. A case that generates nothing has no outputs of its own to compare."""
        return self.grades_cells or (case.output_of is None and (self.turns or not case.previous_turn))


def _pairs_of_runs(samples: Sequence[int]) -> int:
    return sum(map(min, combinations(samples, 2)))


def _pairs_of_samples(samples: Sequence[int]) -> int:
    return sum(comb(number, 2) for number in samples)


CELL = GraderKind("cell")
QUESTIONS = GraderKind("questions")
"""A cell, by questions about its prompt, which may be pinned or generated in advance; records have them."""
PAIR = GraderKind("pair", file=PREFERENCES, compares="pairs", shown=2, turns=False, comparisons=_pairs_of_runs)
"""The outputs of two model runs, between which judges choose."""
SAMPLES = GraderKind("samples", file=DIVERSITY, compares="the samples of a case", comparisons=_pairs_of_samples)
"""The outputs of a case on one model run, compared on this machine."""
KINDS = (CELL, QUESTIONS, PAIR, SAMPLES)


class _OfKind(Protocol):
    @property
    def kind(self) -> GraderKind: ...


GraderT = TypeVar("GraderT", bound=_OfKind)


def of_kind(graders: Iterable[GraderT], kind: GraderKind) -> list[GraderT]:
    """The graders of a kind."""
    return [grader for grader in graders if grader.kind is kind]
