"""What a plan takes and what it can show: calls and their cost, and the samples that a comparison needs.

Makes no call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from math import ceil
from typing import Literal

from visioneval.analysis.compare.regressed import can_show_regression
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
from visioneval.running.calls.prices import CallSize, Prices, bound_of, budget_warnings, generation_size, prices_of
from visioneval.running.keys import RateLimitKey, generation_limit_key, judge_limit_key
from visioneval.running.plan import Call, Plan, asks
from visioneval.suite.case import TestCase
from visioneval.suite.entries.graders import QUESTIONS, BaseGrader, is_video, of_kind
from visioneval.suite.filters import chain_of, show_size, turns_of
from visioneval.suite.metrics import BUILT_IN, meanings_of
from visioneval.suite.prompts import without_prompt
from visioneval.types import Metric, ModelRun, TaskType

Basis = Literal["prices", "list", "earlier runs", "tokens", "none"]


@dataclass(frozen=True, slots=True)
class Cost:
    """The calls of one model run, or of one grader's judge, and their estimated cost in US dollars.

    Both are ``None`` if unknown: a judge may decide how many calls it needs, such as with ``mode: single`` of gecko.
    ``basis`` is the suite's ``prices``, LiteLLM's ``list`` of them, or the mean over ``seen`` cells of ``earlier
    runs``. If none is available, it is ``tokens`` (the price per token is known, the number of tokens is assumed; see
    ``assumed``) or ``none``.
    """

    name: str
    usd: float | None
    basis: Basis
    seen: int = 0
    calls: int | None = None

    def __str__(self) -> str:
        """Its name, calls, cost and basis."""
        calls = "" if self.calls is None else f"{count_of(self.calls, 'call')}, "
        return f"{self.name}: {calls}{self._priced}"

    @property
    def _priced(self) -> str:
        if self.usd is not None:
            basis = {
                "prices": "from the suite's prices",
                "list": "from LiteLLM's list of prices",
                "earlier runs": f"based on {count_of(self.seen, 'cell')} of earlier runs",
            }.get(self.basis, "assuming typical token counts")
            return f"{self.usd:.4f} USD, {basis}"
        if self.basis == "tokens":
            return "unknown: no earlier run in this folder shows the number of calls"
        return "unknown: no price; add one under 'prices:'"


def total_text(costs: Sequence[Cost]) -> str:
    """The sum of the known costs, and how many are unknown."""
    if not costs:
        return "none: no paid calls"
    known = [cost.usd for cost in costs if cost.usd is not None]
    unknown = f"unknown for {len(costs) - len(known):,} of {len(costs):,}" if len(known) < len(costs) else ""
    return ", and ".join(filter(None, (f"about {sum(known):.2f} USD" if known else "", unknown)))


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """The work and cost of a run, and its missing files. Free providers have no entry in ``costs``.

    ``grader_calls`` counts each grading of a cell or pair: ``local_measurements`` of them are made on this machine.
    ``judge_calls`` counts the calls of judges that may cost money; a judge whose calls are unknown counts as none.
    """

    calls: int
    cells: int
    grader_calls: int
    costs: tuple[Cost, ...]
    missing_files: tuple[str, ...]
    budget_warnings: tuple[str, ...] = ()
    """One line for each model or judge whose single call exceeds the budget."""
    judge_calls: int = 0
    local_measurements: int = 0
    other_gradings: int = 0
    """Gradings that neither measure locally nor ask a judge that may cost money: recorded answers, custom classes."""

    @property
    def usd(self) -> float:
        """The sum of the known costs."""
        return sum(cost.usd or 0.0 for cost in self.costs)

    @property
    def unpriced(self) -> tuple[str, ...]:
        """The names whose cost is unknown."""
        return tuple(cost.name for cost in self.costs if cost.usd is None)


def estimate(plan: Plan, past: Callable[[], PastCosts] = PastCosts, budget_usd: float | None = None) -> CostEstimate:
    """Counts and prices the work of a plan. Calls ``past`` only if the suite's prices do not cover it.

    ``budget_usd`` overrides the suite's budget.
    """
    calls = cells = 0
    generated: Counter[str] = Counter()
    first_calls: dict[str, Call] = {}
    asked: Counter[str] = Counter()
    missing: list[str] = []
    for call in plan.calls():
        calls += 1
        cells += call.cells
        generated[call.run.label] += 1
        first_calls.setdefault(call.run.label, call)
        for cell_call in call.with_dependents:
            asked.update({grader.key: len(cell_call.samples) for grader in cell_call.grading.graders})
        if (name := plan.missing_output(call)) is not None:
            missing.append(name)
    pairs = {grader.key: _comparisons(plan, grader) for grader in plan.suite.graders}
    pricing = _Pricing(plan, prices_of(plan), past)
    generations = [
        pricing.generation(run, generated[run.label], first_calls.get(run.label))
        for run in plan.runs
        if not run.config.is_free
    ]
    times = {key: asked[key] + pairs[key] for key in pairs}
    judgements = pricing.all_judging(times)
    local = sum(times[grader.key] for grader in plan.suite.graders if grader.measures_locally)
    other = sum(
        times[grader.key]
        for grader in plan.suite.graders
        if not grader.measures_locally and not pricing.paid_judges(grader)
    )
    limit_usd = plan.suite.budget_usd if budget_usd is None else budget_usd
    warnings = () if limit_usd is None else tuple(budget_warnings(plan, limit_usd))
    return CostEstimate(
        calls,
        cells,
        asked.total() + sum(pairs.values()),
        (*generations, *judgements),
        tuple(missing),
        warnings,
        judge_calls=sum(cost.calls or 0 for cost in judgements),
        local_measurements=local,
        other_gradings=other,
    )


def judging_costs(plan: Plan, times: Mapping[str, int], past: Callable[[], PastCosts]) -> tuple[Cost, ...]:
    """The cost of each paid judge if each grader, by key, grades so many ``times``."""
    return tuple(_Pricing(plan, prices_of(plan), past).all_judging(times))


def _comparisons(plan: Plan, grader: BaseGrader) -> int:
    """The number of comparisons that a grader makes after the cells."""
    labels = grader.compared(run.label for run in plan.runs)
    runs = [run for run in plan.runs if run.label in labels and not grader.kind.grades_cells]
    cases = (case for case in plan.suite.cases if grader.is_for(case))
    return sum(grader.kind.comparisons([plan.count(case, run)[1] for run in runs]) for case in cases)


class _Pricing:
    """Prices the generations and judgements of a plan."""

    def __init__(self, plan: Plan, prices: Prices, past: Callable[[], PastCosts]) -> None:
        self._plan = plan
        self._prices = prices
        self._ask = past

    @cached_property
    def past(self) -> PastCosts:
        """Costs of earlier runs, read on first use."""
        return self._ask()

    def generation(self, run: ModelRun, calls: int, first: Call | None) -> Cost:
        """The cost of all generations of a model run, whose ``first`` call stands for the size of all."""
        limit_key, images = generation_limit_key(run.provider, run.params), calls * self._plan.outputs_per_call(run)
        size = assumed_generation(first) if first else CallSize()
        stated = self._stated(limit_key, calls, images, calls * size.video_seconds)
        if stated is not None:
            return Cost(run.label, stated, self._basis(limit_key), calls=calls)
        mean = self.past.generations.get((run.provider, without_prompt(run.label)))
        if mean is not None:
            return Cost(run.label, mean.usd * images, "earlier runs", mean.times, calls)
        return self._by_tokens(run.label, limit_key, calls, size)

    def paid_judges(self, grader: BaseGrader) -> list[str]:
        """The names of a grader's judges that may cost money."""
        if not any(asks(grader, case) for case in self._plan.suite.cases):
            return []
        judges = ((name, self._plan.judges.get(name)) for name in grader.judge_names)
        return [name for name, judge in judges if judge is not None and not judge.is_free]

    def all_judging(self, times: Mapping[str, int]) -> list[Cost]:
        """The cost of each paid judge if each grader, by key, grades so many ``times`` cells or pairs."""
        return [
            self.judging(grader, name, times.get(grader.key, 0))
            for grader in self._plan.suite.graders
            for name in self.paid_judges(grader)
        ]

    def judging(self, grader: BaseGrader, judge_name: str, times: int) -> Cost:
        """The cost of one judge of a grader for ``times`` cells or pairs."""
        judge = self._plan.judges[judge_name]
        limit_key, name = judge_limit_key(judge), f"{grader.key} by {judge_name}"
        suite = self._plan.suite
        cases = [case for case in suite.cases if asks(grader, case)]
        calls = grader.judge_calls(times, cases, suite.vars)
        if calls is not None and judge_name == grader.judge_names[0]:
            calls += grader.shared_calls((case, seen) for case in cases for seen in self._plan.graded_prompts(case))
        stated = None if calls is None else self._stated(limit_key, calls, 0)
        if stated is not None:
            return Cost(name, stated, self._basis(limit_key), calls=calls)
        mean = self.past.judgements.get((grader.key, judge.title))
        if mean is not None:
            return Cost(name, mean.usd * times, "earlier runs", mean.times, calls)
        return self._by_tokens(name, limit_key, calls, assumed_answer(grader, cases))

    def _stated(self, limit_key: RateLimitKey, calls: int, images: int, video_s: float = 0.0) -> float | None:
        """The cost by the price per call, image and second; ``None`` if there is none or tokens are priced too."""
        price = self._prices.fixed(limit_key)
        if price is None or price.input_per_million or price.output_per_million:
            return None
        return (price.per_call or 0.0) * calls + (price.per_image or 0.0) * images + (price.per_second or 0.0) * video_s

    def _basis(self, limit_key: RateLimitKey) -> Basis:
        return "list" if self._prices.stated(limit_key) is None else "prices"

    def _by_tokens(self, name: str, limit_key: RateLimitKey, calls: int | None, size: CallSize) -> Cost:
        if not self._prices.knows(limit_key):
            return Cost(name, None, "none", calls=calls)
        usd = None if calls is None else bound_of(self._prices, limit_key, size).usd * calls
        return Cost(name, usd, "tokens", calls=calls)


