"""Pairwise preferences of judges (wins, ties, flips, the win rate with its interval), and what a ranking by them or by
those of people consists of. Pure.

- win rate (``pairwise``, ``agreement``): as a rate; ties count half
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, fsum
from pathlib import Path
from typing import Literal

from visioneval.analysis.left_out import NeverAsked
from visioneval.analysis.stats.basic import Interval, Statistic, grouped
from visioneval.analysis.stats.intervals import case_sums, rare_event_interval
from visioneval.errors import ExitCode, count_of
from visioneval.records.between_cells import ORDERS, Preference, read_preferences
from visioneval.records.model import RunInfo
from visioneval.records.untrusted import SCHEMA_VERSION
from visioneval.suite.entries.graders import PAIR, PREFERENCES, of_kind
from visioneval.suite.model import Suite
from visioneval.types import Frozen

Result = Literal["a", "b", "tie", "flip", "error"]
_POINTS: Mapping[Result, float] = {"a": 0.0, "b": 1.0, "tie": 0.5, "flip": 0.5}


@dataclass(frozen=True, slots=True)
class JudgedPair:
    """The result of a pair in both orders, ``error`` if an order has no answer.

    ``never_asked`` if the judge, or one of a panel, was not asked at all in one of them.
    """

    test_id: str
    sample_index: int
    result: Result
    never_asked: bool = False


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
    panel: tuple[str, ...] = ()
    """The judges that it combines, for the finding of a panel."""
    is_of_member: bool = False
    """Whether a panel's finding covers this judge's pairs."""
    alpha: Statistic | None = None
    """Krippendorff's nominal alpha between the judges of a panel: B, A, or neither."""

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


@dataclass(frozen=True, slots=True)
class PreferencePanel:
    """The panel of a pairwise grader: the models of its judges as ``PROVIDER:MODEL``, and how many must answer."""

    key: str
    judges: tuple[str, ...]
    required: int


def panels_of(suite: Suite) -> tuple[PreferencePanel, ...]:
    """The panels of a suite's pairwise graders."""
    return tuple(
        PreferencePanel(
            grader.key,
            tuple(suite.judges[name].title for name in grader.judge_names if name in suite.judges),
            grader.required_judges,
        )
        for grader in of_kind(suite.graders, PAIR)
        if grader.has_panel
    )


def preferences_within(folder: Path, info: RunInfo) -> tuple[PreferenceFinding, ...]:
    """Summarizes the pairs of a run's own model runs; empty if its suite compares none.

    Raises ``RunFormatError``.
    """
    if not (folder / PREFERENCES).is_file():
        return ()
    lines = (line for line in read_preferences(folder) if line.is_within(info.run_id))
    return summarize_preferences(lines, panels_of(info.suite))


def summarize_preferences(
    lines: Iterable[Preference], panels: Sequence[PreferencePanel] = ()
) -> tuple[PreferenceFinding, ...]:
    """Summarizes preferences by model runs and judge, in order of first appearance, with pairs sorted by case.

    The finding of a panel follows those of its judges.
    """
    by_pairing: dict[tuple[str, str, str], dict[tuple[str, int], dict[str, Preference]]] = {}
    for line in lines:
        cells = by_pairing.setdefault((line.a, line.b, line.judge), {})
        cells.setdefault((line.test_id, line.sample_index), {})[line.first] = line
    members = {judge for panel in panels for judge in panel.judges}
    judged = []
    for key, cells in by_pairing.items():
        pairs = []
        for cell, orders in sorted(cells.items()):
            first, second = (orders[side].answer if side in orders else None for side in ORDERS)
            if first is None or second is None:
                never_asked = len(orders) < len(ORDERS) or any(line.never_asked for line in orders.values())
                pairs.append(JudgedPair(*cell, "error", never_asked))
            else:
                pairs.append(JudgedPair(*cell, first if first == second else "flip"))
        judged.append(replace(_finding(*key, pairs), is_of_member=key[2] in members))
    sides = dict.fromkeys((finding.a, finding.b) for finding in judged)
    combined = (_of_panel(panel, judged, *pairing) for panel in panels for pairing in sides)
    return (*judged, *filter(None, combined))


def unjudged(findings: Iterable[PreferenceFinding]) -> int:
    """The number of pairs without an answer. A panel's finding counts instead of those of its judges."""
    return sum(finding.errors for finding in findings if not finding.is_of_member)


