"""Samples until the gates of a run are decided (``run --until-decided``): which gates samples can decide, which of them
are decided, and which cases need another sample. Pure.

A gate that its value decides is about these cases: their samples are independent of each other, and its outcome is
certain enough once e-values show on which side of its limit the mean of the cases is, or once the samples that are left
would hardly change it. With all samples, the value decides, as it does with ``--samples``. So the error rate is that of
``--samples``, plus at most ``E_ALPHA + MAX_CHANGE`` for a wrong pass, and as much for a wrong failure.

A gate that its bound decides is about cases like these, which more samples do not replace. It passes by an interval
over cases whose error rate is divided among all looks. It gets no further sample if not even all samples could narrow
the interval enough.

Each gate counts as many samples of each case as it was decided with: samples that another gate asked for, and that only
some of its cases have, would move its value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum, sqrt

from visioneval.analysis.left_out import DueMetrics
from visioneval.analysis.scores import RATE, Scores, interval_of
from visioneval.analysis.stats.intervals import LEVEL, weighted_interval
from visioneval.analysis.stats.sequential import MAX_CHANGE, chance_of_change, is_above
from visioneval.analysis.stats.variance import cells_of
from visioneval.analysis.summary.gates import GateAccumulator
from visioneval.records.model import Record, RunInfo
from visioneval.records.until import GateOutcome, SampledGate
from visioneval.rules import Gate, gate_passes, is_true, parse_gate
from visioneval.suite.filters import chain_of
from visioneval.suite.metrics import left_out
from visioneval.suite.model import Suite
from visioneval.suite.rules import GateRule
from visioneval.suite.runs import RunCoverage

SampledCases = Mapping[tuple[str, str], int]
"""The samples of cases, by their ID (of turns without the number) and model run."""
LAST_LOOK = 0.015
"""The part of a bound's error rate of 2.5 % that is for the look at all samples; the other looks share the rest."""
LUCK = 2.0
"""Standard errors of noise that may have kept a value from its limit: 39 of 40 are smaller."""
_RATES = ("pass_rate", "refusal_rate", "rate")


def why_not_sampled(entry: GateRule, info: RunInfo) -> str:
    """Why no sample decides a gate; empty if samples can."""
    gate = parse_gate(entry.rule)
    if not info.suite.gates:
        return "the suite has no gates"
    if gate.is_about_errors:
        return "it is about errors"
    if gate.fn == "duplicate_rate":
        return "near-duplicates are found after all cells"
    if gate.fn == "separation":
        return "a separation is not tested by samples"
    if gate.fn == "pass_rate" and not info.suite.has_rules:
        return "the suite has no rules"
    if gate.metric is not None and gate.metric not in info.metrics:
        return "no cell has its metric"
    low, high = _bounds(gate, info)
    if gate.quantile is None and (low is None or high is None):
        return "its metric has no range"
    if not gate.has_side and (gate.op == "!=" or gate.threshold not in (low, high)):
        return "no limit on one side"
    if gate.quantile is not None and entry.decide == "bound":
        return "the bound of a quantile is not tested by samples"
    return "" if scope_of(entry, info) else "no case is in its scope"


def scope_of(entry: GateRule, info: RunInfo) -> frozenset[tuple[str, str]]:
    """The cases whose samples a gate counts, by the ID of what generates their outputs, and by model run."""
    suite, gate = info.selected_suite, parse_gate(entry.rule)
    without, coverage = left_out(suite, info.metrics).cases_of(gate.metric, entry), RunCoverage(suite)
    return frozenset(
        (chain_of(case.output_of or case.id), str(model.label))
        for case in suite.cases
        if case.id not in without and (entry.weights is None or not entry.weights.keys().isdisjoint(case.tags))
        for model in suite.models
        if entry.covers(case.id, case.task_type, case.tags, str(model.label)) and coverage.has_cells(model, case)
    )


def balanced(entry: GateRule, info: RunInfo, case_samples: SampledCases) -> int:
    """The number of samples that every case of a gate has."""
    return min((case_samples.get(key, info.suite.samples) for key in scope_of(entry, info)), default=info.suite.samples)


