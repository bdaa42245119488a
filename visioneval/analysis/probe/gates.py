"""Gates of a probe, and its exit code. A gate tests the cautious end of the interval, not the estimate."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from visioneval.analysis.left_out import NOTHING, LeftOut
from visioneval.analysis.probe.findings import HARMLESS, ProbedCell, ProbeGate
from visioneval.analysis.probe.rates import rate_of
from visioneval.errors import ExitCode, UsageError
from visioneval.rules import is_true, show_beside
from visioneval.suite.loading.messages import did_you_mean
from visioneval.types import Verdict

FLAG = "--min-detection"


@dataclass(frozen=True, slots=True)
class MinDetection:
    """The least detection rate of the kinds with this name or prefix, from a strength on."""

    text: str
    kind: str
    rate: float
    number: float | None = None
    """The smallest strength that counts, in the unit of the kind."""

    def covers(self, cell: ProbedCell) -> bool:
        """Whether a cell is about this damage."""
        is_of_kind = cell.kind == self.kind or cell.kind.startswith(f"{self.kind}.")
        return is_of_kind and not cell.is_harmless and (self.number is None or cell.number >= self.number)


def parse_min_detection(text: str, kinds: Collection[str]) -> MinDetection:
    """Parses ``KIND:RATE`` or ``KIND@STRENGTH:RATE``. ``kinds`` are the names of kinds. Raises ``UsageError``."""
    name, _, limit = text.rpartition(":")
    kind, at, strength = name.partition("@")
    prefixes = {name[:end] for name in kinds for end in (*_dots(name), len(name)) if not name.startswith(HARMLESS)}
    if not kind:
        raise UsageError(f"{FLAG} {text!r}: write KIND:RATE, such as copy.letter:0.9")
    if kind not in prefixes:
        raise UsageError(f"{FLAG} {text!r}: no kind of damage {kind!r}{did_you_mean(kind, sorted(prefixes))}")
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
    gates = [_detection_gate(gate, [cell for cell in cells if gate.covers(cell)]) for gate in minimums]
    if max_false_alarm is not None:
        gates.append(_false_alarm_gate(max_false_alarm, [cell for cell in cells if cell.is_harmless]))
    return tuple(_with_left_out(gate, originals, granted) for gate in gates)


def _with_left_out(gate: ProbeGate, originals: LeftOut, granted: float) -> ProbeGate:
    """If too many outputs could not be probed, every gate is unmeasured. If too many changed outputs were not measured,
    a failed gate is unmeasured."""
    changes = LeftOut(gate.unmeasured, gate.outputs)
    is_unmeasured = originals.is_too_much(granted) or (gate.state == "failed" and changes.is_too_much(granted))
    message = "; ".join(filter(None, (gate.message, originals.sentence("output", granted))))
    return gate.model_copy(update={"state": "unmeasured" if is_unmeasured else gate.state, "message": message})


def exit_code(
    cells: Sequence[ProbedCell], gates: Iterable[ProbeGate], stopped: str | None, *, interrupted: bool
) -> ExitCode:
    """130 if interrupted, 3 if nothing was planted or something is missing, 1 if a gate failed, else 0."""
    states = {gate.state for gate in gates}
    if interrupted:
        return ExitCode.INTERRUPTED
    if not cells or stopped is not None or "unmeasured" in states:
        return ExitCode.INCOMPLETE
    return ExitCode.GATE_FAILED if "failed" in states else ExitCode.PASSED


def _detection_gate(gate: MinDetection, cells: Sequence[ProbedCell]) -> ProbeGate:
    rate = rate_of(cells, gate.kind, "", None, None)
    if rate.rate is None or rate.low is None:
        return _unmeasured(f"{FLAG} {gate.text}", "no such damage could be planted")
    state: Literal["passed", "failed"] = "passed" if is_true(rate.low, ">=", gate.rate) else "failed"
    message = (
        f"caught {rate.failed} of {rate.outputs} in {_cases(rate.cases)}: {rate.rate:.3g}, at least"
        f" {show_beside(rate.low, gate.rate, 3)} with 95 % confidence"
    )
    return ProbeGate(
        gate=f"{FLAG} {gate.text}",
        state=state,
        value=rate.rate,
        bound=rate.low,
        outputs=rate.outputs,
        unmeasured=rate.unmeasured,
        message=message + _apart(rate.unmeasured),
    )


def _false_alarm_gate(limit: float, cells: Sequence[ProbedCell]) -> ProbeGate:
    """An output that could not be measured counts as a false alarm here: it did not pass."""
    text = f"--max-false-alarm {limit:g}"
    errors = sum(cell.verdict is Verdict.ERROR for cell in cells)
    strict = [replace(cell, verdict=Verdict.FAIL) if cell.verdict is Verdict.ERROR else cell for cell in cells]
    rate = rate_of(strict, HARMLESS, "", None, None)
    if rate.rate is None or rate.high is None or errors == len(cells):
        return _unmeasured(text, "no harmless change could be measured")
    state: Literal["passed", "failed"] = "passed" if is_true(rate.high, "<=", limit) else "failed"
    message = (
        f"failed {rate.failed} of {rate.outputs} in {_cases(rate.cases)}: {rate.rate:.3g}, at most"
        f" {show_beside(rate.high, limit, 3)} with 95 % confidence"
    )
    return ProbeGate(
        gate=text,
        state=state,
        value=rate.rate,
        bound=rate.high,
        outputs=rate.outputs,
        unmeasured=errors,
        message=message + _apart(errors),
    )


def _unmeasured(text: str, message: str) -> ProbeGate:
    return ProbeGate(gate=text, state="unmeasured", value=None, bound=None, message=message)


def _cases(number: int) -> str:
    return f"{number} case{'s' * (number != 1)}"


def _apart(errors: int) -> str:
    return f", {errors} of them not measured" if errors else ""


def _dots(name: str) -> list[int]:
    return [at for at, char in enumerate(name) if char == "."]


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
