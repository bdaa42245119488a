"""What the cases and samples of a plan can show: the sizes that show a difference, how often a gate fails, and whether
``compare`` can decide at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import ceil

from visioneval.analysis.compare.confirm import can_show_regression
from visioneval.analysis.planning import (
    SAMPLES,
    Detect,
    GateRates,
    Noise,
    PastCosts,
    gate_rates,
    noise_of,
    parse_detect,
    parse_planned_gate,
    stated_noise,
)
from visioneval.analysis.scores import RATE
from visioneval.analysis.sides import Side, with_built_in
from visioneval.analysis.stats.variance import POWER
from visioneval.errors import Problem, UsageError, count_of
from visioneval.rules import is_true
from visioneval.running.calls.estimate import CostEstimate, estimate
from visioneval.running.plan import Plan
from visioneval.suite.cases.case import TestCase
from visioneval.suite.filters import BUILT_IN
from visioneval.suite.kinds import QUESTIONS, of_kind
from visioneval.suite.metrics import meanings_of
from visioneval.suite.turns import chain_of
from visioneval.types import Metric


@dataclass(frozen=True, slots=True)
class DetectOptions:
    """The difference to detect, the gate to plan, and the earlier runs or stated numbers that show the variance."""

    difference: str | float | None = None
    like: Sequence[Side] = ()
    pass_rate: float | None = None
    case_correlation: float | None = None
    gate: str | None = None


@dataclass(frozen=True, slots=True)
class SampleSize:
    """With this many samples, the cases that a comparison needs in each run, and the cells and cost of one run.

    ``cases`` is ``None`` if too many are needed, ``usd`` if a price is unknown.
    """

    samples: int
    cases: int | None
    cells: int | None
    usd: float | None


@dataclass(frozen=True, slots=True)
class SampleSizes:
    """The sizes of runs that show a difference.

    ``cases`` of the suite count, each with ``samples``, and detect ``detectable``, which is ``None`` if they detect no
    difference. ``flaky`` cases do not count. A difference of a yes-or-no metric or of the pass rate is in 0..1.
    """

    detect: Detect
    noise: Noise
    rows: tuple[SampleSize, ...]
    samples: int
    cases: int
    flaky: int
    model_runs: int
    has_costs: bool
    """Whether anything in a run costs money."""
    detectable: float | None
    power: float = POWER


def sample_sizes(plan: Plan, options: DetectOptions, past: Callable[[], PastCosts] = PastCosts) -> SampleSizes | None:
    """The sizes of runs of ``plan``; ``None`` without a difference to detect.

    ``past`` is called often. Raises ``UsageError``.
    """
    if options.difference is None:
        return None
    # compare adjusts these together: all metrics but the parts of a gecko score, and words
    geckos = tuple(f"{grader.key}." for grader in of_kind(plan.suite.graders, QUESTIONS))
    numbers = (name for name, metric in plan.metrics.items() if metric.type != "one_of")
    families = [name for name in numbers if not name.startswith(geckos)]
    detect = parse_detect(options.difference, _metrics(plan), families)
    if options.like and options.pass_rate is not None:
        raise UsageError("--pass-rate: --like measures it; leave out one of them")
    noise = _noise(plan, detect, options)
    relevant = [case for case in plan.suite.cases if _has(case, plan, detect)]
    counted = [case for case in relevant if not case.flaky]
    if not counted:
        raise UsageError(f"--detect {options.difference}: the suite has no case that counts in a comparison")
    rows = []
    for samples in SAMPLES:
        resized = replace(plan, suite=plan.suite.model_copy(update={"samples": samples}))
        work = estimate(resized, past)
        rows.append(_row(samples, noise.cases_for(detect, _cells(resized, counted)), work, _count(counted)))
    return SampleSizes(
        detect,
        noise,
        tuple(rows),
        plan.suite.samples,
        _count(counted),
        _count(relevant) - _count(counted),
        len(plan.runs),
        bool(work.costs),
        noise.detectable(detect, _count(counted), _cells(plan, counted)),
    )


def planned_gate(plan: Plan, options: DetectOptions) -> GateRates | None:
    """How often a gate over the cells of ``plan`` fails; ``None`` without a gate. Raises ``UsageError``."""
    if options.gate is None:
        return None
    gate = parse_planned_gate(options.gate, _metrics(plan))
    detect = Detect(gate.metric, RATE, 1.0)
    cells = sum(plan.count(case, run)[1] for case in plan.suite.cases if _has(case, plan, detect) for run in plan.runs)
    if not cells:
        raise UsageError(f"--gate {options.gate!r}: no cell of the suite counts in it")
    return gate_rates(gate, cells, _noise(plan, detect, options))


@dataclass(frozen=True, slots=True)
class MustDetect:
    """Whether two runs of a plan would meet the ``compare: must_detect`` of its suite.

    ``points`` is that drop of the pass rate, and ``detectable`` the one that they detect, ``None`` if there is none;
    both in points. Of a shard, they are those of all shards merged. ``cells`` are those of one run: ``cases`` with
    ``samples`` on ``model_runs`` each, unless calls return several images, or not every case has every model run.
    ``rate`` is the pass rate of the runs, and ``is_assumed`` if nobody stated or measured it; ``None`` in a suite
    without rules, which has none.
    """

    points: float
    detectable: float | None
    cases: int
    samples: int
    model_runs: int
    cells: int
    rate: float | None
    is_assumed: bool

    @property
    def is_met(self) -> bool:
        """Whether the drop would be found at least four times in five."""
        return self.detectable is not None and is_true(self.detectable, "<=", self.points)


def must_detect(plan: Plan, sizes: SampleSizes | None) -> MustDetect | None:
    """Whether a comparison of two runs of ``plan`` would find what its suite requires; ``None`` if it requires nothing.

    The variance is that of ``sizes`` if they are about the pass rate, else assumed.
    """
    points = plan.suite.compare.must_detect
    if points is None:
        return None
    detect = Detect(None, RATE, points / 100)
    counted = [case for case in plan.suite.cases if _has(case, plan, detect) and not case.flaky]
    is_about_rate = sizes is not None and sizes.detect.metric is None
    noise = sizes.noise if sizes is not None and is_about_rate else stated_noise(detect, None, None)
    has_rate = plan.suite.has_rules
    size = noise.detectable(detect, _count(counted), _cells(plan, counted)) if counted and has_rate else None
    return MustDetect(
        points,
        None if size is None else 100 * size,
        _count(counted),
        plan.suite.samples,
        len(plan.runs),
        sum(plan.count(case, run)[1] for case in counted for run in plan.runs),
        noise.rate if has_rate else None,
        has_rate and not noise.is_rate_known,
    )


def size_notes(plan: Plan) -> tuple[Problem, ...]:
    """A note about a suite that is too small for ``compare``: the loss of everything could not show a regression.

    None if flags leave out cases, or if nothing passes or fails.
    """
    if plan.selection.narrows or not plan.suite.has_rules:
        return ()
    counted = [case for case in plan.suite.cases if not case.flaky]
    by_case: Counter[tuple[str, str]] = Counter()
    for case in counted:
        for run in plan.runs:
            by_case[chain_of(case.id), run.label] += plan.count(case, run)[1]
    samples = [number for number in by_case.values() if number]
    if not samples or can_show_regression(samples):
        return ()
    most, number = max(samples), _count(counted)
    more = next(times for times in count(2) if can_show_regression([times * each for each in samples]))
    cases = next(new for new in count(number + 1) if can_show_regression([most] * (new * len(samples) // number)))
    message = (
        f"note: {count_of(number, 'case')} x {count_of(most, 'sample')} cannot show a regression in 'compare', even if"
        f" everything breaks: {count_of(cases, 'case')}, or {count_of(most * more, 'sample')} of each, could"
    )
    return (Problem(plan.loaded.name, 0, 0, message),)


def _metrics(plan: Plan) -> dict[str, Metric]:
    return {**BUILT_IN, **meanings_of(plan.metrics, plan.whole_suite)}


def _noise(plan: Plan, detect: Detect, options: DetectOptions) -> Noise:
    """The noise of earlier runs, or of the stated numbers."""
    if not options.like:
        return stated_noise(detect, options.pass_rate, options.case_correlation)
    like = [with_built_in(side, (detect.metric or "",)) for side in options.like]
    return noise_of(detect, like, plan.suite.name, options.case_correlation)


def _row(samples: int, cases: int | None, work: CostEstimate, counted: int) -> SampleSize:
    """Scales the work of the suite to another number of cases."""
    if cases is None:
        return SampleSize(samples, None, None, None)
    share = cases / counted
    return SampleSize(samples, cases, ceil(work.cells * share), None if work.unpriced else work.usd * share)


def _cells(plan: Plan, cases: Sequence[TestCase]) -> float:
    """The mean number of cells of a case, over all model runs."""
    return sum(plan.count(case, run)[1] for case in cases for run in plan.runs) / _count(cases)


def _count(cases: Sequence[TestCase]) -> int:
    """The number of cases. Turns of a case count once: they are not independent."""
    return len({chain_of(case.id) for case in cases})


def _has(case: TestCase, plan: Plan, detect: Detect) -> bool:
    """Whether a case has cells, with the metric if one is asked for."""
    if not any(plan.count(case, run)[1] for run in plan.runs):
        return False
    return detect.metric is None or detect.metric in {*BUILT_IN, *plan.suite_metrics.of_case(case)}
