"""Rates and gates of a probe: which perturbations graders catch, and how often they fail harmless changes. Pure.

A gate tests the cautious end of the interval, not the estimate.

- detection and false alarms (``probe``): as accuracy
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

from visioneval.analysis.left_out import NOTHING, LeftOut
from visioneval.analysis.stats.basic import ends, grouped
from visioneval.analysis.stats.intervals import case_sums, whole_case_interval
from visioneval.errors import ExitCode, UsageError, did_you_mean
from visioneval.records.untrusted import SCHEMA_VERSION
from visioneval.rules import is_true, show_beside
from visioneval.suite.filters import chain_of
from visioneval.types import Frozen, Verdict

HARMLESS = "harmless"
"""The group of changes that are no perturbations: the first word of their kinds."""
CAUGHT = 0.9
"""The share of outputs in which a perturbation counts as caught."""
FLAG = "--min-detection"


@dataclass(frozen=True, slots=True)
class ProbedCell:
    """One changed output and its grades.

    ``failed`` are the metrics that a failed rule reads, ``measured`` and ``unmeasured`` those that any rule reads.
    """

    case: str
    model: str
    sample: int
    kind: str
    strength: str
    number: float
    verdict: Verdict
    failed: frozenset[str] = frozenset()
    measured: frozenset[str] = frozenset()
    unmeasured: frozenset[str] = frozenset()
    detail: str = ""
    """What changed in a prompt."""

    @property
    def is_harmless(self) -> bool:
        """Whether the change is no perturbation."""
        return self.kind.partition(".")[0] == HARMLESS


class ProbeRate(Frozen):
    """How many changed outputs failed by a metric, or, without a metric, by any rule.

    ``rate`` is a share of ``outputs``, with its 95 % interval over ``cases``. ``unmeasured`` counts outputs without a
    score or verdict. Of perturbations, they are part of ``outputs`` and not caught; of harmless changes, they are left
    out.
    """

    kind: str
    strength: str
    metric: str | None
    grader: str | None
    outputs: int
    failed: int
    unmeasured: int
    cases: int
    rate: float | None
    low: float | None
    high: float | None


class WeakestCaught(Frozen):
    """The weakest strength from which on a metric, or without one any rule, fails at least 9 of 10 outputs.

    ``strength`` is ``None`` if the strongest is not caught that often, and empty for a kind without strengths.
    """

    kind: str
    metric: str | None
    strength: str | None


class MissedPerturbation(Frozen):
    """A perturbed output that no rule failed. ``verdict`` is ``ERROR`` if a grader could not measure it."""

    case: str
    model: str
    sample: int
    kind: str
    strength: str
    verdict: Verdict
    detail: str = ""
    """What changed in a prompt."""


class ProbeGate(Frozen):
    """A gate: its text, its state, and the estimate and the bound of the 95 % interval that decides.

    It is about ``outputs`` changed outputs, of which ``unmeasured`` count as the worst that they can be.
    """

    gate: str
    state: Literal["passed", "failed", "unmeasured"]
    value: float | None
    bound: float | None
    outputs: int = 0
    unmeasured: int = 0
    message: str


class ProbeFindings(Frozen):
    """The result of ``probe``."""

    schema_version: int = SCHEMA_VERSION
    visioneval_version: str
    source: str
    suite: str
    seed: int
    outputs: int
    cases: int
    metrics: dict[str, str]
    """The grader of each metric that a rule reads."""
    detections: tuple[ProbeRate, ...]
    false_alarms: tuple[ProbeRate, ...]
    weakest: tuple[WeakestCaught, ...]
    missed: tuple[MissedPerturbation, ...]
    notes: tuple[str, ...]
    """What was skipped, and why."""
    gates: tuple[ProbeGate, ...]
    stopped: str | None = None
    """Why the probe is incomplete."""
    exit_code: int


def rates_of(cells: Sequence[ProbedCell], metrics: Mapping[str, str]) -> Iterator[ProbeRate]:
    """The rates of each kind and strength, in the order of the cells: by any rule first, then by each metric.

    ``metrics`` are the graders by metric.
    """
    for (kind, strength), alike in grouped(((cell.kind, cell.strength), cell) for cell in cells).items():
        yield from metric_rates(alike, kind, strength, metrics)


def metric_rates(
    cells: Sequence[ProbedCell], kind: str, strength: str, metrics: Mapping[str, str]
) -> Iterator[ProbeRate]:
    """The rate by any rule, then by each metric that is due for any of these cells."""
    yield rate_of(cells, kind, strength)
    for metric, grader in metrics.items():
        due = [cell for cell in cells if metric in cell.measured or metric in cell.unmeasured]
        if due:
            yield rate_of(due, kind, strength, metric, grader)


def rate_of(
    cells: Sequence[ProbedCell], kind: str, strength: str = "", metric: str | None = None, grader: str | None = None
) -> ProbeRate:
    """The rate of one metric over cells of one sort: all perturbations, or all harmless changes.

    An interval needs a case. It counts each case once, so that no failure to detect ever looks better than none.
    """
    unmeasured = outputs = failed = 0
    by_case: dict[str, list[float]] = {}
    for cell in cells:
        is_unmeasured = cell.verdict is Verdict.ERROR if metric is None else metric in cell.unmeasured
        unmeasured += is_unmeasured
        if not (cell.is_harmless and is_unmeasured):
            has_failed = cell.verdict is Verdict.FAIL and (metric is None or metric in cell.failed)
            outputs += 1
            failed += has_failed
            by_case.setdefault(chain_of(cell.case), []).append(float(has_failed))
    low, high = ends(whole_case_interval(case_sums(by_case)))
    return ProbeRate(
        kind=kind,
        strength=strength,
        metric=metric,
        grader=grader,
        outputs=outputs,
        failed=failed,
        unmeasured=unmeasured,
        cases=len(by_case),
        rate=failed / outputs if outputs else None,
        low=low,
        high=high,
    )


def weakest_caught(rates: Iterable[ProbeRate]) -> Iterator[WeakestCaught]:
    """The weakest strength from which on a perturbation is caught. ``rates`` are in the order of strength."""
    for (kind, metric), strengths in grouped(((rate.kind, rate.metric), rate) for rate in rates).items():
        weakest = None
        for rate in reversed(strengths):
            if rate.rate is None or not is_true(rate.rate, ">=", CAUGHT):
                break
            weakest = rate.strength
        yield WeakestCaught(kind=kind, metric=metric, strength=weakest)


@dataclass(frozen=True, slots=True)
class MinDetection:
    """The least detection rate of the kinds with this name or prefix, from a strength on."""

    text: str
    kind: str
    rate: float
    number: float | None = None
    """The smallest strength that counts, in the unit of the kind."""

    def covers(self, cell: ProbedCell) -> bool:
        """Whether a cell is about this perturbation."""
        is_of_kind = cell.kind == self.kind or cell.kind.startswith(f"{self.kind}.")
        return is_of_kind and not cell.is_harmless and (self.number is None or cell.number >= self.number)


def parse_min_detection(text: str, kinds: Collection[str]) -> MinDetection:
    """Parses ``KIND:RATE`` or ``KIND@STRENGTH:RATE``. ``kinds`` are the names of kinds. Raises ``UsageError``."""
    name, _, limit = text.rpartition(":")
    kind, at, strength = name.partition("@")
    perturbations = [name.split(".") for name in kinds if not name.startswith(HARMLESS)]
    prefixes = {prefix for words in perturbations for prefix in accumulate(words, "{}.{}".format)}
    if not kind:
        raise UsageError(f"{FLAG} {text!r}: write KIND:RATE, such as copy.letter:0.9")
    if kind not in prefixes:
        raise UsageError(f"{FLAG} {text!r}: no kind of perturbation {kind!r}{did_you_mean(kind, sorted(prefixes))}")
    rate = _number(limit)
    if rate is None or not 0 <= rate <= 1:
        raise UsageError(f"{FLAG} {text!r}: {limit!r} is not a rate from 0 to 1")
    number = _number(strength) if at else None
    if at and (number is None or kind not in kinds):
        raise UsageError(
            f"{FLAG} {text!r}: write KIND@STRENGTH:RATE with one kind and a number, as pixels.patch@12:0.9"
        )
    return MinDetection(text, kind, rate, number)


def check_max_false_alarm(rate: float | None) -> None:
    """Raises ``UsageError`` for a rate that is none."""
    if rate is not None and not 0 <= rate <= 1:
        raise UsageError(f"--max-false-alarm {rate:g}: must be from 0 to 1")


def check_gates(
    cells: Sequence[ProbedCell],
    minimums: Iterable[MinDetection],
    max_false_alarm: float | None,
    originals: LeftOut = NOTHING,
    granted: float = 0.0,
) -> tuple[ProbeGate, ...]:
    """Checks every gate.

    ``originals`` are the outputs that nobody could probe, as they have no verdict as they are. ``granted`` is the share
    of them, and of changed outputs, that need not be measured.
    """
    gates = []
    for minimum in minimums:
        rate = rate_of([cell for cell in cells if minimum.covers(cell)], minimum.kind)
        if rate.outputs:
            gates.append(_decided(f"{FLAG} {minimum.text}", rate, ">=", minimum.rate, rate.unmeasured))
        else:
            gates.append(_unmeasured_gate(f"{FLAG} {minimum.text}", "this perturbation could not be applied"))
    if max_false_alarm is not None:
        harmless = [cell for cell in cells if cell.is_harmless]
        errors = sum(cell.verdict is Verdict.ERROR for cell in harmless)
        gate = f"--max-false-alarm {max_false_alarm:g}"
        if errors == len(harmless):
            gates.append(_unmeasured_gate(gate, "no harmless change could be measured"))
        else:  # an output that could not be measured counts as a false alarm: it did not pass
            strict = [
                replace(cell, verdict=Verdict.FAIL) if cell.verdict is Verdict.ERROR else cell for cell in harmless
            ]
            gates.append(_decided(gate, rate_of(strict, HARMLESS), "<=", max_false_alarm, errors))
    results = []
    for item in gates:  # a failed one is unmeasured if too many changed outputs were not measured
        changes = LeftOut(item.unmeasured, item.outputs)
        is_unmeasured = originals.is_too_much(granted) or (item.state == "failed" and changes.is_too_much(granted))
        message = "; ".join(filter(None, (item.message, originals.sentence("output", granted))))
        state = "unmeasured" if is_unmeasured else item.state
        results.append(item.model_copy(update={"state": state, "message": message}))
    return tuple(results)


def exit_code(
    cells: Sequence[ProbedCell], gates: Iterable[ProbeGate], stopped: str | None, *, interrupted: bool
) -> ExitCode:
    """130 if interrupted, 3 if nothing was perturbed or something is missing, 1 if a gate failed, else 0."""
    states = {gate.state for gate in gates}
    if interrupted:
        return ExitCode.INTERRUPTED
    if not cells or stopped is not None or "unmeasured" in states:
        return ExitCode.INCOMPLETE
    return ExitCode.GATE_FAILED if "failed" in states else ExitCode.PASSED


def _unmeasured_gate(gate: str, message: str) -> ProbeGate:
    return ProbeGate(gate=gate, state="unmeasured", value=None, bound=None, message=message)


def _decided(gate: str, rate: ProbeRate, op: Literal[">=", "<="], limit: float, errors: int) -> ProbeGate:
    """The gate that compares a bound of a rate with a limit. ``errors`` of its outputs were not measured."""
    bound, side, verb = (rate.low, "least", "caught") if op == ">=" else (rate.high, "most", "failed")
    assert rate.rate is not None
    assert bound is not None
    message = (
        f"{verb} {rate.failed} of {rate.outputs} in {rate.cases} case{'s' * (rate.cases != 1)}: {rate.rate:.3g}, at"
        f" {side} {show_beside(bound, limit, 3)} with 95 % confidence"
    )
    return ProbeGate(
        gate=gate,
        state="passed" if is_true(bound, op, limit) else "failed",
        value=rate.rate,
        bound=bound,
        outputs=rate.outputs,
        unmeasured=errors,
        message=message + (f", {errors} of them not measured" if errors else ""),
    )


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
