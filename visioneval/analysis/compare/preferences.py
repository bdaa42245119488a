"""What judges preferred, pair by pair: wins, ties, flips, and how sure the win rate is. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from typing import Literal

from visioneval.analysis.stats.basic import Interval, wilson_interval
from visioneval.analysis.stats.resampling import LEAST, cluster_bootstrap_mean
from visioneval.records.preferences import NAME, Preference, read_preferences

Result = Literal["a", "b", "tie", "flip", "error"]
_WORTH: Mapping[Result, float] = {"a": 0.0, "b": 1.0, "tie": 0.5, "flip": 0.5}


@dataclass(frozen=True, slots=True)
class Judged:
    """One pair: what both orders together say. ``error`` where an order has no answer: it counts for nobody."""

    test_id: str
    sample_index: int
    result: Result


@dataclass(frozen=True, slots=True)
class Preferred:
    """What one judge said of the images of ``a`` and ``b``, each a ``RUN_ID@label``.

    ``rate`` is the share of the judged pairs in which B was preferred, ties counting half, 0 to 1, with its 95 %
    interval; both are ``None`` where no pair was judged. Of the ``ties``, ``flips`` are pairs about which the judge
    said something else when it saw them the other way round. ``errors`` are pairs of which an order has no answer.
    """

    a: str
    b: str
    judge: str
    pairs: tuple[Judged, ...]
    rate: float | None = None
    interval: Interval | None = None

    def count(self, *results: Result) -> int:
        """The pairs that ended so."""
        return sum(pair.result in results for pair in self.pairs)

    @property
    def judged(self) -> int:
        """The pairs of which both orders have an answer."""
        return len(self.pairs) - self.errors

    @property
    def ties(self) -> int:
        """The pairs that neither won, flips included."""
        return self.count("tie", "flip")

    @property
    def flips(self) -> int:
        """The pairs whose answer changed with the order."""
        return self.count("flip")

    @property
    def errors(self) -> int:
        """The pairs that could not be judged."""
        return self.count("error")


def preferred_within(folder: Path, run_id: str) -> tuple[Preferred, ...]:
    """What judges preferred among a run's own model runs; empty where its suite compares none.

    Raises ``RunFormatError``.
    """
    if not (folder / NAME).is_file():
        return ()
    return preferred(line for line in read_preferences(folder) if line.is_within(run_id))


def preferred(lines: Iterable[Preference]) -> tuple[Preferred, ...]:
    """The findings for every two model runs and judge, in the order of the first line about them; pairs by case."""
    asked: dict[tuple[str, str, str], dict[tuple[str, int], dict[str, Preference]]] = {}
    for line in lines:
        cells = asked.setdefault((line.a, line.b, line.judge), {})
        cells.setdefault((line.test_id, line.sample_index), {})[line.first] = line
    return tuple(
        _finding(*who, [_judged(*cell, own) for cell, own in sorted(cells.items())]) for who, cells in asked.items()
    )


def _judged(test_id: str, sample: int, orders: Mapping[str, Preference]) -> Judged:
    one, other = (orders[first].answer if first in orders else None for first in ("a", "b"))
    if one is None or other is None:
        return Judged(test_id, sample, "error")
    return Judged(test_id, sample, one if one == other else "flip")


def _finding(a: str, b: str, judge: str, pairs: Sequence[Judged]) -> Preferred:
    by_case: dict[str, list[float]] = {}
    for pair in pairs:
        if pair.result in _WORTH:
            by_case.setdefault(pair.test_id, []).append(_WORTH[pair.result])
    if not by_case:
        return Preferred(a, b, judge, tuple(pairs))
    sums, counts = [fsum(own) for own in by_case.values()], [len(own) for own in by_case.values()]
    rate = fsum(sums) / sum(counts)
    return Preferred(a, b, judge, tuple(pairs), rate, win_interval(sums, counts))


def win_interval(sums: Sequence[float], counts: Sequence[int]) -> Interval:
    """The 95 % interval of a win rate, from each case's wins (a tie is a half) and its number of pairs.

    With one pair a case it is Wilson's, which ties make a little too wide; with several, whole cases are resampled, as
    pairs of one case are not independent. Where that shows no spread (few cases, or all alike) it is Wilson's over the
    number of cases. Raises ``ValueError`` without a case.
    """
    alike = len({total / n for total, n in zip(sums, counts, strict=True)}) == 1
    if max(counts) > 1 and len(counts) >= LEAST and not alike:
        return cluster_bootstrap_mean(sums, counts)
    rate = fsum(sums) / sum(counts)
    return Interval(*wilson_interval(rate * len(counts), len(counts)))
