"""What calls cost, and the end of the money."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fake_api import FakeAPI, Fault
from genai_prices import Usage, calc_price
from paying import PRICES, Paying
from typer.testing import CliRunner

from visioneval.cli import app
from visioneval.engine.budget import Budget, Prices
from visioneval.engine.throttle import Lane
from visioneval.errors import BudgetError
from visioneval.suite.limits import Price

pytest_plugins = ("fake_api.fixtures",)

DRAW = Lane("openai", "gpt-image-1.5", "draw")
JUDGE = Lane("openai", "gpt-5.4", "judge")
OWN = Lane("mine:Draw", None, "draw")
TOKENS = {"input_tokens": 2_000, "output_tokens": 500}


@pytest.fixture
def paying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: FakeAPI) -> Paying:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    monkeypatch.setenv("LOCAL_KEY", api.key)
    return Paying(tmp_path, api)


@pytest.mark.parametrize(
    ("name", "price", "lane", "usage", "cost"),
    [
        ("openai:gpt-image-1.5", {"per_image": 0.04}, DRAW, None, 0.12),
        ("gpt-image-1.5", {"per_image": 0.04}, DRAW, TOKENS, 0.12),
        ("openai", {"per_call": 0.5}, DRAW, None, 0.5),
        ("mine:Draw", {"per_call": 0.5, "per_image": 1}, OWN, None, 3.5),
        ("openai", {"input_per_million": 10}, JUDGE, TOKENS, 0.02),
        ("openai", {"output_per_million": 100}, JUDGE, TOKENS, 0.05),
        ("openai", {"input_per_million": 10, "output_per_million": 100, "per_call": 1}, JUDGE, TOKENS, 1.07),
        ("openai", {"input_per_million": 10}, JUDGE, {"prompt_tokens": 2_000, "completion_tokens": 500}, 0.02),
        ("openai", {"input_per_million": 10}, JUDGE, None, None),
        ("openai", {"per_call": 0}, JUDGE, None, 0.0),
    ],
)
def test_the_suites_prices(
    name: str, price: dict[str, float], lane: Lane, usage: Mapping[str, int] | None, cost: float | None
) -> None:
    prices = Prices({name: Price(**price)})
    assert prices.knows(lane)
    assert prices.cost(lane, usage, 3) == (None if cost is None else pytest.approx(cost))


def test_the_nearest_name_is_the_price() -> None:
    prices = {"openai": Price(per_call=1), "gpt-5.4": Price(per_call=2), "openai:gpt-5.4": Price(per_call=3)}
    found = []
    for name in ("openai:gpt-5.4", "gpt-5.4", "openai"):
        found.append(Prices(prices).cost(JUDGE, None, 0))
        del prices[name]
    assert found == [3, 2, 1]


PUBLIC = [
    (
        DRAW,
        {"input_tokens": 50, "input_text_tokens": 50, "output_tokens": 1056, "output_image_tokens": 1056},
        {"input_tokens": 50, "output_tokens": 1056, "output_image_tokens": 1056},
    ),
    (
        DRAW,
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
        Lane("gemini", "gemini-2.5-flash-image", "draw"),
        {"prompt_token_count": 20, "candidates_token_count": 1295, "candidates_image_tokens": 1290},
        {"input_tokens": 20, "output_tokens": 1295, "output_image_tokens": 1290},
    ),
    (
        Lane("gemini", "gemini-2.5-pro", "judge"),
        {"prompt_token_count": 20, "tool_use_prompt_token_count": 5, "candidates_token_count": 30,
         "thoughts_token_count": 40, "cached_content_token_count": 10},
        {"input_tokens": 25, "cache_read_tokens": 10, "output_tokens": 70},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("lane", "told", "counted"), PUBLIC)
def test_public_prices(lane: Lane, told: dict[str, int], counted: dict[str, int]) -> None:
    provider = {"openai": "openai", "gemini": "google"}[lane.provider]
    expected = float(calc_price(Usage(**counted), str(lane.model), provider_id=provider).total_price)
    assert expected > 0
    assert Prices().knows(lane)
    assert Prices().cost(lane, told, 1) == pytest.approx(expected)


def test_a_picture_costs_more_than_as_many_words() -> None:
    lane, told, _ = PUBLIC[4]
    words = {**told, "candidates_image_tokens": 0}
    assert (Prices().cost(lane, told, 1) or 0) > 5 * (Prices().cost(lane, words, 1) or 0) > 0


@pytest.mark.parametrize(
    "lane", [OWN, Lane("openai", "no-such-model", "draw"), Lane("openai", None, "draw"), Lane("command", "x", "draw")]
)
def test_what_nobody_knows_is_unknown(lane: Lane) -> None:
    assert not Prices().knows(lane)
    assert Prices().cost(lane, TOKENS, 1) is None


@pytest.mark.parametrize(
    "usage", [None, {}, {"input_tokens": 1, "input_image_tokens": 500}], ids=["none", "empty", "impossible"]
)
def test_a_call_that_tells_no_usage_has_no_known_cost(usage: Any) -> None:
    assert Prices().cost(DRAW, usage, 1) is None


def test_a_host_of_ones_own_has_no_public_price() -> None:
    prices = Prices(elsewhere=frozenset({JUDGE}))
    assert not prices.knows(JUDGE)
    assert prices.cost(JUDGE, TOKENS, 0) is None
    assert prices.knows(DRAW)


def test_a_budget_counts_running_calls_at_their_mean() -> None:
    budget = Budget(1.0)
    with budget.call(DRAW):
        budget.add(DRAW, 0.2)
    with budget.call(DRAW), budget.call(DRAW), budget.call(JUDGE):
        budget.add(JUDGE, 0.1)  # 0.3 spent, 0.5 expected
        with budget.call(DRAW):
            assert budget.spent == pytest.approx(0.3)
            with pytest.raises(BudgetError, match="the budget of 1 USD is used up"), budget.call(DRAW):
                pass
    with budget.call(DRAW):
        budget.add(DRAW, 0.4)  # the mean is 0.3 now
    with budget.call(DRAW), pytest.raises(BudgetError), budget.call(DRAW):
        pass
    assert budget.refused == 2


def test_a_budget_may_be_used_to_the_last_cent() -> None:
    budget = Budget(0.3)
    for _ in range(3):
        with budget.call(DRAW):
            budget.add(DRAW, 0.1)
    with pytest.raises(BudgetError), budget.call(DRAW):
        pass


def test_a_call_that_fails_is_not_counted_as_running() -> None:
    budget = Budget(1.0)
    for _ in range(5):
        with pytest.raises(ZeroDivisionError), budget.call(DRAW):
            raise ZeroDivisionError
    budget.add(DRAW, None)
    assert budget.spent == 0


def test_without_a_budget_nothing_is_refused() -> None:
    budget = Budget()
    for _ in range(3):
        with budget.call(DRAW):
            budget.add(DRAW, 1e9)
    assert budget.refused == 0


def test_a_budget_over_an_unknown_price_is_wrong_usage(paying: Paying) -> None:
    paying.write(prices={"openai:gpt-5.4": {"per_call": 0.01}})
    result = paying.run("--budget", "1")
    assert (result.exit_code, paying.called, paying.out.exists()) == (2, (0, 0), False)
    (line,) = result.stderr.splitlines()
    assert line == (
        "a budget needs the price of every call; unknown: openai:gpt-image-1.5. State them in the suite, as in"
        " 'prices: {openai:gpt-image-1.5: {per_image: 0.02}}'"
    )
    assert paying.run("--budget", "1", "--offline").exit_code == 3, "nothing is paid offline"
    paying.write(prices={"openai:gpt-5.4": {"per_call": 0.01}}, budget_usd=3)
    assert paying.run(run_id="s").exit_code == 2, "the suite's budget too"


@pytest.mark.parametrize("told", ["nan", "inf", "0", "-1", "much"])
def test_a_budget_that_is_none_is_wrong_usage(paying: Paying, told: str) -> None:
    paying.write()
    assert paying.run("--budget", told).exit_code == 2
    assert paying.called == (0, 0)


def test_a_budgeted_run_stops_says_so_and_can_be_gone_on_with(paying: Paying) -> None:
    ids = tuple(f"case{at}" for at in range(10))
    paying.write(*ids)
    result = paying.run("--budget", "0.25", "--max-concurrency", "1")
    assert result.exit_code == 3
    info, summary = paying.info(), paying.summary()
    assert (info.state, info.stopped_by) == ("interrupted", "budget")
    assert 0.2 < summary["cost_usd"] <= 0.25
    assert "the budget is used up: " in result.stderr
    assert f"to go on: visioneval run --resume {paying.out}/r" in result.stderr
    shown = CliRunner().invoke(app, ["show", f"{paying.out}/r"])
    assert shown.stderr == f"{paying.out}/r was ended by its budget; to go on: visioneval run --resume {paying.out}/r\n"
    drawn = paying.called[0]
    assert 4 <= drawn <= 6
    result = paying("run", "--resume", paying.out / "r", "--budget", "5")
    assert result.exit_code == 0, result.output
    assert paying.called == (10, 10), "nothing is paid for twice"
    assert sorted(name for name, _ in paying.records()) == sorted(ids)
    assert paying.summary()["cost_usd"] == pytest.approx(0.5)
    assert (paying.info().state, paying.info().stopped_by) == ("complete", None)


def test_a_budget_that_the_judges_use_up_ends_the_run_too(paying: Paying) -> None:
    paying.write(prices={**PRICES, "openai:gpt-5.4": {"per_call": 1}}, gates=["error_rate < 1"])
    result = paying.run("--budget", "1.06", "--max-concurrency", "1")
    assert result.exit_code == 3
    assert "the budget is used up" in result.stderr
    assert paying.info().stopped_by == "budget"


def test_who_waits_at_the_gate_when_the_money_ends_is_not_let_in(paying: Paying) -> None:
    paying.write(*(f"case{at}" for at in range(12)), graders=[{"key": "image", "type": "image"}],
                 verdict=["not image.blank"])  # fmt: skip
    paying.api.latency["images"] = 0.05
    assert paying.run("--budget", "0.04", "--max-concurrency", "4").exit_code == 3
    assert paying.called == (1, 0), "the one that began before any price was known"
    assert len(paying.records()) == 1


def test_a_try_that_fails_costs_nothing(paying: Paying) -> None:
    paying.write("tree")
    paying.api.faults.queue(Fault("rate_limit", retry_after=0.01))
    assert paying.run().exit_code == 0
    record = paying.records()["tree", 0]
    assert (record.attempts, record.cost_usd, record.graders[0].cost_usd) == (2, 0.04, 0.01)


def test_a_cost_that_is_not_known_is_told_as_unknown(paying: Paying) -> None:
    paying.write("tree", prices={})
    assert paying.run().exit_code == 0
    record = paying.records()["tree", 0]
    assert record.usage is not None
    assert (record.cost_usd, record.graders[0].cost_usd) == (None, None), "the host is not OpenAI's own"


def test_the_first_call_goes_alone_until_its_cost_is_known() -> None:
    budget = Budget(1.0)
    most = begun = 0

    async def call() -> None:
        nonlocal most, begun
        await budget.turn(DRAW)
        try:
            with budget.call(DRAW):
                begun += 1
                most = max(most, begun if not budget.spent else 0)
                await asyncio.sleep(0)
                budget.add(DRAW, 0.2)
        except BudgetError:
            return

    async def all_at_once() -> None:
        await asyncio.gather(*(call() for _ in range(64)))

    asyncio.run(all_at_once())
    assert most == 1
    assert budget.spent == pytest.approx(1.0)


def test_a_first_call_that_fails_lets_the_next_one_go() -> None:
    budget = Budget(1.0)
    done: list[int] = []

    async def call(number: int) -> None:
        await budget.turn(DRAW)
        with budget.call(DRAW):
            await asyncio.sleep(0)
            done.append(number)  # without a cost: it failed

    async def all_at_once() -> None:
        await asyncio.gather(*(call(number) for number in range(3)))

    asyncio.run(all_at_once())
    assert sorted(done) == [0, 1, 2]
