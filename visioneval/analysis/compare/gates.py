"""Decides about a comparison: the gates (``--fail-on``), what they leave out, what B lost, and the exit code. Pure.

The command, the API and the pages of ``view`` all decide here, so that they never differ. Each loss (metrics, measured
cells, cells) is reported like a gate that was not measured, until ``--allow`` accepts it. Cells that are an ERROR on
both sides are named, and do not count: B lost nothing by them, and A was accepted with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from visioneval.analysis.compare.compare import ERRORS, LOSSES, MAX_NAMES, Comparison, cells_lost, losses
from visioneval.analysis.compare.confirm import (
    Confirmation,
    MustPassCase,
    describe_cases,
    must_pass_cases,
)
from visioneval.analysis.compare.differences import PASS_RATE, Difference, widest_difference
from visioneval.analysis.compare.regressed import (
    check_regressed,
    is_in_doubt,
    pooled_metric,
    pooled_passes,
)
from visioneval.analysis.left_out import LeftOut, parse_allow
from visioneval.analysis.stats.basic import grouped
from visioneval.errors import ExitCode, UsageError, count_of, did_you_mean
from visioneval.rules import is_true, show_beside
from visioneval.settings import MAX_CONFIRM
from visioneval.suite.metrics import BUILT_IN
from visioneval.types import MUST_PASS, Verdict

REGRESSED, MUST_DETECT = "regressed", "must_detect"
CANNOT_TELL, UNMEASURED = "cannot-tell", "unmeasured"
ALLOWED = (*LOSSES, UNMEASURED, CANNOT_TELL)
"""What ``--allow`` accepts:

- ``missing-metrics``: B lost a metric: it is missing, has another meaning, or over 5 % of its measurements in the pairs
  are missing. Cells of B without an output count as errors only.
- ``errors``: B lost a measurement: a cell is an ERROR or has a failed grader in B and not in A. `errors=0.02` accepts
  up to 2 % of the pairs.
- ``missing-cells``: B lost a cell: its case or model run was deleted or renamed, not left out by a flag.
- ``excuses``: B lost a reason to fail: it excuses a cell that A does not.
- ``unmeasured``: Over 5 % of a gate's pairs are not measured in A or on both sides (`null`, an ERROR in A only).
  `unmeasured=0.1` or `errors=0.1` accepts up to 10 %.
- ``cannot-tell``: A gate cannot tell. It then counts as passed.
"""
DRIFT = "drift"
DEFAULT = ("broken_same_output", REGRESSED, MUST_PASS)
DEFAULT_OF_SERIES = (DRIFT, "broken_same_output", MUST_PASS)
"""The default with the last runs of an experiment: no single night is tested by chance a second time."""
NAMES = ("broken", *DEFAULT, DRIFT)
"""The gates of a comparison, and when each fails:

- ``broken``: Any cell that passed now fails. New outputs and judges' answers differ, so one cell that broke is often
  noise.
- ``broken_same_output``: The same, for cells whose output is the same file: a grader or a rule changed its result.
- ``regressed``: B is worse by more than chance: the pass rate, a single case, or a metric.
- ``must_pass``: A case with the tag `must_pass` breaks: most of its samples passed in A, and most fail in B. For cases
  that pass every time.
- ``drift``: The last runs of an experiment (`--experiment`) are worse together by more than chance.
- ``METRIC:NUMBER``: The metric, or `pass_rate` in 0..1, is worse by more than NUMBER.
"""
_UNMEASURED = "no pair with both cells measured"
_ALL_FLAKY = "every case is flaky"
_REPLACED = {"significant": f"it is now part of {REGRESSED}, which also tests each case: write --fail-on {REGRESSED}"}

State = Literal["passed", "failed", "not_applicable", "cannot_tell", "unmeasured"]
"""What a gate of a comparison says:

- ``passed``: Tested, and nothing is wrong.
- ``failed``: Tested, and something is wrong.
- ``not_applicable``: It is about nothing here: no case is tagged, no output is the same file, every case is flaky.
- ``cannot_tell``: B is worse, and so few cases and samples cannot show whether by chance. `--allow cannot-tell` makes
  it `passed`.
