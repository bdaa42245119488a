"""How often ``compare`` with its default gates alarms between equal runs, and how often it finds a drop.

    python -m tests.calibration.regression [REPETITIONS]

An alarm is exit 1 (a gate failed) or 3 (it cannot tell). Each simulated comparison is judged by ``compare``, its gates
and its exit code; with ``--confirm``, new samples are taken as the engine takes them, with the rates of run B.
``before`` is a paired t test over cases with one pseudo-case in the unit of the changes, two-sided at 5 %, which decided
about the pass rate before there was ``regressed``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from tests.calibration.designs import Floats, odds, repetitions
from visioneval import ExitCode, Verdict
from visioneval.analysis.compare.compare import Comparison, compare
from visioneval.analysis.compare.confirm import Confirmation, SampledCase, sampled_cases
from visioneval.analysis.compare.gates import GateResult, check_gates, exit_code, parse_fail_on
from visioneval.analysis.compare.pairing import CaseKey
from visioneval.analysis.compare.regressed import is_in_doubt, samples_in_doubt
from visioneval.analysis.sides import Cell, Side, pooled_side
from visioneval.analysis.stats.basic import t_two_sided_p

GATES = parse_fail_on([])
RUNS, CONFIRM, NIGHTS = (1, 5), 3, 20
BROKEN_SHARE, OTHER_RATE = 0.1, 0.95


@dataclass(frozen=True)
class Population:
    """The rates of cases: beta-distributed, or with ``correlation`` 1 some that always fail and others that are good."""

    rate: float
    correlation: float

    def draw(self, cases: int, chance: np.random.Generator) -> Floats:
        """The rate of each case."""
        if self.correlation == 1:
            return np.where(chance.random(cases) < BROKEN_SHARE, 0.0, OTHER_RATE)
        return odds(self.rate, self.correlation, (cases,), chance)

    def __str__(self) -> str:
        if self.correlation == 1:
            return f"{BROKEN_SHARE:.0%} fail, else {OTHER_RATE}"
        return f"rate {self.rate}, corr. {self.correlation}"


@dataclass(frozen=True)
class RunEffect:
    """Standard deviations, in logits, of what all cases of a run share, and of what each case has in each run."""

    shared: float = 0.0
    of_case: float = 0.0

    def apply(self, rates: Floats, chance: np.random.Generator) -> Floats:
        """The rates of the cases in one run."""
        if not self.shared and not self.of_case:
            return rates
        effect = self.shared * chance.standard_normal() + self.of_case * chance.standard_normal(len(rates))
        with np.errstate(divide="ignore"):
            logits = np.log(rates) - np.log1p(-rates) + effect
        return np.asarray(1 / (1 + np.exp(-logits)), dtype=float)

    def __str__(self) -> str:
        parts = [f"{self.shared} shared"] * bool(self.shared) + [f"{self.of_case} per case"] * bool(self.of_case)
        return "run effect " + " and ".join(parts) if parts else "no run effect"


@dataclass(frozen=True)
class Drop:
    """By how much B is worse: every case in proportion, or whole cases that always fail."""

    points: int = 0
    is_whole: bool = False

    def apply(self, rates: Floats, mean: float, chance: np.random.Generator) -> Floats:
        """The rates of the cases after the drop."""
        share = self.points / 100 / mean
        if self.is_whole:
            return np.where(chance.random(len(rates)) < share, 0.0, rates)
        return rates * (1 - share)

    def __str__(self) -> str:
        return f"{self.points} points{' by whole cases' if self.is_whole else ''}"


@dataclass(frozen=True)
class Design:
    """A suite and what its results vary with."""

    cases: int
    samples: int
    population: Population
    effect: RunEffect = RunEffect()

    def __str__(self) -> str:
        return f"{self.cases} x {self.samples}, {self.population}, {self.effect}"


SHOWN = (Population(0.8, 0.5), Population(0.92, 0.4), Population(0.855, 1))
"""Other shapes than those with which the levels of the gate were chosen."""
EFFECTS = (RunEffect(), RunEffect(shared=0.3), RunEffect(of_case=0.5))
SIZES = ((4, 1), (8, 1), (30, 1), (30, 3), (100, 1), (200, 1))
DROPS = (Drop(10), Drop(10, is_whole=True), Drop(20), Drop(20, is_whole=True))


@dataclass(frozen=True)
class Run:
    """A simulated run: the rate of each case in it, its verdicts, and the side of a comparison that they are."""

    rates: Floats
    passed: Floats
    side: Side


def draw_run(design: Design, rates: Floats, chance: np.random.Generator) -> Run:
    """Draws the samples of each case."""
    in_run = design.effect.apply(rates, chance)
    passed = chance.random((design.cases, design.samples)) < in_run[:, None]
    cells = [
        Cell(str(case), "m", sample, Verdict.PASS if is_passed else Verdict.FAIL)
        for case, row in enumerate(passed.tolist())
        for sample, is_passed in enumerate(row)
    ]
    return Run(in_run, passed.mean(axis=1), Side(name="run", cells=cells, state="complete"))


@dataclass(frozen=True)
class Result:
    """The exit code of a comparison, without and with new samples, and how many of these were taken."""

    plain: ExitCode
    confirmed: ExitCode
    new: int


def judge(baseline: Side, b: Run, chance: np.random.Generator) -> Result:
    """Compares a run with a baseline, and confirms it."""
    comparison = compare(baseline, b.side)
    plain = exit_code(comparison, check_gates(comparison, GATES))
    confirmed, new = _confirm(comparison, b, chance)
    return Result(plain, confirmed, new)


def _confirm(comparison: Comparison, b: Run, chance: np.random.Generator) -> tuple[ExitCode, int]:
    """The steps of the engine: the cases in doubt, then all cases unless a gate has failed."""
    verdicts: dict[CaseKey, list[Verdict]] = {}
    is_first_failed = bool(_failed(check_gates(comparison, GATES, Confirmation(CONFIRM, verdicts))))
    _sample(() if is_first_failed else samples_in_doubt(comparison), verdicts, b, chance)
    failed = _failed(check_gates(comparison, GATES, Confirmation(CONFIRM, verdicts)))
    if is_in_doubt(comparison) and not failed:
        _sample(sampled_cases(comparison), verdicts, b, chance)
    results = check_gates(comparison, GATES, Confirmation(CONFIRM, verdicts, failed=failed))
    return exit_code(comparison, results), sum(map(len, verdicts.values()))


def _failed(results: Sequence[GateResult]) -> tuple[str, ...]:
    return tuple(result.fail_on.text for result in results if result.state == "failed")


def _sample(
    cases: Sequence[SampledCase], verdicts: dict[CaseKey, list[Verdict]], b: Run, chance: np.random.Generator
) -> None:
    """Adds new samples of these cases until each is decided."""
    for case in cases:
        new = verdicts.setdefault(case.key, [])
        while needed := case.with_new(CONFIRM, new).needed:
            is_passed = chance.random(needed) < b.rates[int(case.test_id)]
            new += [Verdict.PASS if passed else Verdict.FAIL for passed in is_passed]


def is_worse_before(a: Run, b: Run) -> bool:
    """Whether the former test says that B is worse."""
    changes = b.passed - a.passed
    number, square, differing = len(changes), float(np.square(changes).sum()), int(np.count_nonzero(changes))
    pseudo = square / differing if differing else 1.0
    mean = float(changes.sum()) / (number + 1)
    error = sqrt(max(0.0, (square + pseudo) / (number + 1) - mean * mean) / (number + 1))
    return mean < 0 and t_two_sided_p(mean / error, number - 1) < 0.05


class Tally:
    """Counts the results of simulated comparisons."""

    def __init__(self) -> None:
        """No results."""
        self.times = self.before = self.new = 0
        self.plain: Counter[ExitCode] = Counter()
        self.confirmed: Counter[ExitCode] = Counter()

    def add(self, result: Result, *, before: bool) -> None:
        """Counts a result."""
        self.times += 1
        self.before += before
        self.new += result.new
        self.plain[result.plain] += 1
        self.confirmed[result.confirmed] += 1

    def cost(self, design: Design) -> float:
        """The samples of B and the new ones, as a multiple of those of B."""
        return 1 + self.new / (self.times * design.cases * design.samples)

    def lines(self, name: str, design: Design) -> Iterator[str]:
        """The shares of exits 1 and 3, without and with new samples."""
        for confirm, exits in ((0, self.plain), (CONFIRM, self.confirmed)):
            failed, open_ = (exits[code] / self.times for code in (ExitCode.GATE_FAILED, ExitCode.INCOMPLETE))
            cost = f" cost {self.cost(design):.2f}" if confirm else f" before {self.before / self.times:.3f}"
            error = sqrt(max(failed, 0.01) * (1 - failed) / self.times)
            yield f"{name}, confirm {confirm}: exit 1 {failed:.3f} ({error:.3f}) exit 3 {open_:.3f}{cost}"


def simulate(design: Design, drops: Sequence[Drop], times: int, seed: int = 0) -> dict[tuple[int, Drop], Tally]:
    """The results by number of the baseline's runs and by drop."""
    chance = np.random.default_rng([seed, design.cases, design.samples, round(1000 * design.population.rate)])
    tallies = {(runs, drop): Tally() for runs in RUNS for drop in drops}
    for _ in range(times):
        rates = design.population.draw(design.cases, chance)
        before = [draw_run(design, rates, chance) for _ in range(max(RUNS))]
        baselines = {runs: pooled_side([run.side for run in before[:runs]]) for runs in RUNS}
        for drop in drops:
            b = draw_run(design, drop.apply(rates, design.population.rate, chance), chance)
            worse_before = is_worse_before(before[0], b)
            for runs, baseline in baselines.items():
                tallies[runs, drop].add(judge(baseline, b, chance), before=worse_before)
    return tallies