def sampled_gates(info: RunInfo) -> Sequence[SampledGate | None]:
    """The samples that each gate of the suite counts; ``None`` for all: of other runs, and of a gate on errors."""
    until, entries = info.until_decided, info.suite.declared_gates
    if until is None:
        return [None] * len(entries)
    if [gate.rule for gate in until.gates] == [entry.rule for entry in entries]:
        gates = until.gates
    else:
        gates = tuple(
            SampledGate(rule=entry.rule, samples=balanced(entry, info, info.case_samples), outcome="not_sampled")
            for entry in entries
        )
    return [
        None if parse_gate(entry.rule).is_about_errors else gate for entry, gate in zip(entries, gates, strict=True)
    ]


def decide_gates(
    info: RunInfo, records: Iterable[Record], case_samples: SampledCases, max_samples: int
) -> tuple[SampledGate, ...]:
    """What the samples that exist decide, for each gate of the suite: by the first look that decides it.

    The looks of a gate are at the suite's number of samples, and at each further one that all of its cases have. So it
    depends on the records only, and not on when they were written.

    When a gate is decided:

    - its value decides: all samples would hardly change the outcome (1 %), or e-values show on which side of the limit
      the mean of these cases is (1.5 % on each side, over all looks). With all samples, the value decides, as with
      `--samples`
    - `decide: bound`: the bound over cases passes, at an error rate of 2.5 % over all looks together, of which 1.5
      points are for the last. Or the value fails, as above
    - on errors, `separation`, `!=`, a mean without a range, the bound of a quantile: it asks for no samples
    """
    due, first = DueMetrics(info), info.suite.samples
    looks: list[list[_Look]] = []
    for entry in info.suite.declared_gates:
        last = first if why_not_sampled(entry, info) else balanced(entry, info, case_samples)
        looks.append([_Look(entry, info, due, number, max_samples) for number in range(first, last + 1)])
    every = [look for of_gate in looks for look in of_gate]
    for record in records:
        for look in every:
            look.add(record)
    gates = []
    for entry, of_gate in zip(info.suite.declared_gates, looks, strict=True):
        if why_not_sampled(entry, info):
            samples = balanced(entry, info, case_samples)
            gates.append(SampledGate(rule=entry.rule, samples=samples, outcome="not_sampled"))
            continue
        look = next((look for look in of_gate if look.outcome != "open"), of_gate[-1])
        gates.append(SampledGate(rule=entry.rule, samples=look.samples, outcome=look.outcome))
    return tuple(gates)


def next_samples(info: RunInfo, gates: Sequence[SampledGate], case_samples: SampledCases) -> dict[tuple[str, str], int]:
    """The samples of the cases that have more than the suite's number, with one more of the cases of open gates."""
    counts = dict(case_samples)
    for entry, gate in zip(info.suite.declared_gates, gates, strict=True):
        for key in scope_of(entry, info) if gate.outcome == "open" else ():
            counts[key] = max(gate.samples + 1, counts.get(key, 0))
    return counts


@dataclass(frozen=True, slots=True)
class SideTest:
    """The test of a gate: on which side of a limit the mean of shares of a range is."""

    limit: float
    is_minimum: bool

    def is_shown(self, sums: Sequence[float], totals: Sequence[float], *, passes: bool) -> bool:
        """Whether e-values show that the mean is where the gate passes, or fails.

        ``sums`` are the weighted values of independent units, and ``totals`` the largest that they can be.
        """
        if passes == self.is_minimum:
            return is_above(sums, self.limit)
        return is_above([total - part for total, part in zip(totals, sums, strict=True)], 1 - self.limit)

    def is_settled(self, cases: Sequence[Sequence[float]], left: int, outcome: Callable[[float], bool]) -> bool:
        """Whether ``left`` more values would hardly change the outcome of the mean of the values of all cases."""
        if not 0 < self.limit < 1:
            return False
        values = [value for case in cases for value in case]
        observed = cells_of(cases, is_rate=all(value in (0, 1) for value in values))
        share = min(1.0, observed.within / observed.variance) if observed.variance else 1.0
        within = share * self.limit * (1 - self.limit)
        return chance_of_change(fsum(values), len(values), left, self.limit, within, outcome) <= MAX_CHANGE


def _test_of(entry: GateRule, info: RunInfo) -> SideTest:
    gate = parse_gate(entry.rule)
    if gate.quantile is not None:  # whether a value is on the right side of the limit
        return SideTest(1 - gate.quantile if gate.is_minimum else gate.quantile, is_minimum=True)
    low, high = _bounds(gate, info)
    limit = (gate.threshold - (low or 0.0)) / ((high or 1.0) - (low or 0.0))
    return SideTest(limit, gate.is_minimum or (not gate.has_side and limit >= 1))


