"""Numbers beside a threshold, with enough digits to show on which side of it they lie."""

from __future__ import annotations

from collections.abc import Sequence

from visioneval.analysis.summary.gates import GateFinding
from visioneval.errors import count_of
from visioneval.records.model import Record
from visioneval.rules import parse_gate, parse_rule, show_beside

REPEAT_FAILS = "a repeat fails"
"""The heading of how often a run of the same quality fails a gate."""


def gate_value(gate: GateFinding) -> str:
    """The value of a gate, with its interval if it has one. A quantile may have one limit only."""
    if gate.value is None:
        return "no value"
    threshold = parse_gate(gate.rule).threshold
    value = show_beside(gate.value, threshold)
    if gate.low is None and gate.high is None:
        return value
    low, high = ("no limit" if limit is None else _bound(limit, threshold) for limit in (gate.low, gate.high))
    return f"{value} [{low}, {high}]"


def gate_cells(gate: GateFinding) -> str:
    """The number of cells of a gate, and its errors, or the cells that it leaves out if these are others.

    The value of a gate on ``error_rate`` shows its errors.
    """
    missing = count_of(gate.errors, "error") if gate.errors and parse_gate(gate.rule).fn != "error_rate" else ""
    if gate.unmeasured and gate.unmeasured != gate.errors:
        missing = f"{gate.unmeasured:,} not measured"
    return ", ".join(filter(None, (f"n={gate.n}", missing)))


def gate_note(gate: GateFinding) -> str:
    """Why a gate cannot tell, and a sentence about the cells that it leaves out, if they are too many or not just its
    errors; else empty.
    """
    notes = [bound_note(gate), gate.note if gate.is_unreliable or gate.unmeasured > gate.errors else ""]
    return f"{gate.rule}: {'; '.join(filter(None, notes))}" if any(notes) else ""


def bound_note(gate: GateFinding) -> str:
    """Why a gate whose bound decides cannot tell; else empty."""
    if gate.state != "cannot_tell":
        return ""
    parsed = parse_gate(gate.rule)
    name, bound = ("lower", gate.low) if parsed.is_minimum else ("upper", gate.high)
    if bound is None:
        return f"cannot tell: the value passes, and its {name} bound is unknown"
    shown = show_beside(bound, parsed.threshold, 2, "f")
    return f"cannot tell: the value passes, its {name} bound {shown} does not"


def gate_repeat(gate: GateFinding) -> str:
    """How often a run of the same quality fails a gate: ``1 of 12 runs``; empty if that is unknown."""
    share = gate.repeat_fails
    return "" if share is None else show_share_of_runs(share)


def repeats_note(gates: Sequence[GateFinding]) -> str:
    """How often a run of the same quality fails each gate for which that is known; empty if there is none."""
    known = [
        f"{gate.rule}{f' ({gate.scope})' * bool(gate.scope)} in {text}" for gate in gates if (text := gate_repeat(gate))
    ]
    return f"A run of the same quality fails {', '.join(known)}" if known else ""


def show_share_of_runs(share: float) -> str:
    """``1 of 12 runs`` for a small probability, ``3 of 10 runs`` for a larger one, with its limits in words."""
    if share < 0.001:
        return "under 1 of 1,000 runs"
    if share < 0.15:
        return f"1 of {1 / share:,.0f} runs"
    if share <= 0.95:
        return f"{max(1, min(9, round(10 * share)))} of 10 runs"
    return "nearly all runs"


def show_interval(low: float | None, high: float | None) -> str:
    """`` [0.55, 0.95]`` with a leading space, or nothing if there is no interval."""
    return "" if low is None or high is None else f" [{_bound(low, 0)}, {_bound(high, 0)}]"


def _bound(value: float, beside: float) -> str:
    """A limit with the digits that show its side of another number."""
    return show_beside(value, beside, 2, "f") if abs(value) <= 1 else show_beside(value, beside, 3)


def thresholds_of(record: Record) -> dict[str, float]:
    """The thresholds that a cell did not reach, by metric."""
    rules = map(parse_rule, (*record.warned_rules, *record.failed_rules))
    return {rule.metric: rule.threshold for rule in rules if rule.op is not None}
