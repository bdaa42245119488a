"""What a ranking of model runs consists of."""

from __future__ import annotations

from math import exp
from typing import Literal

from visioneval.errors import ExitCode, count_of
from visioneval.records.untrusted import SCHEMA_VERSION
from visioneval.types import Frozen

RankedBy = Literal["judges", "people"]


class IntervalEstimate(Frozen):
    """A value with its 95 % interval; without one, ``low`` and ``high`` are ``None``."""

    value: float
    low: float | None = None
    high: float | None = None

    def as_chance(self) -> IntervalEstimate:
        """Log-odds as a chance, 0 to 1."""
        low, high = (None if end is None else chance_of(end) for end in (self.low, self.high))
        return IntervalEstimate(value=chance_of(self.value), low=low, high=high)


class RankedRun(Frozen):
    """A model run in a ranking.

    ``model_run`` is ``RUN_ID@label``; ``name`` is the label if that is unique. Ranks count from 1 within the ``group``,
    with a 95 % interval; equal strengths share the better rank, and a model run without answers has none. ``strength``
    is in log-odds relative to the mean of the ``tier``, ``None`` if it is unbounded; ``chance`` is the chance to win
    against a model run of mean strength. ``wins``, ``losses`` and ``ties`` count answers about ``pairs`` of outputs.
    """

    model_run: str
    name: str
    group: int
    tier: int
    rank: int | None
    low_rank: int | None = None
    high_rank: int | None = None
    strength: IntervalEstimate | None = None
    chance: IntervalEstimate | None = None
    wins: int
    losses: int
    ties: int
    pairs: int
    cases: int


class HeadToHead(Frozen):
    """The answers about two model runs, by name. ``ties`` contain the ``flips``, which changed with the order.

    ``pairs`` counts pairs of outputs with an answer, ``unanswered`` those without. ``difference`` is the strength of A
    minus that of B in log-odds, from all answers in the ranking, and ``None`` if it is unbounded.
    """

    a: str
    b: str
    a_wins: int
    b_wins: int
    ties: int
    flips: int
    pairs: int
    unanswered: int
    difference: IntervalEstimate | None = None


class Ranking(Frozen):
    """A ranking by the answers of one judge, or of people to one question.

    ``pairs`` counts the pairs of outputs with an answer, in ``cases``. ``gaps`` are sentences about what could not be
    ranked, ``notes`` about what the numbers do not show.
    """

    judge: str | None = None
    question: str | None = None
    raters: int | None = None
    cases: int
    pairs: int
    unanswered: int
    model_runs: tuple[RankedRun, ...]
    comparisons: tuple[HeadToHead, ...]
    gaps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Rankings(Frozen):
    """The result of ``rank``: one ranking per judge, or per question to people."""

    schema_version: int = SCHEMA_VERSION
    by: RankedBy
    runs: tuple[str, ...]
    rankings: tuple[Ranking, ...]
    gaps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    exit_code: int = int(ExitCode.PASSED)

    def __repr__(self) -> str:
        runs = ", ".join(self.runs)
        return f"Rankings({runs}: {count_of(len(self.rankings), 'ranking')} by {self.by}, exit code {self.exit_code})"

    __str__ = __repr__


def chance_of(log_odds: float) -> float:
    """The chance to win, 0 to 1, for a difference of strengths."""
    return 1 / (1 + exp(-log_odds)) if log_odds > -700 else 0.0
