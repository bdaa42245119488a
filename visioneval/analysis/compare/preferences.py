"""Pairwise preferences of judges: wins, ties, flips and the win rate with its interval. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from typing import Literal

from visioneval.analysis.stats.basic import Interval
from visioneval.analysis.stats.clusters import rate_interval
from visioneval.records.preferences import NAME, Preference, read_preferences

Result = Literal["a", "b", "tie", "flip", "error"]
_POINTS: Mapping[Result, float] = {"a": 0.0, "b": 1.0, "tie": 0.5, "flip": 0.5}


@dataclass(frozen=True, slots=True)
class JudgedPair:
    """The result of a pair in both orders, ``error`` if an order has no answer."""

    test_id: str
    sample_index: int
    result: Result


@dataclass(frozen=True, slots=True)
class PreferenceFinding:
    """The preferences of one judge between the outputs of ``a`` and ``b``, each a ``RUN_ID@label``.

    ``rate`` (0 to 1) is the share of judged pairs in which B was preferred, ties counting half, with its 95 %
    interval, for which the pairs of a case are not independent. Both are ``None`` if no pair was judged. ``flips`` are
    ``ties`` in which the answer changed with the order. ``errors`` are pairs with an unanswered order.
    """

    a: str
    b: str
    judge: str
    pairs: tuple[JudgedPair, ...]
    rate: float | None = None
    interval: Interval | None = None

    def count(self, *results: Result) -> int:
        """Counts the pairs with one of these results."""
        return sum(pair.result in results for pair in self.pairs)

    @property
    def judged(self) -> int:
        """The number of pairs with an answer in both orders."""
        return len(self.pairs) - self.errors

    @property
    def ties(self) -> int:
        """The number of ties, including flips."""
        return self.count("tie", "flip")

    @property
    def flips(self) -> int:
        """The number of pairs whose answer changed with the order."""
        return self.count("flip")

    @property
    def errors(self) -> int:
        """The number of pairs that could not be judged."""
        return self.count("error")


def preferences_within(folder: Path, run_id: str) -> tuple[PreferenceFinding, ...]:
    """Summarizes the pairs of a run's own model runs; empty if its suite compares none.

    Raises ``RunFormatError``.
    """
    if not (folder / NAME).is_file():
        return ()
    return summarize_preferences(line for line in read_preferences(folder) if line.is_within(run_id))


def summarize_preferences(lines: Iterable[Preference]) -> tuple[PreferenceFinding, ...]:
    """Summarizes preferences by model runs and judge, in order of first appearance, with pairs sorted by case."""
    by_pairing: dict[tuple[str, str, str], dict[tuple[str, int], dict[str, Preference]]] = {}
    for line in lines:
        cells = by_pairing.setdefault((line.a, line.b, line.judge), {})
        cells.setdefault((line.test_id, line.sample_index), {})[line.first] = line
    return tuple(
        _finding(*key, [_judge_pair(*cell, orders) for cell, orders in sorted(cells.items())])
        for key, cells in by_pairing.items()
    )


def _judge_pair(test_id: str, sample: int, orders: Mapping[str, Preference]) -> JudgedPair:
    first_answer, second_answer = (orders[first].answer if first in orders else None for first in ("a", "b"))
    if first_answer is None or second_answer is None:
        return JudgedPair(test_id, sample, "error")
    return JudgedPair(test_id, sample, first_answer if first_answer == second_answer else "flip")


def _finding(a: str, b: str, judge: str, pairs: Sequence[JudgedPair]) -> PreferenceFinding:
    by_case: dict[str, list[float]] = {}
    for pair in pairs:
        if pair.result in _POINTS:
            by_case.setdefault(pair.test_id, []).append(_POINTS[pair.result])
    if not by_case:
        return PreferenceFinding(a, b, judge, tuple(pairs))
    cases = [(fsum(points), len(points)) for points in by_case.values()]
    rate = fsum(total for total, _ in cases) / sum(number for _, number in cases)
    ties = sum(pair.result in ("tie", "flip") for pair in pairs)
    return PreferenceFinding(a, b, judge, tuple(pairs), rate, rate_interval(cases, ties))