- ``unmeasured``: Printed as NOT MEASURED. What it is about was not measured, such as a cell that passed and is an ERROR
  now, or there is no measured pair. Also where every gate would be `not_applicable`, so that nothing could fail.
"""
OverallState = Literal["passed", "failed", "unmeasured", "cannot_tell", "incomplete"]
Allowed = Mapping[str, float]
"""The losses that are accepted, by kind; for ``errors`` and ``unmeasured``, up to this share of the pairs."""


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


def parse_fail_on(values: Sequence[str], *, is_series: bool = False) -> tuple[FailOn, ...]:
    """Parses the values of ``--fail-on``, or the default if there are none. Raises ``UsageError``.

    The last runs of an experiment (``is_series``) always have the gate ``drift``.
    """
    gates = []
    if is_series:
        values = (DRIFT, *values) if values else DEFAULT_OF_SERIES
    elif DRIFT in values:
        raise UsageError(f"--fail-on {DRIFT}: is about the last runs of an experiment: name it with --experiment")
    for value in dict.fromkeys(values or DEFAULT):
        if value in NAMES:
            gates.append(FailOn(value))
            continue
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
            limit = f"write {PASS_RATE}:0.05 for 5 points"
            raise UsageError(f"--fail-on {value!r}: no rate can fall by more than 1: {limit}")
        gates.append(FailOn(value, metric, allowed))
    return tuple(gates)


def check_confirm(samples: int, gates: Sequence[FailOn]) -> None:
    """Raises ``UsageError`` for an invalid number of new samples, and if no gate would use them."""
    if not 1 <= samples <= MAX_CONFIRM:
        raise UsageError(f"confirm must be from 1 to {MAX_CONFIRM} samples, not {samples}")
    if not any(gate.text in (MUST_PASS, REGRESSED) or gate.metric is not None for gate in gates):
        raise UsageError(
            f"--confirm is for the gates {REGRESSED}, {MUST_PASS} and METRIC:NUMBER: add --fail-on {REGRESSED}"
        )


def needs_all_cases(comparison: Comparison, gate: FailOn) -> bool:
    """Whether the gate is uncertain, and only new samples of all compared cases can decide it."""
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

    ``confirmation`` has new samples of what is uncertain, of which the share ``granted`` may lack a number. ``broken``
    and ``broken_same_output`` never use it: they are about single cells of B, which new samples are not.
    """
    results = []
    for gate in gates:
        if gate.text == DRIFT and comparison.drift is not None:
            result = GateResult(gate, comparison.drift.state, comparison.drift.message)
        elif gate.text == MUST_PASS:
            result = _check_must_pass(gate, comparison, confirmation)
        elif not comparison.stable_pairs:
            result = GateResult(gate, "not_applicable", _ALL_FLAKY)
        elif gate.metric is not None:
            result = _check_bound(gate, gate.metric, comparison, confirmation, granted)
        elif gate.text == REGRESSED:
            result = GateResult(gate, *check_regressed(comparison, confirmation, granted))
        else:
            result = _check_broken(gate, comparison)
        results.append(result)
    return tuple(results)


def _check_broken(gate: FailOn, comparison: Comparison) -> GateResult:
    """Fails if a cell that passed in A fails in B. Unmeasured if such a cell is an error in B."""
    rows, which = comparison.table.stable, ""
    broken = sum(row.change == "broken" for row in rows)
    if gate.text == "broken_same_output":
        rows, which = [row for row in rows if row.same_output], " with the same output"
        broken = sum(row.same_output_broke for row in rows)
    if not rows:
        return GateResult(gate, "not_applicable", f"no cells{which}")
    unmeasured = sum(row.verdict_a is Verdict.PASS and row.verdict_b is Verdict.ERROR for row in rows)
    message = f"{broken:,} of {count_of(len(rows), 'cell')}{which} broke"
    if unmeasured:
        message += f", {unmeasured} that passed in A could not be measured in B"
    return GateResult(gate, "failed" if broken else "unmeasured" if unmeasured else "passed", message)


