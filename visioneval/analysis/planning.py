"""What is known of a run before it is paid for: what earlier ones cost, how many cases and samples show a difference,
and how often a gate over a rate fails at true rates."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import floor, isfinite
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from visioneval.analysis.compare.differences import ALPHA, PASS_RATE, scores_difference, widest_difference
from visioneval.analysis.compare.pairing import pair_cells
from visioneval.analysis.scores import number_of
from visioneval.analysis.sides import Cell, Side
from visioneval.analysis.stats.variance import (
    VarianceComponents,
    case_of_values,
    components,
    counts_at_rate,
    detectable_mean,
    detectable_rate,
    detectable_within,
    failing_share,
)
from visioneval.errors import RunFormatError, UsageError, did_you_mean
from visioneval.records.model import RunInfo, read_info
from visioneval.records.reader import read_lines
from visioneval.records.stores.lookup import list_runs, refresh_runs
from visioneval.rules import NOISE, Gate, gate_passes, parse_gate
from visioneval.suite.filters import chain_of
from visioneval.suite.metrics import Meaning, describe_meaning, is_metric_of, match_keys, same_meaning
from visioneval.suite.prompts import without_prompt
from visioneval.types import Metric, Verdict

MAX_RUNS = 20
"""How many of the newest runs are read."""
MAX_RECORDS = 5000
"""How many records of each run are read."""


@dataclass(frozen=True, slots=True)
class RecordedJudgeCost:
    """The cost of one judge of a panel in a record."""

    judge: str
    cost_usd: float | None = None
    cached: bool = False


@dataclass(frozen=True, slots=True)
class RecordedGraderCost:
    """The cost of one grader in a record, and of each judge of its panel."""

    key: str
    cost_usd: float | None = None
    cached: bool = False
    judges: tuple[RecordedJudgeCost, ...] = ()

    def by_judge(self, names: tuple[str, ...]) -> tuple[RecordedJudgeCost, ...]:
        """The cost of each judge. A single one has the whole cost; without an answer of a panel there is none."""
        if len(names) != 1:
            return self.judges
        return (RecordedJudgeCost(names[0], self.cost_usd, self.cached),)


@dataclass(frozen=True, slots=True)
class RecordedCost:
    """The cost fields of a record."""

    provider: str
    model_label: str
    cost_usd: float | None = None
    attempts: int = 0
    cached: bool = False
    graders: tuple[RecordedGraderCost, ...] = ()


class Mean(NamedTuple):
    """The mean of ``times`` payments in USD."""

    usd: float
    times: int


@dataclass(frozen=True, slots=True)
class PastCosts:
    """Mean costs in earlier runs, without cached and unpriced results.

    ``generations`` maps provider and model run label, without its prompt, to the cost per image; ``judgements`` maps
    grader key and ``provider:model`` of the judge to the cost per cell.
    """

    generations: Mapping[tuple[str, str], Mean] = field(default_factory=dict)
    judgements: Mapping[tuple[str, str], Mean] = field(default_factory=dict)


def read_past_costs(root: Path) -> PastCosts:
    """Computes the means over the newest runs of a folder. Skips runs that cannot be read."""

    def readable() -> Iterator[tuple[RunInfo, list[RecordedCost]]]:
        folders = [folder for folder, _ in list_runs(root)[-MAX_RUNS:]]
        unreadable = refresh_runs(folders)
        for folder in (folder for folder in folders if folder not in unreadable):
            try:
                yield read_info(folder), list(islice(read_lines(folder / "results.jsonl", RecordedCost), MAX_RECORDS))
            except RunFormatError:
                continue

    return past_costs(readable())


def past_costs(runs: Iterable[tuple[RunInfo, Iterable[RecordedCost]]]) -> PastCosts:
    """Computes the means over the given runs."""
    generations: dict[tuple[str, str], list[float]] = {}
    judgements: dict[tuple[str, str], list[float]] = {}
    for info, records in runs:
        suite = info.suite
        judge_names = {entry.key: entry.judge_names for entry in suite.graders}
        for record in records:
            if record.attempts and not record.cached and record.cost_usd is not None:
                label = without_prompt(record.model_label)
                generations.setdefault((record.provider, label), []).append(record.cost_usd)
            for grader in record.graders:
                for part in grader.by_judge(judge_names.get(grader.key, ())):
                    if part.judge in suite.judges and not part.cached and part.cost_usd is not None:
                        title = suite.judges[part.judge].title
                        judgements.setdefault((grader.key, title), []).append(part.cost_usd)
    means = ({key: Mean(fmean(paid), len(paid)) for key, paid in costs.items()} for costs in (generations, judgements))
    return PastCosts(*means)


SAMPLES = (1, 2, 3, 5, 8)
"""The numbers of samples that are planned with."""
MAX_CASES = 100_000
"""The most cases that are looked for."""
DEFAULT_PASS_RATE = 0.8
DEFAULT_CORRELATION = 0.5
_PASSES = Metric(type="bool")
_VALUES: Mapping[Verdict, float] = {Verdict.PASS: 1.0, Verdict.FAIL: 0.0}


@dataclass(frozen=True, slots=True)
class Detect:
    """The difference that a comparison is to show: of a ``metric``, or of the pass rate (``None``), in 0..1.

    ``level`` is the significance level that decides about it.
    """

    metric: str | None
    kind: Metric
    difference: float
    level: float = ALPHA
    family: int = 1
    """The number of metrics that share the level of 5 %."""


@dataclass(frozen=True, slots=True)
class Noise:
    """How much equal runs differ.

    ``within`` is the variance of one cell around the mean of its case and model run, ``change`` that of the cases'
    differences beyond it, which more samples do not reduce. ``rate`` is the mean. ``notes`` name the basis.
    ``is_rate_known`` and ``is_correlation_known``: the rate, and how much the samples of a case have in common, were
    measured or stated, not assumed.
    """

    rate: float
    within: float
    change: float = 0.0
    notes: tuple[str, ...] = ()
    is_rate_known: bool = True
    is_correlation_known: bool = True

    def detectable(self, detect: Detect, cases: int, cells: float) -> float | None:
        """The smallest difference that this many cases detect, each with ``cells`` cells; ``None`` if there is none.

        The pass rate is tested within cases, a metric by the differences of the cases.
        """
        if detect.metric is None:
            samples = (cells, cells)
            return detectable_within(cases, self.rate, self.within, samples, change=self.change, alpha=detect.level)
        variance = self.change + 2 * self.within / cells
        if detect.kind.type == "bool":
            return detectable_rate(cases, self.rate, variance, cells, alpha=detect.level)
        return detectable_mean(cases, variance, alpha=detect.level)

    def cases_for(self, detect: Detect, cells: float) -> int | None:
        """The fewest cases that detect the difference, or ``None`` if ``MAX_CASES`` do not."""

        def suffices(cases: int) -> bool:
            size = self.detectable(detect, cases, cells)
            return size is not None and size <= detect.difference

        numbers = range(2, MAX_CASES + 1)
        at = bisect_left(numbers, True, key=suffices)
        return numbers[at] if at < len(numbers) else None


def parse_detect(text: str | float, metrics: Mapping[str, Metric], families: Sequence[str]) -> Detect:
    """Reads points of the pass rate (``5``) or ``METRIC:VALUE``. ``families`` are the metrics that Holm adjusts.

    Raises ``UsageError``.
    """
    name, _, value = str(text).rpartition(":")
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not isfinite(number):
        raise UsageError(f"--detect {text!r}: write points of the pass rate, such as 5, or METRIC:VALUE")
    if not name:
        if not 0 < number <= 100:
            raise UsageError(f"--detect {text}: the points of pass rate must be above 0 and at most 100")
        return Detect(None, _PASSES, number / 100)
    if name not in metrics:
        raise UsageError(f"--detect {text}: the suite has no metric {name!r}{did_you_mean(name, metrics)}")
    metric, tests = metrics[name], max(1, len(families))
    if metric.type == "one_of":
        raise UsageError(f"--detect {text}: {name} is one word of a list, which has no mean: plan with the pass rate")
    widest = widest_difference(metric)
    if number <= 0 or (widest is not None and number > widest):
        most = "" if widest is None else f" and at most {widest:g}"
        raise UsageError(f"--detect {text}: a difference of {name} must be above 0{most}")
    return Detect(name, metric, number, ALPHA / tests, tests)


def stated_noise(detect: Detect, pass_rate: float | None, correlation: float | None) -> Noise:
    """The noise at a stated rate, where two samples of a case have a stated correlation. Raises ``UsageError``."""
    if detect.kind.type != "bool":
        raise UsageError(f"--detect {detect.metric}: the variance of a number is unknown: add --like RUN")
    rate = DEFAULT_PASS_RATE if pass_rate is None else pass_rate
    if not 0 <= rate <= 1:
        raise UsageError(f"--pass-rate {rate:g}: must be from 0 to 1")
    rho = _correlation(correlation)
    what = "a pass rate" if detect.metric is None else "a share of yes"
    basis = f"{what} of {rate:.3g} and a correlation of {rho:g} between samples of a case"
    note = f"Assumes {basis}; --like RUN measures them."
    return Noise(
        rate,
        rate * (1 - rate) * (1 - rho),
        notes=(note,),
        is_rate_known=pass_rate is not None,
        is_correlation_known=correlation is not None,
    )


def noise_of(detect: Detect, sides: Sequence[Side], suite: str, correlation: float | None) -> Noise:
    """The noise that one or two earlier runs show. Raises ``UsageError``."""
    if len(sides) > 2:
        raise UsageError("--like: name one run, or two to use the variance of their differences")
    if len(sides) == 2 and sides[0].name == sides[1].name:
        raise UsageError(f"--like {sides[0].name}: given twice: name two different runs")
    if len(sides) == 2 and correlation is not None:
        raise UsageError("--case-correlation: two runs with --like show it; leave it out")
    for side in sides:
        known = side.metrics.get(detect.metric or "")
        if isinstance(known, Meaning) and not same_meaning(known, detect.kind):
            was, now = describe_meaning(known, detect.kind), describe_meaning(detect.kind, known)
            raise UsageError(f"--like {side.name}: {detect.metric} means another thing there: {was}; here: {now}")
    strata = {(side.name, label): group for side in sides for label, group in _values(detect, side).items()}
    for side in sides:
        if not any(name == side.name for name, _ in strata):
            what = "sample that passed or failed" if detect.metric is None else f"score of {detect.metric}"
            names = {name for cell in side.cells for name, score in cell.scores.items() if score is not None}
            hint = "" if detect.metric is None else did_you_mean(detect.metric, names)
            lack = f"the run has no {what}{hint}" if side.cells else "the run has no samples"
            raise UsageError(f"--like {side.name}: {lack}")
    split = components([case_of_values(values) for values in group.values()] for group in strata.values())
    values = [value for group in strata.values() for case in group.values() for value in case]
    rate = sum(values) / len(values)
    if len(sides) == 2:
        noise = _paired_noise(detect, sides, rate, split)
    else:
        noise = _single_noise(detect, sides[0], rate, split, correlation)
    if detect.kind.type == "number" and noise.within + noise.change <= 0:
        raise UsageError(f"--like {sides[0].name}: {detect.metric} is the same in all samples: nothing to plan with")
    others = (
        f"{side.name} is a run of the suite {side.suite!r}, not of {suite!r}."
        for side in sides
        if side.suite not in (None, suite)
    )
    return replace(noise, notes=(*noise.notes, *others))


def _single_noise(
    detect: Detect, side: Side, rate: float, split: VarianceComponents, correlation: float | None
) -> Noise:
    if split.sample is not None:
        if correlation is not None:
            raise UsageError(f"--case-correlation: {side.name} has several samples per case and shows it; leave it out")
        note = f"Variance between samples of a case from {side.name}{_mean(detect, rate)}."
        return Noise(rate, split.sample, notes=(note,))
    if split.case is None:
        raise UsageError(f"--like {side.name}: has one case with one sample, which shows no variance")
    rho = _correlation(correlation)
    note = (
        f"{side.name} has one sample per case, which does not show the variance between samples: assumes a correlation"
        f" of {rho:g} between samples of a case{_mean(detect, rate)}."
    )
    is_known = correlation is not None
    return Noise(rate, split.case * (1 - rho), notes=(note,), is_correlation_known=is_known)


def _paired_noise(detect: Detect, sides: Sequence[Side], rate: float, split: VarianceComponents) -> Noise:
    import numpy as np

    known, cases = sides[0].counter_examples or (), dict[str, int]()
    scores = [
        (cases.setdefault(chain_of(pair.b.test_id), len(cases)), _value(detect, pair.a), _value(detect, pair.b))
        for pair in pair_cells(sides[0], sides[1]).pairs
        if not pair.flaky and not _is_left_out(detect.metric, pair.a, known)
    ]
    case, a, b = np.array(scores, float).reshape(-1, 3).T  # None becomes nan
    difference = scores_difference(detect.metric or PASS_RATE, detect.kind, (case, a, b))
    names = " and ".join(side.name for side in sides)
    if difference.variance is None:
        raise UsageError(f"--like: {names} have fewer than two cases in common, which show no variance")
    cells = difference.n_pairs / difference.n_cases
    base = f"Variance of the cases' differences between {names}{_mean(detect, rate)}"
    if split.sample is None:
        note = f"{base}. With one sample per case, all of it counts as noise that more samples reduce."
        return Noise(rate, difference.variance * cells / 2, notes=(note,))
    change = max(0.0, difference.variance - 2 * split.sample / cells)
    return Noise(rate, split.sample, change, (f"{base}, and between samples of a case.",))


def _mean(detect: Detect, rate: float) -> str:
    if detect.kind.type != "bool":
        return ""
    return f", at a pass rate of {rate:.3g}" if detect.metric is None else f", at a share of yes of {rate:.3g}"


def _correlation(stated: float | None) -> float:
    rho = DEFAULT_CORRELATION if stated is None else stated
    if not 0 <= rho < 1:
        raise UsageError(f"--case-correlation {rho:g}: must be from 0 to below 1")
    return rho


def _values(detect: Detect, side: Side) -> dict[str, dict[str, list[float]]]:
    """The measured values by model run and case, without those that a comparison leaves out."""
    values: dict[str, dict[str, list[float]]] = {}
    known = side.counter_examples or ()
    for cell in side.cells:
        is_left_out = cell.flaky or _is_left_out(detect.metric, cell, known)
        value = None if is_left_out else _value(detect, cell)
        if value is not None:
            values.setdefault(cell.model_label, {}).setdefault(chain_of(cell.test_id), []).append(value)
    return values


def _is_left_out(metric: str | None, cell: Cell, counter_examples: Collection[str]) -> bool:
    """Whether a comparison of all cells leaves out the metric of this cell."""
    return metric is not None and cell.test_id in counter_examples and is_metric_of(metric, match_keys(cell.graders))


def _value(detect: Detect, cell: Cell) -> float | None:
    return number_of(_VALUES.get(cell.verdict) if detect.metric is None else cell.scores.get(detect.metric))


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
    variance, notes = noise.rate * (1 - noise.rate), noise.notes
    correlations: tuple[float, ...] = (0.0, DEFAULT_CORRELATION)
    if noise.is_correlation_known and variance > 0:
        correlations = (1 - min(1.0, noise.within / variance),)
    else:
        basis = "" if variance else "A run without any variance shows no correlation. "
        note = (
            f"{basis}Samples of a case have a correlation of 0 if all cases are equally hard, and of 1 if a case always"
            " or never passes: --like RUN, with several samples, measures it."
        )
        notes = (note,)
    is_minimum = gate.is_minimum or (gate.op == "==" and gate.threshold == 1)
    rates = RATES if is_minimum else tuple(round(1 - rate, 12) for rate in reversed(RATES))
    rows = tuple(RateRow(rate, tuple(_fails(gate, cells, rate, rho) for rho in correlations)) for rate in rates)
    good = GOOD_RATE if is_minimum else round(1 - GOOD_RATE, 12)
    suggested = _suggestion(gate, cells, good, correlations, is_minimum=is_minimum)
    fails = max(_fails(suggested, cells, good, rho) for rho in correlations)
    return GateRates(gate.text, cells, correlations, rows, good, suggested.text, fails, notes)


def _fails(gate: Gate, cells: int, rate: float, correlation: float) -> float:
    counts = counts_at_rate(cells, rate, rate * (1 - rate) * (1 - correlation))
    return failing_share(counts, lambda count: gate_passes(gate, count / cells))


def _suggestion(gate: Gate, cells: int, rate: float, correlations: tuple[float, ...], *, is_minimum: bool) -> Gate:
    """The same gate with the strictest threshold that fails a true ``rate`` seldom, whatever the correlation is.

    Some always does: that of a single cell on the right side.
    """
    subject = gate.text[: gate.text.rindex(gate.op)].strip()

    def limited(failures: int) -> Gate:
        """The gate with the shortest threshold that this many failures meet, and one more does not."""
        for digits in range(2, 12):
            scale = 10**digits
            passing = floor((cells - failures) / cells * scale + 1e-9) / scale
            if passing > (cells - failures - 1) / cells:
                break
        threshold = f"{passing if is_minimum else 1 - passing:.{digits}g}" if passing else "0"
        return parse_gate(f"{subject} {'>=' if is_minimum else '<='} {threshold}")

    def suffices(failures: int) -> bool:
        return all(_fails(limited(failures), cells, rate, rho) <= GOOD_FAILS + NOISE for rho in correlations)

    return limited(bisect_left(range(cells - 1), True, key=suffices))
