"""What may fail a comparison: ``--fail-on``, parsed and held against the findings. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from visioneval.analysis.cells import MUST_PASS, Cell
from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.differences import PASS_RATE, Difference
from visioneval.analysis.compare.pairing import CellPair
from visioneval.errors import UsageError
from visioneval.suite.loading.messages import did_you_mean

DEFAULT = ("broken_same_output", "significant", MUST_PASS)
NAMES = ("broken", *DEFAULT)
EXIT_OK, EXIT_WORSE, EXIT_INCOMPLETE = 0, 1, 3
_ROUNDING = 1e-9
_NAMED = 5
_NO_PAIR = "no pair of which both cells were measured"

State = Literal["passed", "failed", "unmeasured"]
Outcome = Literal["passed", "failed", "unmeasured", "incomplete"]


@dataclass(frozen=True, slots=True)
class FailOn:
    """One ``--fail-on``: a name, or a metric (or ``pass_rate``) and by how much it may be worse."""

    text: str
    metric: str | None = None
    allowed: float = 0.0


@dataclass(frozen=True, slots=True)
class GateResult:
    """What one ``--fail-on`` found, in words."""

    fail_on: FailOn
    state: State
    found: str


def parse_fail_on(words: Sequence[str]) -> tuple[FailOn, ...]:
    """Parses what was given, or the default where nothing was. Raises ``UsageError``."""
    return tuple(_parsed(word) for word in dict.fromkeys(words or DEFAULT))


def _parsed(word: str) -> FailOn:
    if word in NAMES:
        return FailOn(word)
    metric, colon, number = word.rpartition(":")
    if not colon or not metric:
        hint = f"{did_you_mean(word, NAMES)}: or METRIC:NUMBER, such as {PASS_RATE}:0.05"
        raise UsageError(f"--fail-on {word!r}: there is no such gate{hint}")
    try:
        allowed = float(number)
    except ValueError:
        allowed = math.nan
    if not 0 <= allowed < math.inf:
        raise UsageError(f"--fail-on {word!r}: {number!r} is not a number from 0 on")
    return FailOn(word, metric, allowed)


def hold(comparison: Comparison, gates: Sequence[FailOn]) -> tuple[GateResult, ...]:
    """Holds every gate against a comparison. Raises ``UsageError`` for a metric of which no worse is known."""
    return tuple(_held(gate, comparison) for gate in gates)


def exit_code(comparison: Comparison, held: Sequence[GateResult]) -> int:
    """3 where B is not complete or a gate had nothing to measure; 1 where one is unmet; else 0."""
    return {"passed": EXIT_OK, "failed": EXIT_WORSE}.get(outcome(comparison, held), EXIT_INCOMPLETE)


def outcome(comparison: Comparison, held: Sequence[GateResult]) -> Outcome:
    """What the exit code stands for, in a word."""
    states = {one.state for one in held}
    if comparison.b.state not in (None, "complete"):
        return "incomplete"
    if "unmeasured" in states:
        return "unmeasured"
    return "failed" if "failed" in states else "passed"


def _held(gate: FailOn, comparison: Comparison) -> GateResult:
    if not comparison.steady and not _gone(gate, comparison):
        return GateResult(gate, "passed", "every case is flaky")
    if gate.metric is not None:
        return _bounded(gate, gate.metric, comparison)
    if gate.text == "significant":
        return _significant(gate, comparison)
    return _unbroken(gate, comparison)


_SCOPES: dict[str, tuple[str, Callable[[CellPair], bool]]] = {
    "broken": ("cells", lambda _: True),
    "broken_same_output": ("cells with the same image", lambda pair: pair.same_output),
    MUST_PASS: ("cells tagged must_pass", lambda pair: pair.must_pass),
}


def _unbroken(gate: FailOn, comparison: Comparison) -> GateResult:
    """No cell that passed fails now. One that cannot be told any more, or is gone, leaves the gate unmeasured."""
    what, belongs = _SCOPES[gate.text]
    own = [pair for pair in comparison.steady if belongs(pair)]
    broken = [pair for pair in own if pair.change == "broken"]
    lost = [pair for pair in own if pair.change == "error_after" and pair.a.verdict == "PASS"]
    gone = _gone(gate, comparison)
    if not own and not gone:
        return GateResult(gate, "passed", f"no {what}")
    found = f"{len(broken)} of {len(own)} {what} broke"
    if lost:
        found += f", {len(lost)} that passed could not be measured"
    if gone:
        names = list(dict.fromkeys(cell.test_id for cell in gone))
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        found += f", {len(gone)} more of A are not in B: {', '.join(names[:_NAMED])}{more}"
    return GateResult(gate, "failed" if broken else "unmeasured" if lost or gone else "passed", found)


def _gone(gate: FailOn, comparison: Comparison) -> list[Cell]:
    """Cells tagged ``must_pass`` that A alone has: to delete a case does not make it pass.

    Model runs that were left out of B by a flag or by B's name were not deleted.
    """
    if gate.text != MUST_PASS:
        return []
    compared = {old for old, _ in comparison.labels} if comparison.b.is_narrowed else None
    gone = (cell for cell in comparison.only_a if MUST_PASS in cell.tags and not cell.flaky)
    return [cell for cell in gone if compared is None or cell.model_label in compared]


def _significant(gate: FailOn, comparison: Comparison) -> GateResult:
    tested = [one for one in (comparison.pass_rate, *comparison.metrics) if one.n_pairs]
    if not comparison.pass_rate.n_pairs:
        return GateResult(gate, "unmeasured", _NO_PAIR)
    worse = [one for one in tested if one.significant and (one.worse_by or 0) > 0]
    judged = sum(one.metric.better != "none" for one in tested)
    none = f"none of {judged} metrics is significantly worse, by {comparison.pass_rate.n_cases} cases"
    found = ", ".join(f"{one.name} {_size(one)} (p {one.p_holm:.2g})" for one in worse)
    return GateResult(gate, "failed" if worse else "passed", found or none)


def _size(one: Difference) -> str:
    difference = one.difference or 0.0
    return f"{difference * 100:+.1f} points" if one.metric.type == "bool" else f"{difference:+.3g}"


def _bounded(gate: FailOn, name: str, comparison: Comparison) -> GateResult:
    found = _named(name, comparison)
    if found.difference is None:
        return GateResult(gate, "unmeasured", _NO_PAIR)
    if found.worse_by is None:
        raise UsageError(f"--fail-on {gate.text!r}: of {name} it is not known which way is better")
    unmet = found.worse_by > gate.allowed + _ROUNDING
    return GateResult(
        gate, "failed" if unmet else "passed", f"{found.a:.4g} -> {found.b:.4g} ({found.difference:+.4g})"
    )


def _named(name: str, comparison: Comparison) -> Difference:
    known = {one.name: one for one in (comparison.pass_rate, *comparison.metrics, *comparison.by_type)}
    if name not in known:
        raise UsageError(f"--fail-on: no metric {name!r} is in both runs{did_you_mean(name, known)}")
    return known[name]