ANSWER_TOKENS = 1_000
"""Output tokens of a judge's answer, thinking included."""
INSTRUCTION_TOKENS = 2_000
"""Input tokens of a judge's instructions."""
IMAGE_TOKENS = 1_500
"""Input tokens of an image that is sent."""
VIDEO_TOKENS = 10_000
"""Input tokens of a video that is sent, as a whole or as frames."""
_BYTES_PER_TOKEN = 4


def assumed_generation(call: Call) -> CallSize:
    """The assumed size of a generation or an edit; of a video, that of the longest one."""
    if call.task_type is TaskType.VIDEO_GENERATION:
        return generation_size(call)
    sent = IMAGE_TOKENS * (len(call.files.images) + len(call.files.masks))
    tokens = call.run.config.usual_image_tokens(call.params)
    images = len(call.samples)
    return CallSize(images, len(call.sent_prompt.encode()) // _BYTES_PER_TOKEN + sent, None, tokens * images)


def assumed_answer(grader: BaseGrader, cases: Iterable[TestCase]) -> CallSize:
    """The assumed size of a judge's call for a grader, for the case that sends most."""
    sent = (
        (VIDEO_TOKENS if is_video(case) else IMAGE_TOKENS) * grader.kind.shown
        + IMAGE_TOKENS * (len(case.images) + (case.previous_turn is not None))  # the output that a turn edits
        + IMAGE_TOKENS * (len(case.masks.model_fields_set) if case.masks else 0)
        for case in cases
    )
    tokens = INSTRUCTION_TOKENS + max(sent, default=0)
    rounds = grader.rounds_per_call
    return CallSize(0, tokens * rounds, None, ANSWER_TOKENS * rounds)


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
    difference. ``flaky`` cases do not count. ``turns`` are the fewest and the most of a case. A difference of a
    yes-or-no metric or of the pass rate is in 0..1.
    """

    detect: Detect
    noise: Noise
    rows: tuple[SampleSize, ...]
    samples: int
    cases: int
    turns: tuple[int, int]
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
        cases = noise.cases_for(detect, _cells(resized, counted))
        share = (cases or 0) / _count(counted)  # of the work of the suite
        number = None if cases is None else ceil(work.cells * share)
        rows.append(SampleSize(samples, cases, number, None if cases is None or work.unpriced else work.usd * share))
    return SampleSizes(
        detect,
        noise,
        tuple(rows),
        plan.suite.samples,
        _count(counted),
        turns_of(case.id for case in counted),
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
    ``turns`` and ``samples`` on ``model_runs`` each, unless calls return several images, or not every case has every
    model run. ``turns`` are the fewest and the most of a case.
    ``rate`` is the pass rate of the runs, and ``is_assumed`` if nobody stated or measured it; ``None`` in a suite
    without rules, which has none.
    """

    points: float
    detectable: float | None
    cases: int
    turns: tuple[int, int]
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
        turns_of(case.id for case in counted),
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
    turns = turns_of(case.id for case in counted)
    each = max(1, most // turns[1])
    message = (
        f"note: {show_size(number, turns, each)} cannot show a regression in 'compare', even if everything breaks:"
        f" two runs with {count_of(cases, 'case')}, or {count_of(each * more, 'sample')} of each, could"
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
