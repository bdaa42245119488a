"""What an attempt of a paid call costs of the budget."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable

import pytest

from visioneval import BudgetError, Generation, ProviderError
from visioneval.running.calls.attempts import Budget, CallLog, PaidCall, PricedAttempts
from visioneval.running.calls.prices import CallSize, Prices
from visioneval.running.calls.throttle import Throttle, Tries
from visioneval.running.keys import RateLimitKey
from visioneval.suite.entries.providers import Price

KEY = RateLimitKey("openai", "painter", "generate")
SIZE = CallSize(images=1, input_tokens=1_000_000, max_output_tokens=1_000_000)
MOST = 3.0


def attempts_of(
    budget: Budget, work: Callable[[], Awaitable[Generation]], *, is_paid: bool = False
) -> PricedAttempts[Generation]:
    call = PaidCall(
        limit_key=KEY, key="generate:1", work=work, size=lambda: SIZE, images=1, is_paid=lambda: is_paid, tries=Tries(1)
    )
    return PricedAttempts(
        call, Throttle({}, 8), Prices({"openai": Price(input_per_million=1, output_per_million=2)}), budget, CallLog()
    )


def spent(result: Generation | BaseException, *, is_paid: bool = False) -> float:
    """What a call with this end costs of a budget, at 1 USD per million input tokens and 2 USD per million others."""

    async def work() -> Generation:
        if isinstance(result, BaseException):
            raise result
        return result

    async def scenario() -> float:
        budget = Budget(10.0)
        attempts = attempts_of(budget, work, is_paid=is_paid)
        async with attempts.admission():
            try:
                await attempts.attempt()
            except type(result):
                pass
        return budget.spent

    return asyncio.run(scenario())


USAGE = {"input_tokens": 500_000, "output_tokens": 250_000}


@pytest.mark.parametrize(
    ("result", "cost"),
    [
        (Generation(outputs=(b"",), usage=USAGE), 1.0),
        (Generation(outputs=(b"",), usage=USAGE, cost_usd=0.25), 0.25),
        (Generation(outputs=(b"",)), MOST),
        (Generation(refused="no", usage=USAGE), 1.0),
        (Generation(refused="no"), 0.0),
        (Generation(refused="no", usage={}), 0.0),
        (Generation(refused="no", usage={**USAGE, "output_tokens": -1}), MOST),
        (Generation(outputs=(b"",), usage={**USAGE, "output_tokens": -1}), MOST),
        (Generation(outputs=(b"",), usage={**USAGE, "output_tokens": -1}, cost_usd=0.25), 0.25),
        (ProviderError("no", kind="invalid"), 0.0),
        (ProviderError("no answer", kind="transient", may_be_billed=True), MOST),
        (asyncio.CancelledError(), MOST),
        (ValueError("a bug of the provider's class"), MOST),
    ],
    ids=[
        "usage",
        "stated",
        "unknown",
        "refused with usage",
        "refused",
        "refused and empty",
        "refused and impossible",
        "impossible",
        "impossible but stated",
        "rejected",
        "lost",
        "cut off",
        "broken",
    ],
)
def test_what_an_attempt_costs_of_the_budget(result: Generation | BaseException, cost: float) -> None:
    assert spent(result) == cost


@pytest.mark.parametrize("result", [Generation(outputs=(b"",), usage=USAGE), Generation(outputs=(b"",))])
def test_an_attempt_that_was_paid_before_costs_nothing(result: Generation) -> None:
    assert spent(result, is_paid=True) == 0


@pytest.mark.parametrize("is_made", [True, False])
def test_an_attempt_that_has_ended_does_not_stay_in_memory(*, is_made: bool) -> None:
    """Nor do its question and its images, without a search for cycles: a run makes those seldom."""

    def in_memory() -> int:
        return sum(isinstance(item, PricedAttempts) for item in gc.get_objects())

    gc.disable()
    try:
        before = in_memory()  # errors of other tests, whose tracebacks refer to theirs
        if is_made:
            assert spent(Generation(outputs=(b"",), usage=USAGE)) == 1.0
        else:
            asyncio.run(refused_by_the_budget())
        assert in_memory() == before
    finally:
        gc.enable()


async def refused_by_the_budget() -> None:
    try:
        async with attempts_of(Budget(MOST / 2), lambda: asyncio.sleep(0, Generation())).admission():
            raise AssertionError("the budget is too small for it")
    except BudgetError:
        pass
