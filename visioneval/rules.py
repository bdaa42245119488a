"""Verdict rules and gates: what a suite writes, parsed, and what it says of scores. Pure.

A verdict rule is ``metric``, ``not metric`` or ``metric OP number``; a gate is ``FN OP number`` with FN one of
``pass_rate``, ``error_rate``, ``refusal_rate``, ``mean(metric)``, ``rate(metric)`` and ``separation(metric)``. A metric
whose name holds anything but letters, digits, ``_``, ``-`` and ``.`` is written in quotes.
"""

from __future__ import annotations

import math
import operator
import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol

from visioneval.types import Score, Status, Verdict

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
COUNTING = ("pass_rate", "error_rate", "refusal_rate")
MEASURING = ("mean", "rate", "separation")

_NAME = r"(?:'(?P<single>[^']+)'|\"(?P<double>[^\"]+)\"|(?P<plain>[A-Za-z_][\w.\-]*))"
_NUMBER = r"(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)"
_COMPARE = rf"\s*(?P<op>>=|<=|==|!=|>|<)\s*{_NUMBER}"
_RULE = re.compile(rf"\s*(?P<not>not\s+)?{_NAME}(?:{_COMPARE})?\s*", re.ASCII)
_GATE = re.compile(rf"\s*(?P<fn>[a-z_]+)\s*(?P<call>\(\s*{_NAME}\s*\))?{_COMPARE}\s*", re.ASCII)

MAX_RULE = 1000
"""Characters of a rule or a gate."""