def _check_must_pass(gate: FailOn, comparison: Comparison, confirmation: Confirmation | None) -> GateResult:
    """Fails if a case broke. Unmeasured if its samples cannot decide, and if B lost any of them."""
    cases = must_pass_cases(comparison, cells_lost(comparison), confirmation)
    if not cases:
        flaky = sum(case.must_pass and case.flaky for case in comparison.tagged_cases.values())
        left_out = f"{count_of(flaky, 'case')} tagged must_pass {'is' if flaky == 1 else 'are'} flaky"
        why = left_out if flaky else "no cases tagged must_pass"
        return GateResult(gate, "not_applicable", why if comparison.stable_pairs else _ALL_FLAKY)
    states = {case.state for case in cases} | {"unmeasured" for case in cases if case.missing}
    state: State = "failed" if "broken" in states else "unmeasured" if "unmeasured" in states else "passed"
    return GateResult(gate, state, describe_cases(cases, confirmation), cases)


def _check_detectable(comparison: Comparison, points: float) -> GateResult:
    """Cannot tell where a drop of the pass rate by ``points`` would be missed more than one time in five: by the last
    runs together, if the comparison is about drift.
    """
    gate, rate, drift = FailOn(f"{MUST_DETECT}:{points:g}"), comparison.pass_rate, comparison.drift
    if not rate.n_pairs:
        return GateResult(gate, "unmeasured", _UNMEASURED)
    detectable, over = rate.detectable, count_of(rate.n_cases, "case")
    if drift is not None and (evidence := drift.nights[-1].evidence) is not None:
        detectable = drift.detectable
        over = f"{count_of(evidence.cases, 'case')} in {count_of(evidence.runs, 'run')}"
    if detectable is not None and is_true(100 * detectable, "<=", points):
        return GateResult(gate, "passed", f"a drop of {points:g} points is detected with 80 % power")
    size = "no drop" if detectable is None else f"only a drop of {100 * detectable:.3g} points"
    return GateResult(gate, "cannot_tell", f"{size} is detected with 80 % power over {over}")


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
    worse_by = difference.worse_by
    message = f"{difference.a:.4g} -> {difference.b:.4g} ({_shown(difference.difference, gate)})"
    if confirmation is not None and _is_bound_in_doubt(difference, gate.allowed):  # then all samples of B decide
        is_rate = name == PASS_RATE
        pooled = (
            pooled_passes(comparison, confirmation) if is_rate else pooled_metric(comparison, confirmation, difference)
        )
        if (lack := pooled.new.why_not_pooled(confirmation, granted)) is not None:
            return GateResult(gate, lack[0], f"{message} was uncertain{lack[1]}")
        worse_by = -pooled.change if difference.metric.better == "higher" else pooled.change
        samples = pooled.new.words(confirmation)
        message += f"; over all samples, {samples}, {_shown(pooled.change, gate)}, which decides"
    return GateResult(gate, "failed" if is_true(worse_by, ">", gate.allowed) else "passed", message)


def _is_bound_in_doubt(difference: Difference, allowed: float) -> bool:
    """Whether a number got worse by more than is allowed, and its interval does not exclude that it did not."""
    if difference.worse_by is None or not is_true(difference.worse_by, ">", allowed):
        return False
    interval = difference.interval
    if interval is None:
        return True
    least = -interval.high if difference.metric.better == "higher" else interval.low
    return not is_true(least, ">", allowed)


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


