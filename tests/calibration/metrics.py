"""How often metrics fail equal runs, and how often their drops are found, without and with new samples.

    python -m tests.calibration.metrics [REPETITIONS]

Every cell passes, and has three metrics: two scores from 0 to 5 and a yes or no. So the gate ``regressed`` decides by
its family of metrics alone. ``quality:0.1`` fails a fall of the first score by more than that. Each simulated comparison
is judged by ``compare`` and its gates; new samples are taken as the engine takes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tests.calibration.designs import Floats, Row, odds, repetitions, show
from visioneval.analysis.cells import Cell
from visioneval.analysis.compare.compare import Comparison, compare
from visioneval.analysis.compare.gates import check_gates, needs_all_cases, parse_fail_on
from visioneval.analysis.compare.must_pass import CaseKey, Confirmation
from visioneval.analysis.compare.sampled import sampled_cases
from visioneval.analysis.sides import Side
from visioneval.types import Metric, Score, Verdict

GATES = parse_fail_on(["regressed", "quality:0.1"])
CONFIRM = 3
SCORE = Metric(type="number", range=(0, 5), better="higher")
METRICS = {"quality": SCORE, "likeness": SCORE, "legible": Metric(type="bool", better="higher")}
SIZES = ((30, 1), (30, 3), (100, 1))
BETWEEN, WITHIN = 0.8, 0.8
"""Standard deviations of a score, around 3.8: of the means of cases, and of the samples of a case."""
RATE, CORRELATION = 0.85, 0.5


@dataclass(frozen=True)
class Worse:
    """By how much B is worse: points of the first score, and the share of the yeses that it loses."""

    score: float = 0.0
    share: float = 0.0

    def __str__(self) -> str:
        parts = [f"quality -{self.score}"] * bool(self.score) + [f"legible -{self.share:.0%}"] * bool(self.share)
        return " and ".join(parts) or "equal"


@dataclass(frozen=True)
class Cases:
    """The means of both scores and the rate of the yeses, of each case."""

    scores: Floats
    rates: Floats

    @classmethod
    def drawn(cls, number: int, chance: np.random.Generator) -> Cases:
        """Draws cases. Their scores correlate, as those of hard cases do."""
        shared = chance.standard_normal((number, 1))
        scores = 3.8 + BETWEEN * (0.7 * shared + 0.7 * chance.standard_normal((number, 2)))
        return cls(scores, odds(RATE, CORRELATION, (number,), chance))

    def worse(self, by: Worse) -> Cases:
        """The cases in a run that is worse."""
        return Cases(self.scores - [by.score, 0.0], self.rates * (1 - by.share))

    def sample(self, chance: np.random.Generator) -> list[Mapping[str, Score]]:
        """A sample of each case."""
        scores = np.clip(np.rint(self.scores + WITHIN * chance.standard_normal(self.scores.shape)), 0, 5)
        legible = chance.random(len(self.rates)) < self.rates
        return [
            {"quality": quality, "likeness": likeness, "legible": is_legible}
            for (quality, likeness), is_legible in zip(scores.tolist(), legible.tolist(), strict=True)
        ]

    def run(self, samples: int, chance: np.random.Generator) -> Side:
        """A run with some samples of each case."""
        drawn = [self.sample(chance) for _ in range(samples)]
        cells = [
            Cell(str(case), "m", sample, Verdict.PASS, scores)
            for case, row in enumerate(zip(*drawn, strict=True))
            for sample, scores in enumerate(row)
        ]
        return Side(name="run", cells=cells, metrics=METRICS, state="complete")


def failed(comparison: Comparison, confirmation: Confirmation | None = None) -> dict[str, bool]:
    """Whether each gate failed."""
    results = check_gates(comparison, GATES, confirmation)
    return {result.fail_on.text: result.state == "failed" for result in results}


def confirmed(comparison: Comparison, b: Cases, chance: np.random.Generator) -> tuple[dict[str, bool], bool]:
    """Whether each gate failed with new samples where it is in doubt, and whether ``regressed`` needed any."""
    drawn = [b.sample(chance) for _ in range(CONFIRM)]
    new = {case.key: [sample[int(case.test_id)] for sample in drawn] for case in sampled_cases(comparison)}
    verdicts: dict[CaseKey, Sequence[Verdict]] = {key: [Verdict.PASS] * CONFIRM for key in new}
    return failed(comparison, Confirmation(CONFIRM, verdicts, scores=new)), needs_all_cases(comparison, GATES[0])


def simulate(cases: int, samples: int, by: Worse, times: int, seed: int = 0) -> list[Row]:
    """The shares of comparisons in which each gate fails, without and with new samples, and the cost of these."""
    chance = np.random.default_rng([seed, cases, samples, round(100 * by.score), round(100 * by.share)])
    counts: Counter[str] = Counter()
    for _ in range(times):
        drawn = Cases.drawn(cases, chance)
        worse = drawn.worse(by)
        comparison = compare(drawn.run(samples, chance), worse.run(samples, chance))
        plain, (with_new, needed) = failed(comparison), confirmed(comparison, worse, chance)
        counts.update(name for name, is_failed in plain.items() if is_failed)
        counts.update(f"{name}, confirm" for name, is_failed in with_new.items() if is_failed)
        counts["needed"] += needed
    design = f"{cases} x {samples}, {by}"
    names = [name for gate in GATES for name in (gate.text, f"{gate.text}, confirm")]
    rows = [Row(design, name, counts[name] / times, times) for name in names]
    return [*rows, Row(design, "cost", 1 + counts["needed"] / times * CONFIRM / samples)]


def main() -> None:
    """Prints the tables."""
    times = repetitions(400)
    for by in (Worse(), Worse(score=0.3), Worse(share=0.15), Worse(score=0.3, share=0.15)):
        for size in SIZES:
            show(str(by), simulate(*size, by, times if by == Worse() else times // 2))


if __name__ == "__main__":
    main()