Outcome = Literal["passed", "failed", "unmeasured", "skipped"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One verdict rule. ``op`` is ``None`` for a bool metric, which must then equal ``expected``."""

    text: str
    metric: str
    op: str | None = None
    threshold: float = 0.0
    expected: bool = True

    def outcome(self, scores: Mapping[str, Score]) -> Outcome:
        """What the scores of a cell say of this rule."""
        if self.metric not in scores:
            return "skipped"
        score = scores[self.metric]
        if score is None:
            return "unmeasured"
        is_met = bool(score) is self.expected if self.op is None else OPERATORS[self.op](score, self.threshold)
        return "passed" if is_met else "failed"


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate over many cells."""

    text: str
    fn: str
    metric: str | None
    op: str
    threshold: float

    @property
    def is_about_errors(self) -> bool:
        """Whether an unmet gate means that the run is incomplete, rather than that a model is bad."""
        return self.fn == "error_rate"


@lru_cache(maxsize=4096)
def parse_rule(text: str) -> Rule:
    """Parses a verdict rule. Raises ``ValueError`` with what a rule looks like."""
    _check_length(text, "rule")
    match = _RULE.fullmatch(text)
    if match is None or (match["not"] and match["op"]) or not _finite(match["number"]):
        raise ValueError(
            f"{text!r} is not a rule: write a bool metric, 'not METRIC', or 'METRIC OP NUMBER'"
            " with OP one of >= > <= < == != (a name with other signs goes in quotes)"
        )
    metric = match["single"] or match["double"] or match["plain"]
    if match["op"] is None:
        return Rule(text.strip(), metric, expected=not match["not"])
    return Rule(text.strip(), metric, match["op"], float(match["number"]))


@lru_cache(maxsize=4096)
def parse_gate(text: str) -> Gate:
    """Parses a gate. Raises ``ValueError`` with what a gate looks like."""
    _check_length(text, "gate")
    match = _GATE.fullmatch(text)
    fn = match["fn"] if match else None
    if match is None or fn not in (MEASURING if match["call"] else COUNTING) or not _finite(match["number"]):
        raise ValueError(
            f"{text!r} is not a gate: write 'FN OP NUMBER' with FN one of {', '.join(COUNTING)},"
            " mean(METRIC), rate(METRIC), separation(METRIC), and OP one of >= > <= < == !="
        )
    metric = match["single"] or match["double"] or match["plain"]
    return Gate(text.strip(), match["fn"], metric, match["op"], float(match["number"]))


def _check_length(text: str, kind: str) -> None:
    if len(text) > MAX_RULE:
        raise ValueError(f"a {kind} of {len(text):,} characters: {MAX_RULE:,} are the most")


def _finite(number: str | None) -> bool:
    return number is None or math.isfinite(float(number))


@dataclass(frozen=True, slots=True)
class CellVerdict:
    """The verdict of a cell, with the rules that made it, as written."""

    verdict: Verdict
    failed: tuple[str, ...] = ()
    warned: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    unmeasured: tuple[str, ...] = ()


def judge_cell(rules: Sequence[tuple[Rule, bool]], scores: Mapping[str, Score]) -> CellVerdict:
    """Applies ``(rule, warn_only)`` pairs to the scores of a generated cell.

    A broken rule is a FAIL whatever else could not be measured; then an unmeasured one, or no rule at all that
    could be evaluated, is an ERROR.
    """
    rules_by_outcome: dict[tuple[bool, Outcome], list[str]] = {}
    for rule, warn in rules:
        rules_by_outcome.setdefault((warn, rule.outcome(scores)), []).append(rule.text)
    failed = rules_by_outcome.get((False, "failed"), [])
    unmeasured = rules_by_outcome.get((False, "unmeasured"), [])
    if failed:
        verdict = Verdict.FAIL
    elif unmeasured or (False, "passed") not in rules_by_outcome:
        verdict = Verdict.ERROR
    else:
        verdict = Verdict.PASS
    skipped = rules_by_outcome.get((False, "skipped"), []) + rules_by_outcome.get((True, "skipped"), [])
    warned = rules_by_outcome.get((True, "failed"), [])
    return CellVerdict(verdict, tuple(failed), tuple(warned), tuple(skipped), tuple(unmeasured))


class CellFacts(Protocol):
    """What a gate needs to know of a cell; a record knows it."""

    @property
    def verdict(self) -> Verdict: ...
    @property
    def status(self) -> Status: ...
    @property
    def scores(self) -> Mapping[str, Score]: ...


class Pool:
    """The value of a gate over the cells that it matches, which are added one by one."""

    def __init__(self, gate: Gate) -> None:
        """Begins with no cell."""
        self._gate = gate
        self._sides: tuple[array[float], array[float]] = (array("d"), array("d"))

    def add(self, cell: CellFacts, *, is_counter: bool = False) -> None:
        """Counts a cell. Only ``separation`` parts counter-examples from the others."""
        value = _cell_value(self._gate, cell)
        if value is not None:
            self._sides[is_counter and self._gate.fn == "separation"].append(value)

    def value(self) -> tuple[float | None, int]:
        """The gate's value, and how many cells were counted in it.

        A mean; for ``separation`` that over aligned cells less that over counter-examples. ``None`` means that nothing
        was measured, on one side at least: the gate is unmet, whatever it asks.
        """
        above, below = self._sides
        n = len(above) + len(below)
        if self._gate.fn != "separation":
            return _mean(above), n
        high, low = _mean(above), _mean(below)
        return (None if high is None or low is None else high - low), n


def _mean(values: Sequence[float]) -> float | None:
    if not values:
        return None
    return min(max(math.fsum(values) / len(values), min(values)), max(values))  # rounding must not lead out of them


def gate_passes(gate: Gate, value: float | None) -> bool:
    """Whether a pooled value meets the gate."""
    return value is not None and OPERATORS[gate.op](value, gate.threshold)


def _cell_value(gate: Gate, cell: CellFacts) -> float | None:
    if gate.fn == "pass_rate":
        return None if cell.verdict is Verdict.ERROR else float(cell.verdict is Verdict.PASS)
    if gate.fn == "error_rate":
        return float(cell.verdict is Verdict.ERROR)
    if gate.fn == "refusal_rate":
        return float(cell.status is Status.REFUSED)
    score = cell.scores.get(gate.metric or "")
    return None if score is None else float(score)
