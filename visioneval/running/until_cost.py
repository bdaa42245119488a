"""What a run until its gates are decided may cost at most, and will on average. Makes no call."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from visioneval.analysis.planning import PastCosts
from visioneval.analysis.summary.until import SimulatedGate, scope_of, simulated_gate, why_not_sampled
from visioneval.records.model import RunInfo
from visioneval.running.estimate import CostEstimate, estimate
from visioneval.running.plan import Plan
from visioneval.running.until import UntilOptions

CASE_CORRELATION = 0.5
"""The assumed correlation between samples of a case, as in ``plan --detect``."""
_REPETITIONS, _DRAWS = 200, 400_000


@dataclass(frozen=True, slots=True)
class UntilEstimate:
    """The cells and the known cost of a run until its gates are decided, at most and on average.

    On average, if each gate's true value is halfway between its limit and the best value, and the samples of a case
    correlate by ``CASE_CORRELATION``.
    """

    max_samples: int
    most_cells: int
    most_usd: float
    average_cells: int
    average_usd: float
    is_priced: bool
    """Whether all prices are known."""


def estimate_until(
    plan: Plan, until: UntilOptions, info: RunInfo, first: CostEstimate, past: Callable[[], PastCosts] = PastCosts
) -> UntilEstimate:
    """The estimate for a plan, whose ``first`` look is estimated. A baseline can ask for all samples of every case."""
    entries = [entry for entry in info.suite.gates if not why_not_sampled(entry, info)]
    gates = [(simulated_gate(entry, info, until.max_samples), scope_of(entry, info)) for entry in entries]
    keys = sorted(frozenset[tuple[str, str]]().union(*(scope for _, scope in gates)))
    every = [(case.id, run.label) for case in plan.suite.cases for run in plan.runs]
    most_samples = dict.fromkeys(every if until.baseline is not None else keys, until.max_samples)
    most = estimate(replace(plan, case_samples=most_samples), past)
    share = 0.0
    if keys:
        indices = [(gate, [keys.index(key) for key in scope]) for gate, scope in gates]
        further = _average_samples(indices, len(keys), plan.suite.samples, until.max_samples) - plan.suite.samples
        share = further / (until.max_samples - plan.suite.samples)
    gated = (
        most
        if until.baseline is None
        else estimate(replace(plan, case_samples=dict.fromkeys(keys, until.max_samples)), past)
    )
    return UntilEstimate(
        max_samples=until.max_samples,
        most_cells=most.cells,
        most_usd=most.usd,
        average_cells=round(first.cells + share * (gated.cells - first.cells)),
        average_usd=first.usd + share * (gated.usd - first.usd),
        is_priced=not most.unpriced,
    )


def _average_samples(gates: Sequence[tuple[SimulatedGate, Sequence[int]]], cases: int, first: int, most: int) -> float:
    """The mean number of samples of a case, over simulated runs with yes-or-no cells."""
    chance, total = random.Random(1), 0  # noqa: S311 - a simulation
    repetitions = max(10, min(_REPETITIONS, _DRAWS // (cases * most)))
    for _ in range(repetitions):
        needed = [first] * cases
        for gate, scope in gates:
            spread = 1 / CASE_CORRELATION - 1
            a, b = gate.truth * spread, (1 - gate.truth) * spread
            rates = [chance.betavariate(a, b) if a and b else gate.truth for _ in scope]
            cells = [[float(chance.random() < rate) for _ in range(most)] for rate in rates]
            stop = next((number for number in range(first, most) if gate.is_decided(cells, number)), most)
            for index in scope:
                needed[index] = max(needed[index], stop)
        total += sum(needed)
    return total / (repetitions * cases)
