"""How often a run of the same quality fails a gate: the same cases and samples, with nothing changed. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from visioneval.analysis.stats.repeats import cells_of, failing_share, repeated_above, repeated_counts
from visioneval.rules import Gate, gate_passes, is_true

Samples = Sequence[Sequence[float]]
"""The values of each case on each model run."""


def repeat_fails(gate: Gate, value: float, parts: Sequence[tuple[float, Samples]], *, is_rate: bool) -> float | None:
    """The probability that a repeated run fails a gate. ``parts`` have their share of its ``value``.

    The run that is repeated is no more the truth than the new one, so both vary. Only the variance within cases counts:
    a repeated run has the same cases. A quantile fails if too few cells are on its right side, which is a rate.

    ``None`` if it is unknown: of a gate on errors, which an outage brings all at once or not at all; of a mean without
    variance; and of one that must equal a number, or not equal it.
    """
    if gate.is_about_errors or not all(samples for _, samples in parts):
        return None
    if gate.quantile is not None:
        return _quantile_fails(gate, gate.quantile, parts[0][1])
    cells = [(share, cells_of(samples, is_rate=is_rate)) for share, samples in parts]
    if is_rate and len(cells) == 1:
        ((_, observed),) = cells
        return failing_share(repeated_counts(observed), lambda count: gate_passes(gate, count / observed.number))
    if not gate.has_side:
        return None
    above = repeated_above(value, gate.threshold, cells)
    return 1 - above if above is not None and gate.is_minimum else above


def _quantile_fails(gate: Gate, quantile: float, samples: Samples) -> float | None:
    if not gate.has_side:
        return None
    right = [[float(is_true(value, gate.op, gate.threshold)) for value in case] for case in samples]
    observed = cells_of(right, is_rate=True)
    nearest = round((observed.number - 1) * quantile)  # the value that decides, counted from 0 in ascending order
    needed = observed.number - nearest if gate.is_minimum else nearest + 1
    return failing_share(repeated_counts(observed), lambda count: count >= needed)
