"""How many cases and samples show a difference between two runs, before they are paid for. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite

from visioneval.analysis.cells import Cell
from visioneval.analysis.compare.differences import ALPHA, PASS_RATE, scores_difference, widest_difference
from visioneval.analysis.compare.pairing import pair_cells
from visioneval.analysis.scores import number_of
from visioneval.analysis.sides import Side
from visioneval.analysis.stats.power import detectable_mean, detectable_rate, detectable_within
from visioneval.analysis.stats.variance import VarianceComponents, case_of_values, components
from visioneval.errors import UsageError, did_you_mean
from visioneval.suite.filters import chain_of
from visioneval.suite.metrics import Meaning, describe_meaning, is_metric_of, match_keys, same_meaning
from visioneval.types import Metric, Verdict

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
            raise UsageError(_nothing_measured(detect, side))
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


def _nothing_measured(detect: Detect, side: Side) -> str:
    if not side.cells:
        return f"--like {side.name}: the run has no samples"
    if detect.metric is None:
        return f"--like {side.name}: the run has no sample that passed or failed"
    names = {name for cell in side.cells for name, score in cell.scores.items() if score is not None}
    return f"--like {side.name}: the run has no score of {detect.metric}{did_you_mean(detect.metric, names)}"
