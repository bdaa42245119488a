"""What judges summarize_preferences, pair by pair: wins, ties, flips, and how sure the win rate is. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Literal

from visioneval.analysis.stats.basic import Interval, wilson_interval
from visioneval.analysis.stats.resampling import MIN_CLUSTERS, cluster_bootstrap_mean
from visioneval.records.preferences import Preference

Result = Literal["a", "b", "tie", "flip", "error"]
_WORTH: Mapping[Result, float] = {"a": 0.0, "b": 1.0, "tie": 0.5, "flip": 0.5}


@dataclass(frozen=True, slots=True)
class JudgedPair:
    """One pair: what both orders together say. ``error`` where an order has no answer: it counts for nobody."""

    test_id: str
    sample_index: int
    result: Result


@dataclass(frozen=True, slots=True)
class PreferenceFinding:
    """What one judge said of the images of ``a`` and ``b``, each a ``RUN_ID@label``.

    ``rate`` is the share of the judged pairs in which B was preferred, ties counting half, 0 to 1, with its 95 %
    interval; both are ``None`` where no pair was judged. Of the ``ties``, ``flips`` are pairs about which the judge
    said something else when it saw them the other way round. ``errors`` are pairs of which an order has no answer.
    """

    a: str
    b: str
    judge: str
    pairs: tuple[JudgedPair, ...]
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


def summarize_preferences(lines: Iterable[Preference]) -> tuple[PreferenceFinding, ...]:
    """The findings for every two model runs and judge, in the order of the first line about them; pairs by case."""
    by_pairing: dict[tuple[str, str, str], dict[tuple[str, int], dict[str, Preference]]] = {}
    for line in lines:
        cells = by_pairing.setdefault((line.a, line.b, line.judge), {})
        cells.setdefault((line.test_id, line.sample_index), {})[line.first] = line
    return tuple(
        _finding(*key, [_judged(*cell, orders) for cell, orders in sorted(cells.items())])
        for key, cells in by_pairing.items()
    )


def _judged(test_id: str, sample: int, orders: Mapping[str, Preference]) -> JudgedPair:
    first_answer, second_answer = (orders[first].answer if first in orders else None for first in ("a", "b"))
    if first_answer is None or second_answer is None:
        return JudgedPair(test_id, sample, "error")
    return JudgedPair(test_id, sample, first_answer if first_answer == second_answer else "flip")


def _finding(a: str, b: str, judge: str, pairs: Sequence[JudgedPair]) -> PreferenceFinding:
    by_case: dict[str, list[float]] = {}
    for pair in pairs:
        if pair.result in _WORTH:
            by_case.setdefault(pair.test_id, []).append(_WORTH[pair.result])
    if not by_case:
        return PreferenceFinding(a, b, judge, tuple(pairs))
    sums, counts = [fsum(values) for values in by_case.values()], [len(values) for values in by_case.values()]
    rate = fsum(sums) / sum(counts)
    return PreferenceFinding(a, b, judge, tuple(pairs), rate, win_interval(sums, counts))


def win_interval(sums: Sequence[float], counts: Sequence[int]) -> Interval:
    """The 95 % interval of a win rate, from each case's wins (a tie is a half) and its number of pairs.

    With one pair a case it is Wilson's, which ties make a little too wide; with several, whole cases are resampled, as
    pairs of one case are not independent. Where that shows no spread (few cases, or all alike) it is Wilson's over the
    number of cases. Raises ``ValueError`` without a case.
    """
    alike = len({total / n for total, n in zip(sums, counts, strict=True)}) == 1
    if max(counts) > 1 and len(counts) >= MIN_CLUSTERS and not alike:
        return cluster_bootstrap_mean(sums, counts)
    rate = fsum(sums) / sum(counts)
    return Interval(*wilson_interval(rate * len(counts), len(counts)))