@dataclass(frozen=True, slots=True)
class SimulatedGate:
    """A gate over simulated yes-or-no cells with a true rate."""

    test: SideTest
    most: int

    @property
    def truth(self) -> float:
        """Halfway between the limit and the best value."""
        return min(1.0, max(0.0, (self.test.limit + self.test.is_minimum) / 2))

    def is_decided(self, cells: Sequence[Sequence[float]], samples: int) -> bool:
        """Whether the first samples of the cells of each case decide it."""
        seen = [value for case in cells for value in case[:samples]]
        mean, share = fsum(seen) / len(seen), samples / self.most
        op = ">=" if self.test.is_minimum else "<="
        passes, lowest = is_true(mean, op, self.test.limit), share * mean
        if is_true(lowest, op, self.test.limit) == is_true(lowest + 1 - share, op, self.test.limit):
            return True
        if self.test.is_shown(seen, [1.0] * len(seen), passes=passes):
            return True
        shares, left = [case[:samples] for case in cells], len(cells) * (self.most - samples)
        return self.test.is_settled(shares, left, lambda mean: is_true(mean, op, self.test.limit))


def simulated_gate(entry: GateRule, info: RunInfo, most: int) -> SimulatedGate:
    """What a simulation takes for a gate that samples decide."""
    return SimulatedGate(_test_of(entry, info), most)


class _Look(GateAccumulator):
    """One look at a gate: at the first ``samples`` of each case, of up to ``most``."""

    def __init__(self, entry: GateRule, info: RunInfo, due: DueMetrics, samples: int, most: int) -> None:
        super().__init__(entry, info, due, SampledGate(rule=entry.rule, samples=samples, outcome="open"))
        self.samples, self._most, self._first = samples, most, info.suite.samples
        self._sources = {case.id: chain_of(case.output_of or case.id) for case in info.suite.cases}
        self._units: defaultdict[tuple[str, str, int], list[tuple[str, float]]] = defaultdict(list)
        low, high = _bounds(self._gate, info)
        self._low, self._span = low or 0.0, (high or 1.0) - (low or 0.0)

    def _count(self, cell: Record, group: str, value: float) -> None:
        super()._count(cell, group, value)
        key = self._sources.get(cell.test_id, cell.test_id), cell.model_label, cell.sample_index
        self._units[key].append((group, self._share(value)))

    def _share(self, value: float) -> float:
        """A value as a share of the range; for a quantile, whether it is on the right side of the limit."""
        if self._gate.quantile is not None:
            return float(is_true(value, self._gate.op, self._gate.threshold))
        return min(1.0, max(0.0, (value - self._low) / self._span))

    @cached_property
    def outcome(self) -> GateOutcome:
        """``open`` if another sample may decide."""
        value, _ = self.value()
        if value is None or self._left_out()[1].is_too_much(self._granted):
            return "unmeasured"
        passes, is_last = gate_passes(self._gate, value), self.samples >= self._most
        if passes and self._entry.decide == "bound":
            if self._bound_passes():
                return "decided"
            return "undecided" if is_last else "open" if self._could_pass() else "between_cases"
        if self._is_shown(passes=passes) or (not is_last and (self._is_certain(value) or self._is_settled())):
            return "decided"
        return "undecided" if is_last else "open"

    def _is_shown(self, *, passes: bool) -> bool:
        """Whether the mean of the cases is on the side of the limit where the value is.

        Cells that share an output are one unit: their weighted sum.
        """
        sizes = {name: group.n for name, group in self._groups.items()}
        weights = {name: len(self._units) * share / sizes[name] for name, share in self._shares.items()}
        units = self._units.values()
        sums = [fsum(weights[name] * share for name, share in unit) for unit in units]
        totals = [fsum(weights[name] for name, _ in unit) for unit in units]
        return _test_of(self._entry, self._info).is_shown(sums, totals, passes=passes)

    def _is_certain(self, value: float) -> bool:
        """Whether the outcome is the same whatever the samples that are left are."""
        if self._gate.quantile is not None:
            return False
        seen = self.samples / self._most
        lowest = seen * value + (1 - seen) * self._low
        return gate_passes(self._gate, lowest) == gate_passes(self._gate, lowest + (1 - seen) * self._span)

    def _is_settled(self) -> bool:
        """Whether the samples that are left would hardly change the outcome."""
        if self._gate.quantile is not None or self._entry.weights is not None:
            return False
        weight = len(self._units) / sum(map(len, self._units.values()))
        cases: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        for (source, label, _), unit in self._units.items():
            cases[source, label].append(weight * fsum(share for _, share in unit))
        left = round(len(self._units) * (self._most / self.samples - 1))

        def outcome(share: float) -> bool:
            return gate_passes(self._gate, self._low + share * self._span)

        return _test_of(self._entry, self._info).is_settled(list(cases.values()), left, outcome)

    def _bound_passes(self) -> bool:
        """Whether the bound passes at the level of this look."""
        error = LAST_LOOK
        if self.samples < self._most:
            error = (1 - LEVEL - LAST_LOOK) / (self._most - self._first)
        return self._passes_within(error, [group.by_case().values() for group in self._groups.values()])

    def _could_pass(self) -> bool:
        """Whether the bound could pass with all samples, if the noise between samples shrank, and had been bad luck.

        What one sample of each case shows may all be such noise.
        """
        metric = self._info.metrics.get(self._gate.metric or "", RATE)
        is_rate, times = metric.type == "bool", self._most / self.samples
        luck = LUCK if self._gate.is_minimum else -LUCK
        shrunk = []
        for group in self._groups.values():
            cases = _with_samples(group, times, luck, is_rate=is_rate)
            shrunk.append([[min(max(value, self._low), self._low + self._span) for value in case] for case in cases])
        return self._passes_within(LAST_LOOK, shrunk)

    def _passes_within(self, error: float, groups: Iterable[Iterable[Sequence[float]]]) -> bool:
        metric = self._info.metrics.get(self._gate.metric or "", RATE)
        parts = []
        for share, cases in zip(self._shares.values(), groups, strict=True):
            sums = [(fsum(values), len(values)) for values in cases]
            mean = fsum(total for total, _ in sums) / sum(number for _, number in sums)
            parts.append((share, mean, interval_of(sums, metric, 1 - error)))
        interval = parts[0][2] if self._entry.weights is None else weighted_interval(parts)
        if interval is None:
            return False
        return gate_passes(self._gate, interval.low if self._gate.is_minimum else interval.high)


