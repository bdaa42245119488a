"""Estimates the calls and the cost of a plan without calling a provider."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from visioneval.analysis.planning import PastCosts
from visioneval.errors import count_of
from visioneval.running.calls.budget import CallSize, bound_of, budget_warnings, generation_size, prices_of
from visioneval.running.calls.limiters import RateLimitKey, generation_limit_key, judge_limit_key
from visioneval.running.calls.prices import Prices
from visioneval.running.plan import Call, Plan, asks
from visioneval.suite.cases.case import TestCase
from visioneval.suite.cases.prompts import without_prompt
from visioneval.suite.entries.graders import BaseGrader, is_video
from visioneval.types import ModelRun, TaskType

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
        self._past: PastCosts | None = None

    @property
    def past(self) -> PastCosts:
        """Costs of earlier runs, read on first use."""
        if self._past is None:
            self._past = self._ask()
        return self._past

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
