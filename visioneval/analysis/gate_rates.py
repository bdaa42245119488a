"""How often a gate over a rate fails at true rates, before a run is paid for. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from math import floor

from visioneval.analysis.sample_size import DEFAULT_CORRELATION, Noise
from visioneval.analysis.stats.power import counts_at_rate, failing_share
from visioneval.errors import UsageError, did_you_mean
from visioneval.rules import NOISE, Gate, gate_passes, parse_gate
from visioneval.types import Metric

RATES = (0.8, 0.85, 0.88, 0.9, 0.91, 0.92, 0.93, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99)
"""The true rates that are planned with; one minus them for a gate that a rate must not exceed."""
GOOD_RATE = 0.95
GOOD_FAILS = 0.05
"""A suggested threshold fails a suite with ``GOOD_RATE`` in at most this share of runs."""
_PLANNED = ("pass_rate", "rate", "mean")


@dataclass(frozen=True, slots=True)
class RateRow:
    """How often the gate fails if the true rate is ``rate``, for each of the correlations."""

    rate: float
    fails: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class GateRates:
    """How often a gate over ``cells`` cells fails, by true rate and by the correlation of samples of a case.

    ``suggested`` is the strictest that fails ``good_rate`` in at most one of twenty runs, with the probability
    ``suggested_fails``.
    """

    gate: str
    cells: int
    correlations: tuple[float, ...]
    rows: tuple[RateRow, ...]
    good_rate: float
    suggested: str
    suggested_fails: float
    notes: tuple[str, ...]


def parse_planned_gate(text: str, metrics: Mapping[str, Metric]) -> Gate:
    """Reads a gate over a rate that has a side. Raises ``UsageError``."""
    try:
        gate = parse_gate(text)
    except ValueError as error:
        raise UsageError(f"--gate: {error}") from None
    if gate.metric is not None and gate.metric not in metrics:
        raise UsageError(
            f"--gate {text!r}: the suite has no metric {gate.metric!r}{did_you_mean(gate.metric, metrics)}"
        )
    if gate.is_about_errors:
        raise UsageError(
            f"--gate {text!r}: errors come from outages, whose chance no number of cases and samples tells"
        )
    if gate.fn not in _PLANNED or (gate.metric is not None and metrics[gate.metric].type != "bool"):
        raise UsageError(f"--gate {text!r}: takes a rate: pass_rate, or rate(METRIC) of a yes-or-no metric")
    if not 0 <= gate.threshold <= 1:
        raise UsageError(f"--gate {text!r}: a rate is between 0 and 1")
    if not gate.has_side and (gate.op, gate.threshold) not in (("==", 0), ("==", 1)):
        raise UsageError(f"--gate {text!r}: write a limit, with >=, >, <= or <")
    return gate


def gate_rates(gate: Gate, cells: int, noise: Noise) -> GateRates:
    """How often a gate over so many cells fails. ``noise`` shows how much samples of a case have in common."""
    correlations, notes = _correlations(noise)
    is_minimum = gate.is_minimum or (gate.op == "==" and gate.threshold == 1)
    rates = RATES if is_minimum else tuple(round(1 - rate, 12) for rate in reversed(RATES))
    rows = tuple(RateRow(rate, tuple(_fails(gate, cells, rate, rho) for rho in correlations)) for rate in rates)
    good = GOOD_RATE if is_minimum else round(1 - GOOD_RATE, 12)
    suggested = _suggestion(gate, cells, good, correlations, is_minimum=is_minimum)
    fails = max(_fails(suggested, cells, good, rho) for rho in correlations)
    return GateRates(gate.text, cells, correlations, rows, good, suggested.text, fails, notes)


def _correlations(noise: Noise) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """The known correlation between samples of a case, or none and an assumed one."""
    variance = noise.rate * (1 - noise.rate)
    is_known = noise.is_correlation_known and variance > 0
    rho = 1 - min(1.0, noise.within / variance) if is_known else DEFAULT_CORRELATION
    basis = "" if variance else "A run without any variance shows no correlation. "
    if is_known:
        return (rho,), noise.notes
    note = (
        f"{basis}Samples of a case have a correlation of 0 if all cases are equally hard, and of 1 if a case always or"
        " never passes: --like RUN, with several samples, measures it."
    )
    return (0.0, rho), (note,)


def _fails(gate: Gate, cells: int, rate: float, correlation: float) -> float:
    counts = counts_at_rate(cells, rate, rate * (1 - rate) * (1 - correlation))
    return failing_share(counts, lambda count: gate_passes(gate, count / cells))


def _suggestion(gate: Gate, cells: int, rate: float, correlations: tuple[float, ...], *, is_minimum: bool) -> Gate:
    """The same gate with the strictest threshold that fails a true ``rate`` seldom, whatever the correlation is.

    Some always does: that of a single cell on the right side.
    """
    subject = gate.text[: gate.text.rindex(gate.op)].strip()

    def limited(failures: int) -> Gate:
        return parse_gate(f"{subject} {'>=' if is_minimum else '<='} {_threshold(failures, cells, is_minimum)}")

    def suffices(failures: int) -> bool:
        return all(_fails(limited(failures), cells, rate, rho) <= GOOD_FAILS + NOISE for rho in correlations)

    return limited(bisect_left(range(cells - 1), True, key=suffices))


def _threshold(failures: int, cells: int, is_minimum: bool) -> str:
    """The shortest threshold that this many failures meet, and one more does not."""
    for digits in range(2, 12):
        scale = 10**digits
        passing = floor((cells - failures) / cells * scale + 1e-9) / scale
        if passing > (cells - failures - 1) / cells:
            break
    return f"{passing if is_minimum else 1 - passing:.{digits}g}" if passing else "0"