def nights(design: Design, times: int, seed: int = 0) -> dict[str, float]:
    """The share of series of equal runs against a fixed baseline that have at least one alarm, and one exit 1."""
    chance = np.random.default_rng([seed, design.cases, design.samples])
    counts: Counter[str] = Counter()
    for _ in range(times):
        rates = design.population.draw(design.cases, chance)
        before = [draw_run(design, rates, chance) for _ in range(max(RUNS))]
        series = [draw_run(design, rates, chance) for _ in range(NIGHTS)]
        counts["before"] += any(is_worse_before(before[0], b) for b in series)
        for runs in RUNS:
            baseline = pooled_side([run.side for run in before[:runs]])
            results = [judge(baseline, b, chance) for b in series]
            for confirm, codes in ((0, [r.plain for r in results]), (CONFIRM, [r.confirmed for r in results])):
                name = f"{runs} run{'s' * (runs > 1)}, confirm {confirm}"
                counts[f"{name}, alarm"] += any(code != ExitCode.PASSED for code in codes)
                counts[f"{name}, exit 1"] += ExitCode.GATE_FAILED in codes
    return {name: count / times for name, count in counts.items()}


def _times(design: Design, times: int) -> int:
    """Fewer repetitions of large suites, which take longer."""
    cells = design.cases * design.samples
    return max(2, times if cells <= 30 else times * 3 // 5 if cells <= 100 else times * 2 // 5)


def _show(designs: Sequence[Design], drops: Sequence[Drop], times: int) -> None:
    for design in designs:
        print(f"{design}, {_times(design, times):,} comparisons", flush=True)
        for (runs, drop), tally in simulate(design, drops, _times(design, times)).items():
            for line in tally.lines(f"  {drop}, {runs} run{'s' * (runs > 1)}", design):
                print(line, flush=True)


def main() -> None:
    """Prints the tables."""
    times = repetitions(500)
    print("Equal runs")
    equal = [Design(*size, shape, effect) for effect in EFFECTS for shape in SHOWN for size in SIZES]
    _show(equal, (Drop(),), times)
    print("\nWorse runs")
    worse = [Design(*size, SHOWN[0], effect) for effect in EFFECTS[:2] for size in SIZES]
    _show(worse, DROPS, times * 2 // 5)
    print(f"\n{NIGHTS} nights of equal quality: series with an alarm")
    for effect in EFFECTS[:2]:
        design = Design(30, 1, SHOWN[0], effect)
        for name, share in nights(design, max(2, times // 4)).items():
            print(f"{design}: {name} {share:.3f}", flush=True)


if __name__ == "__main__":
    main()
