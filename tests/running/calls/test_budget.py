"""Tests of prices and budgets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from concurrency import settle
from fake_api import Fault
from genai_prices import Usage, calc_price
from suite_runner import PRICES, SuiteRunner
from typer.testing import CliRunner

from visioneval import BudgetError
from visioneval.cli import app
from visioneval.providers.gemini import GeminiProvider
from visioneval.providers.openai import OpenAIJudge, OpenAIProvider
from visioneval.providers.openai.connection import flat_usage
from visioneval.running.calls.attempts import Budget
from visioneval.running.calls.prices import (
    ANSWER_TOKENS,
    CallSize,
    CostBound,
    Prices,
    bound_of,
    smallest_size,
    stated_maximum,
)
from visioneval.running.keys import RateLimitKey
from visioneval.suite.entries.judges import BaseJudge, CustomJudge
from visioneval.suite.entries.providers import BaseProvider, Price
from visioneval.types import TaskType

pytestmark = pytest.mark.slow


OPENAI, IMAGE = OpenAIProvider(provider="openai"), TaskType.IMAGE_GENERATION
GENERATE = RateLimitKey("openai", "gpt-image-2", "generate")
JUDGE = RateLimitKey("openai", "gpt-5.4", "judge")
CUSTOM = RateLimitKey("mine:Generate", None, "generate")
TOKENS = {"input_tokens": 2_000, "output_tokens": 500}


@pytest.mark.parametrize(
    ("name", "price", "lane", "usage", "cost"),
    [
        ("openai:gpt-image-2", {"per_image": 0.04}, GENERATE, None, 0.12),
        ("gpt-image-2", {"per_image": 0.04}, GENERATE, TOKENS, 0.12),
        ("openai", {"per_call": 0.5}, GENERATE, None, 0.5),
        ("mine:Generate", {"per_call": 0.5, "per_image": 1}, CUSTOM, None, 3.5),
        ("openai", {"input_per_million": 10}, JUDGE, TOKENS, 0.02),
        ("openai", {"output_per_million": 100}, JUDGE, TOKENS, 0.05),
        ("openai", {"input_per_million": 10, "output_per_million": 100, "per_call": 1}, JUDGE, TOKENS, 1.07),
        ("openai", {"input_per_million": 10}, JUDGE, {"prompt_tokens": 2_000, "completion_tokens": 500}, 0.02),
        ("openai", {"input_per_million": 10}, JUDGE, None, None),
        ("openai", {"per_call": 0}, JUDGE, None, 0.0),
    ],
)
def test_costs_by_suite_prices(
    name: str, price: dict[str, float], lane: RateLimitKey, usage: Mapping[str, int] | None, cost: float | None
) -> None:
    prices = Prices({name: Price(**price)})
    assert prices.knows(lane)
    assert prices.cost(lane, usage, 3) == (None if cost is None else pytest.approx(cost))


def test_most_specific_price_wins() -> None:
    prices = {"openai": Price(per_call=1), "gpt-5.4": Price(per_call=2), "openai:gpt-5.4": Price(per_call=3)}
    result = []
    for name in ("openai:gpt-5.4", "gpt-5.4", "openai"):
        result.append(Prices(prices).cost(JUDGE, None, 0))
        del prices[name]
    assert result == [3, 2, 1]


PUBLIC = [
    (
        GENERATE,
        {"input_tokens": 50, "input_text_tokens": 50, "output_tokens": 1056, "output_image_tokens": 1056},
        {"input_tokens": 50, "output_tokens": 1056, "output_image_tokens": 1056},
    ),
    (
        GENERATE,
        {"input_tokens": 500, "input_image_tokens": 450, "output_tokens": 300, "output_image_tokens": 200},
        {"input_tokens": 500, "input_image_tokens": 450, "output_tokens": 300, "output_image_tokens": 200},
    ),
    (
        JUDGE,
        {"input_tokens": 900, "input_cached_tokens": 400, "output_tokens": 80, "output_reasoning_tokens": 60},
        {"input_tokens": 900, "cache_read_tokens": 400, "output_tokens": 80},
    ),
    (
        JUDGE,
        {"prompt_tokens": 900, "prompt_cached_tokens": 400, "completion_tokens": 80},
        {"input_tokens": 900, "cache_read_tokens": 400, "output_tokens": 80},
    ),
    (
        RateLimitKey("gemini", "gemini-nano-banana-2.1", "generate"),
        {"prompt_token_count": 20, "candidates_token_count": 1295, "candidates_image_tokens": 1290},
        {"input_tokens": 20, "output_tokens": 1295, "output_image_tokens": 1290},
    ),
    (
        RateLimitKey("gemini", "gemini-4-argon", "judge"),
        {"prompt_token_count": 20, "tool_use_prompt_token_count": 5, "candidates_token_count": 30,
         "thoughts_token_count": 40, "cached_content_token_count": 10},
        {"input_tokens": 25, "cache_read_tokens": 10, "output_tokens": 70},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("lane", "message", "counted"), PUBLIC)
def test_public_prices(lane: RateLimitKey, message: dict[str, int], counted: dict[str, int]) -> None:
    provider = {"openai": "openai", "gemini": "google"}[lane.provider]
    expected = float(calc_price(Usage(**counted), str(lane.model), provider_id=provider).total_price)
    assert expected > 0
    assert Prices().knows(lane)
    assert Prices().cost(lane, message, 1) == pytest.approx(expected)


def test_image_tokens_cost_more_than_text_tokens() -> None:
    lane, message, _ = PUBLIC[4]
    text = {**message, "candidates_image_tokens": 0, "candidates_text_tokens": message["candidates_token_count"]}
    assert (Prices().cost(lane, message, 1) or 0) > 3 * (Prices().cost(lane, text, 1) or 0) > 0


UNSPLIT: list[tuple[str, str, dict[str, int]]] = [
    ("openai", "gpt-image-2", {"input_tokens": 50, "output_tokens": 4160}),
    ("openai", "gpt-image-2", {"input_tokens": 50, "output_tokens": 4160, "output_image_tokens": 4160}),
    ("gemini", "gemini-nano-banana-2.1", {"prompt_token_count": 20, "candidates_token_count": 1290}),
]


@pytest.mark.parametrize(("provider", "model", "usage"), UNSPLIT)
def test_usage_without_modalities_has_a_cost_only_by_a_stated_price(
    provider: str, model: str, usage: dict[str, int]
) -> None:
    lane = RateLimitKey(provider, model, "generate")
    assert Prices().cost(lane, usage, 1) is None
    assert Prices({model: Price(per_image=0.04)}).cost(lane, usage, 2) == 0.08


def test_one_price_for_text_and_image_output_needs_no_modalities() -> None:
    lane = RateLimitKey("openai", "gpt-image-2", "generate")
    usage = {"input_tokens": 1000, "input_text_tokens": 1000, "output_tokens": 1000}
    assert Prices().cost(lane, usage, 1) == pytest.approx(0.005 + 0.03)


def test_cached_image_tokens_have_their_own_price() -> None:
    lane = RateLimitKey("openai", "gpt-image-2", "generate")
    details = {"text_tokens": 200, "image_tokens": 800, "cached_tokens": 500}
    details |= {"cached_tokens_details": {"text_tokens": 100, "image_tokens": 400}}  # type: ignore[dict-item]
    output = {"output_tokens": 100, "output_tokens_details": {"image_tokens": 100, "text_tokens": 0}}
    usage = flat_usage({"input_tokens": 1000, "input_tokens_details": details, **output})
    expected = (100 * 5 + 100 * 1.25 + 400 * 8 + 400 * 2 + 100 * 30) / 1e6
    assert Prices().cost(lane, usage, 1) == pytest.approx(expected)


@pytest.mark.parametrize(
    "lane",
    [
        CUSTOM,
        RateLimitKey("openai", "no-such-model", "generate"),
        RateLimitKey("openai", None, "generate"),
        RateLimitKey("command", "x", "generate"),
    ],
)
def test_unknown_price_gives_unknown_cost(lane: RateLimitKey) -> None:
    assert not Prices().knows(lane)
    assert Prices().cost(lane, TOKENS, 1) is None


@pytest.mark.parametrize(
    "usage", [None, {}, {"input_tokens": 1, "input_image_tokens": 500}], ids=["none", "empty", "impossible"]
)
def test_call_without_usage_has_unknown_cost(usage: Any) -> None:
    assert Prices().cost(GENERATE, usage, 1) is None


def test_custom_host_has_no_public_price() -> None:
    prices = Prices(custom_hosts=frozenset({JUDGE}))
    assert not prices.knows(JUDGE)
    assert prices.cost(JUDGE, TOKENS, 0) is None
    assert prices.knows(GENERATE)


def exact_bound(usd: float) -> Callable[[], CostBound]:
    return lambda: CostBound(usd, is_strict=True)


def estimated_bound(usd: float) -> Callable[[], CostBound]:
    return lambda: CostBound(usd, is_strict=False)


async def pay(
    budget: Budget, bound: Callable[[], CostBound], cost: float | None, lane: RateLimitKey = GENERATE
) -> None:
    async with budget.reserve(lane, 1, bound) as claim:
        await asyncio.sleep(0)
        budget.settle(claim, cost)


async def test_calls_in_flight_reserve_their_maximum_cost() -> None:
    budget = Budget(1.0)
    async with (
        budget.reserve(GENERATE, 1, exact_bound(0.5)) as first,
        budget.reserve(JUDGE, 0, exact_bound(0.4)) as second,
    ):
        waiting = asyncio.create_task(pay(budget, exact_bound(0.3), 0.3))
        await settle()
        assert not waiting.done()
        budget.settle(first, 0.5)
        budget.settle(second, 0.1)
    await waiting
    assert budget.spent == pytest.approx(0.9)
    with pytest.raises(
        BudgetError, match=r"the budget of 1 USD is used up: 0.9 USD spent, and the next call of openai"
    ):
        await pay(budget, exact_bound(0.3), 0.3)
    assert budget.refused == 1


async def test_failed_call_releases_its_reservation() -> None:
    budget = Budget(1.0)
    for _ in range(5):
        with pytest.raises(ZeroDivisionError):
            async with budget.reserve(GENERATE, 1, exact_bound(0.6)):
                raise ZeroDivisionError
    assert budget.spent == 0
    await pay(budget, exact_bound(0.6), None)
    assert budget.spent == 0.6, "an unknown cost is the most that it may be"


async def test_no_budget_refuses_nothing_and_computes_no_bound() -> None:
    def unexpected_bound() -> CostBound:
        raise AssertionError

    budget = Budget()
    for _ in range(3):
        await pay(budget, unexpected_bound, 1e9)
    await pay(budget, unexpected_bound, None)
    assert budget.refused == 0


def test_budget_with_unknown_price_is_a_usage_error(runner: SuiteRunner) -> None:
    runner.write(prices={"openai:gpt-5.4": {"per_call": 0.01}})
    result = runner.run("--budget", "1")
    assert (result.exit_code, runner.called, runner.out.exists()) == (2, (0, 0), False)
    (line,) = result.stderr.splitlines()
    assert line == (
        "the budget needs the price of every call, but these are unknown: openai:gpt-image-2. Set them in the suite, 0 for free calls, for example"
        " 'prices: {openai:gpt-image-2: {per_image: 0.02}}'"
    )
    assert runner.run("--budget", "1", "--offline").exit_code == 3, "nothing is paid offline"
    runner.write(prices={"openai:gpt-5.4": {"per_call": 0.01}}, budget_usd=3)
    assert runner.run(run_id="s").exit_code == 2, "the suite's budget too"


@pytest.mark.parametrize("message", ["nan", "inf", "0", "-1", "much"])
def test_invalid_budget_is_a_usage_error(runner: SuiteRunner, message: str) -> None:
    runner.write()
    assert runner.run("--budget", message).exit_code == 2
    assert runner.called == (0, 0)


def test_run_stops_at_budget_and_can_be_resumed(runner: SuiteRunner) -> None:
    ids = tuple(f"case{at}" for at in range(10))
    runner.write(*ids)
    result = runner.run("--budget", "0.25", "--max-concurrency", "1")
    assert result.exit_code == 3
    info, summary = runner.info(), runner.summary()
    assert (info.state, info.stopped_by) == ("interrupted", "budget")
    assert 0.2 < summary["cost_usd"] <= 0.25
    assert "the budget is used up: " in result.stderr
    assert f"to resume: visioneval run --resume {runner.out}/r" in result.stderr
    shown = CliRunner().invoke(app, ["show", f"{runner.out}/r"])
    assert (
        shown.stderr == f"{runner.out}/r was stopped by its budget; to resume: visioneval run --resume {runner.out}/r\n"
    )
    generated = runner.called[0]
    assert 4 <= generated <= 6
    result = runner("run", "--resume", runner.out / "r", "--budget", "5")
    assert result.exit_code == 0, result.output
    assert runner.called == (10, 10), "nothing is paid for twice"
    assert sorted(name for name, _ in runner.records()) == sorted(ids)
    assert runner.summary()["cost_usd"] == pytest.approx(0.5)
    assert (runner.info().state, runner.info().stopped_by) == ("complete", None)


def test_judge_calls_use_up_the_budget(runner: SuiteRunner) -> None:
    runner.write(prices={**PRICES, "openai:gpt-5.4": {"per_call": 1}}, gates=["error_rate < 1"])
    result = runner.run("--budget", "1.06", "--max-concurrency", "1")
    assert result.exit_code == 3
    assert "the budget is used up" in result.stderr
    assert runner.info().stopped_by == "budget"


def test_failed_attempt_costs_nothing(runner: SuiteRunner) -> None:
    runner.write("tree")
    runner.api.faults.queue(Fault("rate_limit", retry_after=0.01))
    assert runner.run().exit_code == 0
    record = runner.records()["tree", 0]
    assert (record.attempts, record.cost_usd, record.graders[0].cost_usd) == (2, 0.04, 0.01)


def test_unknown_cost_is_reported_as_unknown(runner: SuiteRunner) -> None:
    runner.write("tree", prices={})
    assert runner.run().exit_code == 0
    record = runner.records()["tree", 0]
    assert record.usage is not None
    assert (record.cost_usd, record.graders[0].cost_usd) == (None, None), "the host is not OpenAI's own"


async def test_token_priced_calls_run_first_call_alone_then_reserve_largest_cost() -> None:
    budget = Budget(1.0)
    calls = [asyncio.create_task(pay(budget, estimated_bound(0.5), 0.2)) for _ in range(64)]
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(item, BudgetError) for item in ended) == 59
    assert budget.spent == pytest.approx(1.0)


@pytest.mark.parametrize("bound", [exact_bound(0.0), estimated_bound(0.5)])
async def test_a_call_without_cost_tells_nothing_about_the_next(bound: Callable[[], CostBound]) -> None:
    """Such as an operation that an earlier run paid, and a refusal whose usage is unknown."""

    budget = Budget(1.0)
    await pay(budget, bound, 0.0)
    calls = [asyncio.create_task(pay(budget, estimated_bound(0.5), 0.2)) for _ in range(64)]
    await asyncio.gather(*calls, return_exceptions=True)
    assert budget.spent == pytest.approx(1.0)


async def test_failed_first_call_lets_the_next_start() -> None:
    budget = Budget(1.0)
    done: list[int] = []

    async def call(number: int) -> None:
        async with budget.reserve(GENERATE, 1, estimated_bound(0.5)):
            await asyncio.sleep(0)
            done.append(number)  # without a cost: it failed

    await asyncio.gather(*(call(number) for number in range(3)))
    assert sorted(done) == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "price", "lane", "size", "usd", "is_strict"),
    [
        ("openai", {"per_image": 0.04}, GENERATE, CallSize(3), 0.12, True),
        ("openai", {"per_call": 0.5, "per_image": 1}, GENERATE, CallSize(2, 99, 99), 2.5, True),
        ("openai", {"input_per_million": 10}, JUDGE, CallSize(0, 1_000, 50), 0.01, True),
        ("openai", {"output_per_million": 100}, JUDGE, CallSize(0, 1_000, 50), 0.005, True),
        ("openai", {"output_per_million": 100}, JUDGE, CallSize(0, 1_000), ANSWER_TOKENS / 10_000, False),
        ("openai", {"output_per_million": 100}, GENERATE, smallest_size(OPENAI, {}, 2, IMAGE), 1.6384, False),
        ("else", {"per_call": 1}, GENERATE, smallest_size(OPENAI, {}, 1, IMAGE), 8_192 * 30 / 1e6, False),
        ("else", {"per_call": 1}, GENERATE, smallest_size(OPENAI, {"quality": "low"}, 1, IMAGE), 512 * 30 / 1e6, False),
        (
            "else",
            {"per_call": 1},
            RateLimitKey("gemini", "gemini-nano-banana-2.1", "generate"),
            CallSize(1, 0, 2_000),
            0.06,
            True,
        ),
    ],
)
def test_maximum_cost_of_a_call(
    name: str, price: dict[str, float], lane: RateLimitKey, size: CallSize, usd: float, is_strict: bool
) -> None:
    bound = bound_of(Prices({name: Price(**price)}), lane, size)
    assert (bound.usd, bound.is_strict) == (pytest.approx(usd), is_strict)


@pytest.mark.parametrize(
    ("entry", "params", "most"),
    [
        (OPENAI, {"max_output_tokens": 500}, 500),
        (OPENAI, {"max_completion_tokens": 500, "n": 3}, 1_500),
        (OpenAIJudge(provider="openai", model="m"), {"max_output_tokens": 500}, 500),
        (GeminiProvider(provider="gemini"), {"maxOutputTokens": 500}, 500),
        (OPENAI, {"reasoning": {"effort": "low"}}, None),
        (CustomJudge(provider="mine:Judge"), {"max_output_tokens": 500}, None),
    ],
)
def test_stated_maximum_of_tokens(entry: BaseProvider | BaseJudge, params: dict[str, Any], most: int | None) -> None:
    assert stated_maximum(entry, params) == most


async def test_a_budget_can_be_used_completely() -> None:
    budget = Budget(0.3)
    for _ in range(3):
        await pay(budget, exact_bound(0.1), 0.1)
    with pytest.raises(BudgetError):
        await pay(budget, exact_bound(0.1), 0.1)
    await pay(budget, exact_bound(0.0), 0.0)  # what is free is never refused