@dataclass(frozen=True, slots=True)
class Criteria:
    """By what a comparison is decided.

    ``must_detect`` is the drop of the pass rate, in points, that must not be missed; by default that of the suites.
    """

    gates: tuple[FailOn, ...]
    allowed: Allowed
    must_detect: float | None = None

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that the gates name."""
        return tuple(gate.metric for gate in self.gates if gate.metric is not None)

    @property
    def granted(self) -> float:
        """The share of what a number is about that may lack a measurement."""
        return max(self.allowed.get(kind, 0.0) for kind in (UNMEASURED, ERRORS))


def parse_criteria(
    fail_on: Sequence[str] = (),
    allow: Sequence[str] = (),
    must_detect: float | None = None,
    *,
    is_series: bool = False,
) -> Criteria:
    """Parses the values of ``--fail-on``, ``--allow`` and ``--must-detect``. Raises ``UsageError``."""
    gates, allowed = parse_fail_on(fail_on, is_series=is_series), parse_allowed(allow)
    if must_detect is not None and not 0 < must_detect <= 100:
        raise UsageError(f"--must-detect {must_detect:g}: must be above 0 and at most 100 points")
    return Criteria(gates, allowed, must_detect)


def decide(
    comparison: Comparison, criteria: Criteria, confirmation: Confirmation | None = None
) -> tuple[GateResult, ...]:
    """The result of every gate, then those of what B lost. Raises ``UsageError`` for a metric without a direction."""
    allowed, granted = criteria.allowed, criteria.granted
    checked = check_gates(comparison, criteria.gates, confirmation, granted)
    results = [_with_unmeasured(result, comparison, granted) for result in checked]
    if all(result.state == "not_applicable" for result in results):
        why = "so no gate could fail"
        results = [replace(item, state="unmeasured", message=f"{item.message}, {why}") for item in results]
    of_suites = [side.must_detect for side in (comparison.a, comparison.b) if side.must_detect is not None]
    points = criteria.must_detect if criteria.must_detect is not None else min(of_suites, default=None)
    if points is not None:
        results.append(_check_detectable(comparison, points))
    if CANNOT_TELL in allowed:
        results = [
            replace(item, state="passed", message=f"{item.message} (allowed)") if item.state == "cannot_tell" else item
            for item in results
        ]
    return (*results, *check_coverage(comparison, allowed))


def parse_allowed(values: Iterable[str]) -> Allowed:
    """Parses the values of ``--allow``. Raises ``UsageError``."""
    return parse_allow(values, ALLOWED, rated=(ERRORS, UNMEASURED))


def check_coverage(comparison: Comparison, allowed: Allowed) -> tuple[GateResult, ...]:
    """One result for each kind of loss."""
    results = []
    for loss in losses(comparison):
        is_accepted = is_true(loss.share, "<=", allowed.get(loss.kind, 0.0))
        state: State = "passed" if not loss.what or is_accepted else "unmeasured"
        end = " (allowed)" if is_accepted else f" (--allow {loss.kind} accepts this)"
        results.append(GateResult(FailOn(loss.kind), state, f"{loss.what}{end}" if loss.what else loss.none_lost))
    return tuple(results)


def _with_unmeasured(result: GateResult, comparison: Comparison, limit: float) -> GateResult:
    """The result with what the gate leaves out. Where that is too much, it cannot tell.

    A cell that broke is broken however many others were not measured, so that such a gate remains failed.
    """
    lost = [(name, left_out) for name, left_out in _left_out_of(result, comparison) if left_out.unmeasured]
    if not lost:
        return result
    too_many = [entry for entry in lost if entry[1].is_too_much(limit)]
    named = grouped((left_out.sentence("pair", limit), name) for name, left_out in (too_many or lost)[:MAX_NAMES])
    numbers = [f"{', '.join(names)}: {sentence}" for sentence, names in named.items()]
    more = len(too_many or lost) - MAX_NAMES
    message = "; ".join([result.message, *numbers, *([f"{more} more metrics"] if more > 0 else [])])
    if not too_many:
        return replace(result, message=message)
    is_certain = result.state == "failed" and result.fail_on.text.startswith("broken")
    message += f" (--allow {UNMEASURED}=RATE accepts more)"
    return replace(result, state=result.state if is_certain else "unmeasured", message=message)


def _left_out_of(result: GateResult, comparison: Comparison) -> Iterator[tuple[str, LeftOut]]:
    """What a gate leaves out of each number that it is about. ``must_pass`` and ``drift`` have counts of their own."""
    gate = result.fail_on
    if gate.text in (MUST_PASS, DRIFT) or not comparison.stable_pairs:
        return
    if gate.metric is None or gate.metric == PASS_RATE:
        rows = [row for row in comparison.table.stable if row.same_output or gate.text != "broken_same_output"]
        only_in_b = sum(row.change == "error_before" for row in rows)
        yield PASS_RATE, LeftOut(only_in_b, sum(row.verdict_b is not Verdict.ERROR for row in rows))
    differences = (*comparison.metrics, *(comparison.by_type if gate.metric is not None else ()))
    for difference in differences:
        is_tested = difference.metric.better != "none" and difference.name not in BUILT_IN
        if difference.name == gate.metric or (gate.text == REGRESSED and is_tested):
            lost = comparison.coverage.left_out.get(difference.name, 0)
            yield difference.name, LeftOut(lost, difference.n_pairs + lost)
