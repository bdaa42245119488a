"""Numbers beside a threshold, with enough digits to show on which side of it they lie."""

from __future__ import annotations

from visioneval.analysis.summary.findings import GateFinding
from visioneval.counted import count_of
from visioneval.records.model import Record
from visioneval.rules import parse_gate, parse_rule, show_beside


def gate_value(gate: GateFinding) -> str:
    """The value of a gate, with its interval if it has one. A quantile may have one limit only."""
    if gate.value is None:
        return "no value"
    value = show_beside(gate.value, parse_gate(gate.rule).threshold)
    if gate.low is None and gate.high is None:
        return value
    low, high = ("no limit" if limit is None else _bound(limit) for limit in (gate.low, gate.high))
    return f"{value} [{low}, {high}]"


def gate_cells(gate: GateFinding) -> str:
    """The number of cells of a gate, and its errors, or the cells that it leaves out if these are others."""
    missing = count_of(gate.errors, "error") if gate.errors else ""
    if gate.unmeasured and gate.unmeasured != gate.errors:
        missing = f"{gate.unmeasured:,} not measured"
    return ", ".join(filter(None, (f"n={gate.n}", missing)))


def gate_note(gate: GateFinding) -> str:
    """A sentence about the cells that a gate leaves out, if they are too many or not just its errors; else empty."""
    return f"{gate.rule}: {gate.note}" if gate.is_unreliable or gate.unmeasured > gate.errors else ""


def show_interval(low: float | None, high: float | None) -> str:
    """`` [0.55, 0.95]`` with a leading space, or nothing if there is no interval."""
    return "" if low is None or high is None else f" [{_bound(low)}, {_bound(high)}]"


def _bound(value: float) -> str:
    return f"{value:.2f}" if abs(value) <= 1 else f"{value:.3g}"


def thresholds_of(record: Record) -> dict[str, float]:
    """The thresholds that a cell did not reach, by metric."""
    rules = map(parse_rule, (*record.warned_rules, *record.failed_rules))
    return {rule.metric: rule.threshold for rule in rules if rule.op is not None}
