"""How often metrics fail equal runs, and how often their drops are found, without and with new samples.

    python -m tests.calibration.metrics [REPETITIONS]

Every cell passes, so that the gate ``regressed`` decides by its family of metrics alone. What is found is that of three
metrics: two scores from 0 to 5 and a yes or no, where ``quality:0.1`` fails a fall of the first score by more than that.
How often equal runs fail is also shown with metrics at their ceiling, and with runs that share an effect. Each simulated
comparison is judged by ``compare`` and its gates; new samples are taken as the engine takes them.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tests.calibration.designs import Floats, Row, odds, repetitions, show
from visioneval import Metric, Verdict
from visioneval.analysis.compare.compare import Comparison, compare
from visioneval.analysis.compare.confirm import Confirmation, sampled_cases
from visioneval.analysis.compare.gates import check_gates, needs_all_cases, parse_fail_on
from visioneval.analysis.compare.pairing import CaseKey
from visioneval.analysis.sides import Cell, Side
from visioneval.types import Score

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
        return run_of([self.sample(chance) for _ in range(samples)], METRICS)


def run_of(drawn: Sequence[Sequence[Mapping[str, Score]]], metrics: Mapping[str, Metric]) -> Side:
    """A run with these samples, each of all cases."""
    cells = [
        Cell(str(case), "m", sample, Verdict.PASS, scores)
        for case, row in enumerate(zip(*drawn, strict=True))
        for sample, scores in enumerate(row)
    ]
    return Side(name="run", cells=cells, metrics=metrics, state="complete")


@dataclass(frozen=True)
class Yes:
    """Metrics that are yes or no. The runs share an effect with this standard deviation, in logits."""

    rate: float
    correlation: float
    shared: float = 0.0
    metric: ClassVar[Metric] = Metric(type="bool", better="higher")

    def cases(self, shape: tuple[int, int], chance: np.random.Generator) -> Floats:
        """The rate of each metric (columns) in each case (rows)."""
        return odds(self.rate, self.correlation, shape, chance)

    def sample(self, cases: Floats, effect: float, chance: np.random.Generator) -> list[list[bool]]:
        """A sample of each case in a run with an effect."""
        share = cases / (cases + (1 - cases) * np.exp(-effect))
        return (chance.random(cases.shape) < share).tolist()  # type: ignore[no-any-return]


@dataclass(frozen=True)
class AtCeiling:
    """Scores of 5 minus a skewed loss: log-normal, whose median is .14."""

    shared: ClassVar[float] = 0.0
    metric: ClassVar[Metric] = SCORE

    def cases(self, shape: tuple[int, int], chance: np.random.Generator) -> Floats:
        """The logarithm of the median loss of each metric (columns) in each case (rows)."""
        return chance.normal(-2, 0.5, shape)

    def sample(self, cases: Floats, effect: float, chance: np.random.Generator) -> list[list[float]]:
        """A sample of each case in a run with an effect."""
        loss = np.exp(cases + 1.3 * chance.standard_normal(cases.shape)) - effect
        return np.clip(5 - loss, 0, 5).tolist()  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Middle:
    """Scores around 3.8. The runs share an effect with this standard deviation, in points."""

    shared: float = 0.0
    metric: ClassVar[Metric] = SCORE

    def cases(self, shape: tuple[int, int], chance: np.random.Generator) -> Floats:
        """The mean of each metric (columns) in each case (rows)."""
        return chance.normal(3.8, BETWEEN, shape)

    def sample(self, cases: Floats, effect: float, chance: np.random.Generator) -> list[list[float]]:
        """A sample of each case in a run with an effect."""
        return np.clip(np.rint(cases + effect + WITHIN * chance.standard_normal(cases.shape)), 0, 5).tolist()  # type: ignore[no-any-return]


Population = Yes | AtCeiling | Middle
POPULATIONS: tuple[Population, ...] = (Yes(0.95, 0.05), Yes(0.98, 0.02), AtCeiling(), Yes(0.85, 0.5, 0.3), Middle(0.3))


def size(population: Population, design: tuple[int, int], metrics: int, new: int, times: int, seed: int = 0) -> Row:
    """The share of equal runs that fail ``regressed`` with up to some ``new`` samples: both steps together."""
    (cases, samples), names = design, [f"m{number}" for number in range(metrics)]
    chance, gate, alarms = np.random.default_rng([seed, cases, samples, metrics, new]), GATES[:1], 0
    for _ in range(times):
        drawn = population.cases((cases, metrics), chance)
        effects = population.shared * chance.standard_normal(2)

        def sampled(side: int, number: int, drawn: Floats = drawn, effects: Floats = effects) -> list[Any]:
            of_cases = [population.sample(drawn, float(effects[side]), chance) for _ in range(number)]
            return [[dict(zip(names, row, strict=True)) for row in sample] for sample in of_cases]

        of_names = dict.fromkeys(names, population.metric)
        comparison = compare(run_of(sampled(0, samples), of_names), run_of(sampled(1, samples), of_names))
        added = sampled(1, new) if needs_all_cases(comparison, gate[0]) else []
        (result,) = check_gates(comparison, gate, with_new(comparison, added, new))
        alarms += result.state == "failed"
    title = f"{population}, {cases} x {samples}, {metrics} metrics"
    return Row(title, f"confirm {new}", alarms / times, times)


def failed(comparison: Comparison, confirmation: Confirmation | None = None) -> dict[str, bool]:
    """Whether each gate failed."""
    results = check_gates(comparison, GATES, confirmation)
    return {result.fail_on.text: result.state == "failed" for result in results}


def confirmed(comparison: Comparison, b: Cases, chance: np.random.Generator) -> tuple[dict[str, bool], bool]:
    """Whether each gate failed with new samples where one is in doubt, and whether ``regressed`` needed any."""
    needed = [needs_all_cases(comparison, gate) for gate in GATES]
    drawn = [b.sample(chance) for _ in range(CONFIRM if any(needed) else 0)]
    return failed(comparison, with_new(comparison, drawn, CONFIRM)), needed[0]


def with_new(comparison: Comparison, drawn: Sequence[Sequence[Mapping[str, Score]]], planned: int) -> Confirmation:
    """A confirmation with these samples of all cases, if there are any."""
    new = {case.key: [sample[int(case.test_id)] for sample in drawn] for case in sampled_cases(comparison)}
    verdicts: dict[CaseKey, Sequence[Verdict]] = {key: [Verdict.PASS] * len(drawn) for key in new}
    return Confirmation(planned, verdicts, scores=new)


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
    for population in POPULATIONS:
        designs = itertools.product(SIZES, (1, 5), (3, 10))
        show(str(population), (size(population, *design, times) for design in designs))
    for by in (Worse(), Worse(score=0.3), Worse(share=0.15), Worse(score=0.3, share=0.15)):
        for size in SIZES:
            show(str(by), simulate(*size, by, times if by == Worse() else times // 2))


if __name__ == "__main__":
    main()