def _with_samples(scores: Scores, times: float, luck: float, *, is_rate: bool) -> Iterator[Sequence[float]]:
    """The values of each case as they could be with that many times more samples, if noise moved their mean by some
    standard errors of ``luck``.
    """
    cases = list(scores.by_case().values())
    within, number = cells_of(cases, is_rate=is_rate).within, scores.n / len(cases)
    means = [fsum(values) / len(values) for values in cases]
    variance = fsum((mean - scores.mean) ** 2 for mean in means) / max(1, len(cases) - 1)
    noise = min(variance, within / number)
    scale = sqrt((variance - noise + noise / times) / variance) if variance else 1.0
    moved = scores.mean + luck * sqrt(within / scores.n)
    for values, mean in zip(cases, means, strict=True):
        yield [moved + scale * (mean - scores.mean)] * max(1, round(len(values) * times))


def _bounds(gate: Gate, info: RunInfo) -> tuple[float | None, float | None]:
    """The lowest and the highest value of a cell in a gate."""
    metric = info.metrics.get(gate.metric or "")
    if gate.fn in _RATES or gate.quantile is not None or (metric is not None and metric.type == "bool"):
        return 0.0, 1.0
    return (None, None) if metric is None or metric.range is None else metric.range


def sampled_suite_problem(suite: Suite) -> str:
    """Why no model run of a suite can generate further samples of its cases; empty if all can."""
    for entry in suite.models:
        if entry.reads_outputs:
            return f"{str(entry.label)!r} reads existing outputs and generates none: leave it out with --model"
    for grader in suite.graders:
        recorded = [key for key, judge in suite.judges.items() if judge.is_recorded and key in grader.judge_names]
        if recorded and any(grader.metrics(case) for case in suite.cases if grader.is_for(case)):
            return f"the judge {recorded[0]!r} looks up recorded answers: it has none about further samples"
    return ""
