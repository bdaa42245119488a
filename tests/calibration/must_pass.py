"""How often the gate ``must_pass`` fails equal runs, and how often it sees a case that fails most of the time.

    python -m tests.calibration.must_pass [REPETITIONS]

Each simulated comparison is judged by ``compare`` and its gate. In equal runs, five tagged cases are good in A and in B,
and each verdict is turned round with the probability of the noise. For the loss, one tagged case always passes in A
and fails 80 % of the time in B. With ``--confirm``, new samples are taken as the engine takes them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

import numpy as np

from visioneval import Verdict
from visioneval.analysis.compare.compare import compare
from visioneval.analysis.compare.confirm import Confirmation, MustPassCase
from visioneval.analysis.compare.gates import check_gates, parse_fail_on
from visioneval.analysis.sides import Cell, Side
from visioneval.types import MUST_PASS

TAGGED, BAD = 5, 0.8
NOISES, SAMPLES, CONFIRM = (0.02, 0.05, 0.10), (1, 3, 4, 5, 8), 4
GATE = parse_fail_on([MUST_PASS])


@dataclass(frozen=True)
class Design:
    """Tagged cases, samples per case and run, the new samples that confirm, and the failure rates of a sample."""

    cases: int
    samples: int
    confirm: int
    fails_a: float
    fails_b: float

    def __str__(self) -> str:
        name = f"{self.cases} cases x {self.samples} samples"
        return f"{name}, --confirm {self.confirm}" if self.confirm else name


def _verdicts(fails: float, size: int, chance: np.random.Generator) -> list[Verdict]:
    return [Verdict.FAIL if number < fails else Verdict.PASS for number in chance.random(size)]


def _run(name: str, design: Design, fails: float, chance: np.random.Generator) -> Side:
    verdicts = iter(_verdicts(fails, design.cases * design.samples, chance))
    cells = [
        Cell(f"case{case}", "m", sample, next(verdicts), tags=(MUST_PASS,))
        for case in range(design.cases)
        for sample in range(design.samples)
    ]
    return Side(name=name, cells=cells, state="complete")


def _new_verdicts(case: MustPassCase, design: Design, chance: np.random.Generator) -> list[Verdict]:
    verdicts: list[Verdict] = []
    judged = case.with_new(design.confirm, verdicts)
    while judged.needed:
        verdicts += _verdicts(design.fails_b, judged.needed, chance)
        judged = case.with_new(design.confirm, verdicts)
    return verdicts


def is_failed(design: Design, chance: np.random.Generator) -> bool:
    """Whether the gate fails one simulated comparison."""
    comparison = compare(_run("a", design, design.fails_a, chance), _run("b", design, design.fails_b, chance))
    (gate,) = check_gates(comparison, GATE)
    if gate.state == "failed" and design.confirm:
        broken = [case for case in gate.cases if case.state == "broken"]
        new = {case.key: _new_verdicts(case, design, chance) for case in broken}
        (gate,) = check_gates(comparison, GATE, Confirmation(design.confirm, new))
    assert gate.state != "unmeasured"
    return gate.state == "failed"


def rate(design: Design, repetitions: int, seed: int = 0) -> tuple[float, float]:
    """The share of simulated comparisons that fail, and its standard error."""
    chance = np.random.default_rng(seed)
    share = sum(is_failed(design, chance) for _ in range(repetitions)) / repetitions
    return share, sqrt(share * (1 - share) / repetitions)


def equal_runs() -> Iterator[tuple[float, Design]]:
    """The designs without a difference, each with its noise."""
    for noise in NOISES:
        for samples in SAMPLES:
            yield noise, Design(TAGGED, samples, 0, noise, noise)
        for samples in SAMPLES[:2]:
            yield noise, Design(TAGGED, samples, CONFIRM, noise, noise)


def losses() -> Iterator[Design]:
    """The designs with one case that fails most of the time in B."""
    for samples in SAMPLES:
        yield Design(1, samples, 0, 0.0, BAD)
    for samples in SAMPLES[:2]:
        yield Design(1, samples, CONFIRM, 0.0, BAD)


def main() -> None:
    """Prints a line for each design."""
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    print(f"share of {repetitions:,} simulated comparisons that fail by must_pass, and its standard error")
    designs = [(f"equal runs, noise {noise:.0%}", design) for noise, design in equal_runs()]
    designs += [(f"fails {BAD:.0%} of the time", design) for design in losses()]
    for name, design in designs:
        share, error = rate(design, repetitions)
        print(f"{name:<24} {design!s:<36} {share:7.4f} {error:7.4f}", flush=True)


if __name__ == "__main__":
    main()
