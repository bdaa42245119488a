"""Gates of a comparison: parses ``--fail-on`` and checks it. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from visioneval.analysis.cell_tables import Cells
from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.differences import PASS_RATE, Difference
from visioneval.analysis.compare.must_pass import Confirmation, MustPassCase, describe_cases, must_pass_cases
from visioneval.defaults import MAX_CONFIRM
from visioneval.errors import ExitCode, UsageError
from visioneval.records.model import CellKey
from visioneval.rules import is_true, show_beside
from visioneval.suite.loading.messages import did_you_mean
from visioneval.types import MUST_PASS, Metric

DEFAULT = ("broken_same_output", "significant", MUST_PASS)
NAMES = ("broken", *DEFAULT)
_UNMEASURED = "no pair with both cells measured"
_ALL_FLAKY = "every case is flaky"

State = Literal["passed", "failed", "unmeasured"]
OverallState = Literal["passed", "failed", "unmeasured", "incomplete"]


@dataclass(frozen=True, slots=True)
class FailOn:
    """One ``--fail-on``: a name, or a metric (or ``pass_rate``) and how much worse it may be."""

    text: str
    metric: str | None = None
    allowed: float = 0.0


@dataclass(frozen=True, slots=True)
class GateResult:
    """The result of one ``--fail-on``. ``cases`` are all cases of the gate ``must_pass``."""

    fail_on: FailOn
    state: State
    message: str
    cases: tuple[MustPassCase, ...] = ()


def parse_fail_on(values: Sequence[str]) -> tuple[FailOn, ...]:
    """Parses the values of ``--fail-on``, or the default if there are none. Raises ``UsageError``."""
    return tuple(_parse(value) for value in dict.fromkeys(values or DEFAULT))


def _parse(value: str) -> FailOn:
    if value in NAMES:
        return FailOn(value)
    metric, colon, number = value.rpartition(":")
    if not colon or not metric:
        hint = f"{did_you_mean(value, NAMES)}: or METRIC:NUMBER, such as {PASS_RATE}:0.05"
        raise UsageError(f"--fail-on {value!r}: unknown gate{hint}")
    try:
        allowed = float(number)
    except ValueError:
        allowed = math.nan
    if not 0 <= allowed < math.inf:
        raise UsageError(f"--fail-on {value!r}: {number!r} is not a number >= 0")
    if metric == PASS_RATE and allowed >= 1:
        raise UsageError(f"--fail-on {value!r}: no rate can fall by more than 1: write {PASS_RATE}:0.05 for 5 points")
    return FailOn(value, metric, allowed)


def check_confirm(samples: int, gates: Sequence[FailOn]) -> None:
    """Raises ``UsageError`` for an invalid number of new samples, and if no gate would use them."""
    if not 1 <= samples <= MAX_CONFIRM:
        raise UsageError(f"confirm must be from 1 to {MAX_CONFIRM} samples, not {samples}")
    if MUST_PASS not in (gate.text for gate in gates):
        raise UsageError(f"--confirm is for the gate {MUST_PASS}: add --fail-on {MUST_PASS}")


def check_gates(
    comparison: Comparison, gates: Sequence[FailOn], confirmation: Confirmation | None = None
) -> tuple[GateResult, ...]:
    """Checks every gate. Raises ``UsageError`` for a metric without a direction.

    ``confirmation`` has new samples of the ``must_pass`` cases that broke.
    """
    return tuple(_check(gate, comparison, confirmation) for gate in gates)


def exit_code(comparison: Comparison, results: Sequence[GateResult], *, interrupted: bool = False) -> ExitCode:
    """Returns 3 if B is incomplete or a gate was not measured, 1 if a gate failed, or 0; 130 if interrupted."""
    if interrupted:
        return ExitCode.INTERRUPTED
    codes = {"passed": ExitCode.PASSED, "failed": ExitCode.GATE_FAILED}
    return codes.get(overall_state(comparison, results), ExitCode.INCOMPLETE)


def overall_state(comparison: Comparison, results: Sequence[GateResult]) -> OverallState:
    """The overall state, which determines the exit code."""
    states = {result.state for result in results}
    if comparison.b.state not in (None, "complete"):
        return "incomplete"
    if "unmeasured" in states:
        return "unmeasured"
    return "failed" if "failed" in states else "passed"


def _check(gate: FailOn, comparison: Comparison, confirmation: Confirmation | None) -> GateResult:
    if gate.text == MUST_PASS:
        return _check_must_pass(gate, comparison, confirmation)
    if not comparison.stable_pairs:
        return GateResult(gate, "passed", _ALL_FLAKY)
    if gate.metric is not None:
        return _check_bound(gate, gate.metric, comparison)
    if gate.text == "significant":
        return _check_significant(gate, comparison)
    return _check_broken(gate, comparison)


_SCOPES = {"broken": "cells", "broken_same_output": "cells with the same output"}


def _check_broken(gate: FailOn, comparison: Comparison) -> GateResult:
    """Fails if a cell that passed in A fails in B. Unmeasured if such a cell is an error in B."""
    subject = _SCOPES[gate.text]
    pairs, broken, unmeasured = comparison.marks.breaks(same_output=gate.text == "broken_same_output")
    if not pairs:
        return GateResult(gate, "passed", f"no {subject}")
    message = f"{broken} of {pairs} {subject} broke"
    if unmeasured:
        message += f", {unmeasured} that passed in A could not be measured in B"
    return GateResult(gate, "failed" if broken else "unmeasured" if unmeasured else "passed", message)


def _check_must_pass(gate: FailOn, comparison: Comparison, confirmation: Confirmation | None) -> GateResult:
    """Fails if a case broke. Unmeasured if its samples cannot decide, and if B lost any of them."""
    cases = must_pass_cases(comparison, cells_lost(comparison), confirmation)
    if not cases:
        return GateResult(gate, "passed", "no cases tagged must_pass" if comparison.stable_pairs else _ALL_FLAKY)
    states = {case.state for case in cases} | {"unmeasured" for case in cases if case.missing}
    state: State = "failed" if "broken" in states else "unmeasured" if "unmeasured" in states else "passed"
    return GateResult(gate, state, describe_cases(cases, confirmation), cases)


def cells_lost(comparison: Comparison) -> Cells:
    """Cells that only A has, without those that flags or ``RUN@LABEL`` left out of B."""
    renamed, b = dict(comparison.labels), comparison.b

    def is_lost(cell: CellKey) -> bool:
        test_id, label, sample = cell
        return not (b.is_narrowed and label not in renamed) and not b.leaves_out(
            test_id, renamed.get(label, label), sample
        )

    return comparison.only_a.where(is_lost)


def _check_significant(gate: FailOn, comparison: Comparison) -> GateResult:
    tested = [difference for difference in (comparison.pass_rate, *comparison.metrics) if difference.n_pairs]
    if not comparison.pass_rate.n_pairs:
        return GateResult(gate, "unmeasured", _UNMEASURED)
    worse = [difference for difference in tested if difference.significant and (difference.worse_by or 0) > 0]
    judged = sum(difference.metric.better != "none" for difference in tested)
    none_worse = f"none of {judged} metrics is significantly worse, over {comparison.pass_rate.n_cases} cases"
    message = ", ".join(f"{metric.name} {_format_size(metric)} (p {metric.p_holm:.2g})" for metric in worse)
    return GateResult(gate, "failed" if worse else "passed", message or none_worse)


def _format_size(metric: Difference) -> str:
    value = metric.difference or 0.0
    return f"{value * 100:+.1f} points" if metric.metric.type == "bool" else f"{value:+.3g}"


def _check_bound(gate: FailOn, name: str, comparison: Comparison) -> GateResult:
    if (changed := next((item for item in comparison.changed_metrics if item.metric == name), None)) is not None:
        return GateResult(gate, "unmeasured", str(changed))
    difference = _difference_of(name, comparison)
    if difference.difference is None:
        return GateResult(gate, "unmeasured", _UNMEASURED)
    if difference.worse_by is None:
        raise UsageError(
            f"--fail-on {gate.text!r}: cannot tell which values of {name} are better: its 'better' is 'none'"
        )
    most = _widest_fall(difference.metric)
    if most is not None and gate.allowed >= most:
        raise UsageError(
            f"--fail-on {gate.text!r}: {name} cannot get worse by more than {most:g}: write less than that"
        )
    is_failed = is_true(difference.worse_by, ">", gate.allowed)
    change = show_beside(abs(difference.difference), gate.allowed)
    return GateResult(
        gate,
        "failed" if is_failed else "passed",
        f"{difference.a:.4g} -> {difference.b:.4g} ({'-' if difference.difference < 0 else '+'}{change})",
    )


def _widest_fall(metric: Metric) -> float | None:
    """The largest difference that a metric can have; ``None`` if it has no bound."""
    low, high = (0, 1) if metric.type == "bool" else metric.range or (None, None)
    return None if low is None or high is None else high - low


def _difference_of(name: str, comparison: Comparison) -> Difference:
    by_name = {
        difference.name: difference for difference in (comparison.pass_rate, *comparison.metrics, *comparison.by_type)
    }
    if name not in by_name:
        raise UsageError(f"--fail-on: no metric {name!r} in both runs{did_you_mean(name, by_name)}")
    return by_name[name]
