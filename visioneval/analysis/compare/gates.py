"""Gates of a comparison: parses ``--fail-on`` and checks it. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from visioneval.analysis.cells import Cells
from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.confirm import is_in_doubt
from visioneval.analysis.compare.differences import PASS_RATE, Difference, widest_difference
from visioneval.analysis.compare.must_pass import (
    Confirmation,
    MustPassCase,
    describe_cases,
    flaky_must_pass,
    must_pass_cases,
)
from visioneval.analysis.compare.pooled import PooledMetric, PooledPasses, pooled_metrics, pooled_passes
from visioneval.analysis.compare.regressed import check_regressed
from visioneval.errors import ExitCode, UsageError, count_of, did_you_mean
from visioneval.records.model import CellKey
from visioneval.rules import is_true, show_beside
from visioneval.settings import MAX_CONFIRM
from visioneval.types import MUST_PASS, Verdict

REGRESSED, CANNOT_TELL, MUST_DETECT = "regressed", "cannot-tell", "must_detect"
DEFAULT = ("broken_same_output", REGRESSED, MUST_PASS)
NAMES = ("broken", *DEFAULT)
_UNMEASURED = "no pair with both cells measured"
_ALL_FLAKY = "every case is flaky"
_REPLACED = {"significant": f"it is now part of {REGRESSED}, which also tests each case: write --fail-on {REGRESSED}"}

State = Literal["passed", "failed", "unmeasured", "cannot_tell", "not_applicable"]
OverallState = Literal["passed", "failed", "unmeasured", "cannot_tell", "incomplete"]


@dataclass(frozen=True, slots=True)
class FailOn:
    """One ``--fail-on``: a name, or a metric (or ``pass_rate``) and how much worse it may be."""

    text: str
    metric: str | None = None
    allowed: float = 0.0


@dataclass(frozen=True, slots=True)
class GateResult:
    """The result of one ``--fail-on``. ``cases`` are all cases of the gate ``must_pass``.

    A gate is not applicable where it is about nothing here. It cannot tell where B is worse, and too few cases and
    samples show whether by chance.
    """

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
    if value in _REPLACED:
        raise UsageError(f"--fail-on {value}: {_REPLACED[value]}")
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
    if not any(gate.text in (MUST_PASS, REGRESSED) or gate.metric is not None for gate in gates):
        raise UsageError(
            f"--confirm is for the gates {REGRESSED}, {MUST_PASS} and METRIC:NUMBER: add --fail-on {REGRESSED}"
        )


def needs_all_cases(comparison: Comparison, gate: FailOn) -> bool:
    """Whether the gate is in doubt, and only new samples of all compared cases can decide it."""
    if gate.metric is None:
        return gate.text == REGRESSED and is_in_doubt(comparison)
    if not comparison.stable_pairs:
        return False
    if any(changed.metric == gate.metric for changed in comparison.changed_metrics):
        return False
    return _is_bound_in_doubt(_difference_of(gate.metric, comparison), gate.allowed)


def check_gates(
    comparison: Comparison,
    gates: Sequence[FailOn],
    confirmation: Confirmation | None = None,
    granted: float = 0.0,
) -> tuple[GateResult, ...]:
    """Checks every gate. Raises ``UsageError`` for a metric without a direction.

    ``confirmation`` has new samples of what is in doubt, of which the share ``granted`` may lack a number. ``broken``
    and ``broken_same_output`` never use it: they are about single cells of B, which new samples are not.
    """
    return tuple(_check(gate, comparison, confirmation, granted) for gate in gates)


def check_applicable(results: Sequence[GateResult]) -> tuple[GateResult, ...]:
    """The results of all gates: if none of them is about anything here, nothing was measured."""
    if any(result.state != "not_applicable" for result in results):
        return tuple(results)
    return tuple(
        replace(result, state="unmeasured", message=f"{result.message}, so no gate could fail") for result in results
    )


def check_detectable(comparison: Comparison, points: float) -> GateResult:
    """Cannot tell where a drop of the pass rate by ``points`` would be missed more than one time in five."""
    gate, rate = FailOn(f"{MUST_DETECT}:{points:g}"), comparison.pass_rate
    if not rate.n_pairs:
        return GateResult(gate, "unmeasured", _UNMEASURED)
    if rate.detectable is not None and is_true(100 * rate.detectable, "<=", points):
        return GateResult(gate, "passed", f"a drop of {points:g} points is found at least four times in five")
    size = "no drop" if rate.detectable is None else f"only a drop of {100 * rate.detectable:.3g} points"
    return GateResult(gate, "cannot_tell", f"{size} is found four times in five over {count_of(rate.n_cases, 'case')}")


def allow_cannot_tell(results: Sequence[GateResult]) -> tuple[GateResult, ...]:
    """The results with ``--allow cannot-tell``."""
    return tuple(
        replace(result, state="passed", message=f"{result.message} (allowed)")
        if result.state == "cannot_tell"
        else result
        for result in results
    )


def exit_code(comparison: Comparison, results: Sequence[GateResult], *, interrupted: bool = False) -> ExitCode:
    """Returns 3 if B is incomplete or a gate was not measured or cannot tell, 1 if one failed, or 0.

    130 if interrupted.
    """
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
    if "failed" in states:
        return "failed"
    return "cannot_tell" if "cannot_tell" in states else "passed"


def _check(gate: FailOn, comparison: Comparison, confirmation: Confirmation | None, granted: float) -> GateResult:
    if gate.text == MUST_PASS:
        return _check_must_pass(gate, comparison, confirmation)
    if not comparison.stable_pairs:
        return GateResult(gate, "not_applicable", _ALL_FLAKY)
    if gate.metric is not None:
        return _check_bound(gate, gate.metric, comparison, confirmation, granted)
    if gate.text == REGRESSED:
        regression = check_regressed(comparison, confirmation, granted)
        return GateResult(gate, regression.state, regression.message)
    return _check_broken(gate, comparison)


def _check_broken(gate: FailOn, comparison: Comparison) -> GateResult:
    """Fails if a cell that passed in A fails in B. Unmeasured if such a cell is an error in B."""
    rows, subject = comparison.table.stable, "cells"
    broken = sum(row.change == "broken" for row in rows)
    if gate.text == "broken_same_output":
        rows, subject = [row for row in rows if row.same_output], "cells with the same output"
        broken = sum(row.same_output_broke for row in rows)
    if not rows:
        return GateResult(gate, "not_applicable", f"no {subject}")
    unmeasured = sum(row.verdict_a is Verdict.PASS and row.verdict_b is Verdict.ERROR for row in rows)
    message = f"{broken} of {len(rows)} {subject} broke"
    if unmeasured:
        message += f", {unmeasured} that passed in A could not be measured in B"
    return GateResult(gate, "failed" if broken else "unmeasured" if unmeasured else "passed", message)


def _check_must_pass(gate: FailOn, comparison: Comparison, confirmation: Confirmation | None) -> GateResult:
    """Fails if a case broke. Unmeasured if its samples cannot decide, and if B lost any of them."""
    cases = must_pass_cases(comparison, cells_lost(comparison), confirmation)
    if not cases:
        return GateResult(gate, "not_applicable", _why_none(comparison))
    states = {case.state for case in cases} | {"unmeasured" for case in cases if case.missing}
    state: State = "failed" if "broken" in states else "unmeasured" if "unmeasured" in states else "passed"
    return GateResult(gate, state, describe_cases(cases, confirmation), cases)


def _why_none(comparison: Comparison) -> str:
    """Why the gate ``must_pass`` is about no case."""
    if not comparison.stable_pairs:
        return _ALL_FLAKY
    if flaky := flaky_must_pass(comparison):
        return f"{count_of(flaky, 'case')} tagged must_pass {'is' if flaky == 1 else 'are'} flaky"
    return "no cases tagged must_pass"


def cells_lost(comparison: Comparison) -> Cells:
    """Cells that only A has, without those that flags or ``RUN@LABEL`` left out of B."""
    renamed, b = dict(comparison.labels), comparison.b

    def is_lost(cell: CellKey) -> bool:
        test_id, label, sample = cell
        return not (b.is_narrowed and label not in renamed) and not b.leaves_out(
            test_id, renamed.get(label, label), sample
        )

    return comparison.only_a.where(is_lost)


def _check_bound(
    gate: FailOn, name: str, comparison: Comparison, confirmation: Confirmation | None, granted: float
) -> GateResult:
    if (changed := next((item for item in comparison.changed_metrics if item.metric == name), None)) is not None:
        return GateResult(gate, "unmeasured", str(changed))
    difference = _difference_of(name, comparison)
    if difference.difference is None:
        return GateResult(gate, "unmeasured", _UNMEASURED)
    if difference.worse_by is None:
        raise UsageError(
            f"--fail-on {gate.text!r}: cannot tell which values of {name} are better: its 'better' is 'none'"
        )
    most = widest_difference(difference.metric)
    if most is not None and gate.allowed >= most:
        raise UsageError(
            f"--fail-on {gate.text!r}: {name} cannot get worse by more than {most:g}: write less than that"
        )
    is_failed = is_true(difference.worse_by, ">", gate.allowed)
    message = f"{difference.a:.4g} -> {difference.b:.4g} ({_shown(difference.difference, gate)})"
    if confirmation is not None and _is_bound_in_doubt(difference, gate.allowed):
        return _check_again(gate, difference, message, comparison, confirmation, granted)
    return GateResult(gate, "failed" if is_failed else "passed", message)


def _is_bound_in_doubt(difference: Difference, allowed: float) -> bool:
    """Whether a number got worse by more than is allowed, and its interval does not exclude that it did not."""
    if difference.worse_by is None or not is_true(difference.worse_by, ">", allowed):
        return False
    interval = difference.interval
    if interval is None:
        return True
    least = -interval.high if difference.metric.better == "higher" else interval.low
    return not is_true(least, ">", allowed)


def _check_again(
    gate: FailOn,
    first: Difference,
    message: str,
    comparison: Comparison,
    confirmation: Confirmation,
    granted: float,
) -> GateResult:
    """Fails if a number that is in doubt got worse by more than is allowed in all samples of B."""
    pooled: PooledPasses | PooledMetric
    if first.name == PASS_RATE:
        pooled = pooled_passes(comparison, confirmation)
    else:
        (pooled,) = pooled_metrics(comparison, confirmation, [first])
    if (lack := pooled.new.why_not_pooled(confirmation, granted)) is not None:
        return GateResult(gate, lack[0], f"{message} was in doubt{lack[1]}")
    is_failed = is_true(-pooled.change if first.metric.better == "higher" else pooled.change, ">", gate.allowed)
    after = f"over all samples, {pooled.new.words(confirmation)}, {_shown(pooled.change, gate)}, which decides"
    return GateResult(gate, "failed" if is_failed else "passed", f"{message}; {after}")


def _shown(change: float, gate: FailOn) -> str:
    return f"{'-' if change < 0 else '+'}{show_beside(abs(change), gate.allowed)}"


def _difference_of(name: str, comparison: Comparison) -> Difference:
    by_name = {
        difference.name: difference for difference in (comparison.pass_rate, *comparison.metrics, *comparison.by_type)
    }
    if name not in by_name and any(
        share.name == name or share.name.startswith(f"{name}: ") for share in comparison.by_word
    ):
        raise UsageError(
            f"--fail-on: {name} is one word of a list, of which none is better: write a verdict rule, and limit"
            f" {PASS_RATE}"
        )
    if name not in by_name:
        raise UsageError(f"--fail-on: no metric {name!r} in both runs{did_you_mean(name, by_name)}")
    return by_name[name]
