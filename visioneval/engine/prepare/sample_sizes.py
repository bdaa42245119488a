"""What it takes to show a difference between two runs of a plan: cases, cells and cost by number of samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil

from visioneval.analysis.past_costs import PastCosts
from visioneval.analysis.sample_size import SAMPLES, Detect, Noise, noise_of, parse_detect, stated_noise
from visioneval.analysis.sides import Side, with_built_in
from visioneval.analysis.stats.power import POWER
from visioneval.engine.calls.cost.estimate import CostEstimate, estimate
from visioneval.errors import UsageError
from visioneval.expansion.plan import Plan
from visioneval.suite.cases.case import TestCase
from visioneval.suite.entries.metrics import BUILT_IN
from visioneval.suite.meanings import meanings_of
from visioneval.suite.turns import chain_of

GECKO = "gecko"


@dataclass(frozen=True, slots=True)
class DetectOptions:
    """The difference to detect, and the earlier runs or the stated numbers that its variance comes from."""

    difference: str | float
    like: Sequence[Side] = ()
    pass_rate: float | None = None
    case_correlation: float | None = None


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
    detectable: float | None
    power: float = POWER


def sample_sizes(
    plan: Plan, estimated: CostEstimate, options: DetectOptions, past: Callable[[], PastCosts] = PastCosts
) -> SampleSizes:
    """The sizes of runs of ``plan``, whose work is ``estimated``. ``past`` is called often. Raises ``UsageError``."""
    metrics = meanings_of(plan.metrics, plan.whole_suite)
    detect = parse_detect(options.difference, {**BUILT_IN, **metrics}, _families(plan))
    if options.like and options.pass_rate is not None:
        raise UsageError("--pass-rate: --like measures it; leave out one of them")
    if options.like:
        like = [with_built_in(side, (detect.metric or "",)) for side in options.like]
        noise = noise_of(detect, like, plan.suite.name, options.case_correlation)
    else:
        noise = stated_noise(detect, options.pass_rate, options.case_correlation)
    relevant = [case for case in plan.suite.cases if _has(case, plan, detect)]
    counted = [case for case in relevant if not case.flaky]
    if not counted:
        raise UsageError(f"--detect {options.difference}: the suite has no case that counts in a comparison")
    rows = []
    for samples in SAMPLES:
        resized = replace(plan, suite=plan.suite.model_copy(update={"samples": samples}))
        work = estimated if samples == plan.suite.samples else estimate(resized, past)
        rows.append(_row(samples, noise.cases_for(detect, _cells(resized, counted)), work, _count(counted)))
    return SampleSizes(
        detect,
        noise,
        tuple(rows),
        plan.suite.samples,
        _count(counted),
        _count(relevant) - _count(counted),
        len(plan.runs),
        noise.detectable(detect, _count(counted), _cells(plan, counted)),
    )


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


def _families(plan: Plan) -> list[str]:
    """The metrics that ``compare`` adjusts together: all but the parts of a gecko score."""
    geckos = [grader.key for grader in plan.suite.graders if grader.type_name == GECKO]
    return [name for name in plan.metrics if not any(name.startswith(f"{key}.") for key in geckos)]