def never_asked_pairs(findings: Iterable[PreferenceFinding]) -> tuple[NeverAsked, ...]:
    """The judges that were not asked about some pairs, in both orders or in one."""
    counts: Counter[str] = Counter()
    for finding in findings:
        if not finding.panel and (number := sum(pair.never_asked for pair in finding.pairs)):
            counts[finding.judge] += number
    return tuple(NeverAsked(name=judge, what="pair", number=number) for judge, number in sorted(counts.items()))


def _of_panel(panel: PreferencePanel, judged: Iterable[PreferenceFinding], a: str, b: str) -> PreferenceFinding | None:
    """The finding of a panel about two model runs; ``None`` if none of its judges was asked about them.

    The panel prefers an output if more than half of the judges that answered do; otherwise it is a tie. A quorum
    excuses judges that are down, and none that was never asked. A flip is a tie.
    """
    results: dict[tuple[str, int], dict[str, JudgedPair]] = {}
    for finding in judged:
        if (finding.a, finding.b) == (a, b) and finding.judge in panel.judges:
            for pair in finding.pairs:
                results.setdefault((pair.test_id, pair.sample_index), {})[finding.judge] = pair
    if not results:
        return None
    pairs, answers = list[JudgedPair](), dict[tuple[str, int], list[Result]]()
    for cell, by_judge in sorted(results.items()):
        of_judges = list(by_judge.values())
        answers[cell] = [
            "tie" if pair.result == "flip" else pair.result for pair in of_judges if pair.result != "error"
        ]
        never_asked = len(of_judges) < len(panel.judges) or any(pair.never_asked for pair in of_judges)
        given = answers[cell]
        preferred = (side for side in ORDERS if given.count(side) * 2 > len(given))
        result: Result = "error" if never_asked or len(given) < panel.required else next(preferred, "tie")
        pairs.append(JudgedPair(*cell, result, never_asked))
    finding = _finding(a, b, f"panel {panel.key}", pairs)
    return replace(finding, panel=panel.judges, alpha=_alpha(answers))


def _alpha(answers: Mapping[tuple[str, int], Sequence[Result]]) -> Statistic:
    shared = {cell: given for cell, given in answers.items() if len(given) > 1}
    if not shared:
        return Statistic(note="no pair has answers from two judges")
    # loads NumPy, which runs without a panel do without
    import numpy as np

    from visioneval.analysis.stats.agreement import alpha_measure

    counts = np.array([[given.count(side) for side in ("a", "b", "tie")] for given in shared.values()])
    cases = [test_id for test_id, _ in shared]
    undefined = "all answers are the same: alpha is undefined"
    return alpha_measure(counts, np.arange(3.0), "nominal", cases, undefined=undefined)


def _finding(a: str, b: str, judge: str, pairs: Sequence[JudgedPair]) -> PreferenceFinding:
    by_case = grouped((pair.test_id, _POINTS[pair.result]) for pair in pairs if pair.result in _POINTS)
    if not by_case:
        return PreferenceFinding(a, b, judge, tuple(pairs))
    cases = case_sums(by_case)
    rate = fsum(total for total, _ in cases) / sum(number for _, number in cases)
    ties = sum(pair.result in ("tie", "flip") for pair in pairs)
    return PreferenceFinding(a, b, judge, tuple(pairs), rate, rare_event_interval(cases, ties))


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
    """A model run in a ranking."""

    model_run: str
    """``RUN_ID@label``."""
    name: str
    """Its label if that is unique, else `RUN@LABEL`."""
    group: int
    """From 1. No answers connect two groups, so each is ranked by itself."""
    tier: int
    """From 1. Where some model runs won every pair against all others, strengths compare only within a tier."""
    rank: int | None
    """From 1, within the group. Equal strengths share the better rank; ``null`` without answers."""
    low_rank: int | None = None
    """The lower end of its 95 % interval."""
    high_rank: int | None = None
    """The upper end."""
    strength: IntervalEstimate | None = None
    """Log-odds (Bradley and Terry), relative to the mean of the tier. ``null`` (`-`) if it won or lost every pair: it
    then has no finite strength."""
    chance: IntervalEstimate | None = None
    """The chance to win against a model run of mean strength."""
    wins: int
    """Answers for it."""
    losses: int
    """Answers for the other."""
    ties: int
    """Ties and flips: each is half a win for both."""
    pairs: int
    """The pairs of outputs with an answer."""
    cases: int
    """The cases of these pairs."""


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
