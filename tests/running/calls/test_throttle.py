"""Tests of rate limits, retries and timeouts of calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import pytest
from concurrency import Clock, settle

from visioneval import BudgetError, ProviderError
from visioneval.errors import ClosingError
from visioneval.running.calls import throttle
from visioneval.running.calls.throttle import Throttle, Tries
from visioneval.running.keys import RateLimitKey
from visioneval.suite.entries.providers import MAX_ATTEMPTS, Limits

GENERATE = RateLimitKey("openai", "painter", "generate")
OTHER = RateLimitKey("openai", "sketcher", "generate")
JUDGE = RateLimitKey("openai", "painter", "judge")
CUSTOM = RateLimitKey("mine:Generate", None, "generate")


def throttle_with(limits: Mapping[str, Any] | None = None, most: int = 8) -> Throttle:
    return Throttle({name: Limits(**message) for name, message in (limits or {}).items()}, most)


def failing(*errors: BaseException | None) -> Callable[[], Awaitable[str]]:
    """Work that raises these errors in order, and then succeeds."""
    left = list(errors)

    async def work() -> str:
        error = left.pop(0) if left else None
        if error is not None:
            raise error
        return "done"

    return work


def provider_error(kind: Any, retry_after: float | None = None) -> ProviderError:
    return ProviderError(f"it is {kind}", kind=kind, retry_after=retry_after)


class Jobs:
    """Work that waits for release, and counts concurrent calls."""

    def __init__(self) -> None:
        self.now: list[str] = []
        self.started: list[str] = []
        self.most = 0
        self.releases: dict[str, asyncio.Event] = {}

    def job(self, name: str) -> Callable[[], Awaitable[str]]:
        self.releases[name] = asyncio.Event()

        async def run() -> str:
            self.started.append(name)
            self.now.append(name)
            self.most = max(self.most, len(self.now))
            await self.releases[name].wait()
            self.now.remove(name)
            return name

        return run

    async def empty(self, *calls: asyncio.Task[str]) -> None:
        while not all(call.done() for call in calls):
            for name in list(self.now):
                self.releases[name].set()
            await settle()


@pytest.mark.parametrize("kind", ["rate_limit", "transient"])
async def test_transient_errors_are_retried(kind: str) -> None:
    tries = Tries()
    assert (
        await throttle_with().call(GENERATE, failing(provider_error(kind), provider_error(kind)), tries=tries) == "done"
    )
    assert tries.count == 3


@pytest.mark.parametrize(
    "error",
    [
        *(provider_error(kind) for kind in ("auth", "quota", "invalid", "refused", "bad_image", "offline")),
        BudgetError("no money"),
        RuntimeError("a slip of ours"),
        OSError("disk"),
    ],
    ids=repr,
)
async def test_permanent_errors_are_not_retried(error: Exception) -> None:
    tries = Tries()
    with pytest.raises(type(error)) as caught:
        await throttle_with().call(GENERATE, failing(error), tries=tries)
    assert caught.value is error
    assert tries.count == 1


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        ({}, MAX_ATTEMPTS),
        ({"openai": {"max_attempts": 2}}, 2),
        ({"openai": {"max_attempts": 2}, "openai:painter": {"max_attempts": 4}}, 4),
        ({"openai:sketcher": {"max_attempts": 2}}, MAX_ATTEMPTS),
    ],
)
@pytest.mark.parametrize("kind", ["transient", "rate_limit"])
async def test_attempts_are_limited_and_last_error_is_reported(limits: Mapping[str, Any], most: int, kind: str) -> None:
    tries = Tries()
    errors = [provider_error(kind) for _ in range(20)]
    with pytest.raises(ProviderError) as caught:
        await throttle_with(limits).call(GENERATE, failing(*errors), tries=tries)
    assert tries.count == most
    assert caught.value is errors[most - 1]


@pytest.mark.parametrize("kind", ["transient", "rate_limit"])
async def test_too_long_retry_after_fails_the_call(kind: str) -> None:
    tries, throttled = Tries(), throttle_with()
    with pytest.raises(ProviderError, match="it is"):
        await throttled.call(GENERATE, failing(provider_error(kind, 601)), tries=tries)
    assert tries.count == 1
    if kind == "rate_limit":  # for the rest of the model's calls too, without a word to the provider
        work = failing(RuntimeError("called"))
        with pytest.raises(ProviderError, match="asks for a wait"):
            await throttled.call(GENERATE, work)
        assert await throttled.call(OTHER, failing()) == "done"


async def test_timeout_is_retried() -> None:
    tries = Tries()
    waits = iter([60.0, 0.0])

    async def work() -> str:
        await asyncio.sleep(next(waits))
        return "done"

    assert await throttle_with({"openai": {"timeout_s": 0.01}}).call(GENERATE, work, tries=tries) == "done"
    assert tries.count == 2
    with pytest.raises(ProviderError, match=r"no answer within 0\.01 s, the timeout_s of limits: openai$") as caught:
        await throttle_with({"openai": {"timeout_s": 0.01, "max_attempts": 1}}).call(
            GENERATE, lambda: asyncio.sleep(60, "")
        )
    assert caught.value.kind == "transient"


async def test_a_late_answer_names_the_limit_that_it_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("visioneval.running.calls.throttle.TIMEOUT_S", 0.01)

    async def late(limits: dict[str, Any]) -> str:
        with pytest.raises(ProviderError) as caught:
            await throttle_with(limits).call(GENERATE, lambda: asyncio.sleep(60, ""))
        return str(caught.value)

    model, once = str(GENERATE), {"max_attempts": 1}
    assert await late({model: once | {"timeout_s": 0.02}, "openai": {"timeout_s": 9}}) == (
        f"no answer within 0.02 s, the timeout_s of limits: {model}"
    )
    assert await late({"openai": once | {"timeout_s": 0.03}}) == (
        "no answer within 0.03 s, the timeout_s of limits: openai"
    )
    assert await late({"openai": once}) == (
        f"no answer within 0.01 s, the default timeout_s: set it under limits: {model}"
    )


async def test_an_operation_applies_the_timeout_itself_and_keeps_its_turn() -> None:
    throttled = throttle_with({"openai": {"timeout_s": 0.01, "max_concurrency": 1}})
    begun, end = asyncio.Event(), asyncio.Event()

    async def operation() -> str:
        begun.set()
        await end.wait()
        return "a video"

    first, second = (asyncio.ensure_future(throttled.call(GENERATE, operation, is_operation=True)) for _ in range(2))
    await begun.wait()
    await asyncio.sleep(0.03)
    assert [first.done(), second.done()] == [False, False]
    assert throttled.status() == ["openai:painter: 1 video in progress, 1 waiting (1 at once)"]
    end.set()
    assert await asyncio.gather(first, second) == ["a video", "a video"]
    assert throttled.status() == []


async def test_status_says_what_runs_and_what_waits_for_what() -> None:
    throttled = throttle_with(
        {"openai:painter": {"max_concurrency": 2}, "openai:sketcher": {"requests_per_minute": 0.1}}
    )
    jobs = Jobs()
    painters = [asyncio.create_task(throttled.call(GENERATE, jobs.job(str(at)))) for at in range(5)]
    judge = asyncio.create_task(throttled.call(JUDGE, jobs.job("judge")))
    sketchers = [asyncio.create_task(throttled.call(OTHER, jobs.job(f"s{at}"))) for at in range(2)]
    await settle()
    assert throttled.status() == [
        "openai:painter: 2 generating, 3 waiting (2 at once)",
        "openai:sketcher: 1 generating, 1 waiting (0.1 requests per minute)",
        "openai:painter: 1 judging",
    ]
    sketchers[1].cancel()
    await jobs.empty(*painters, judge, sketchers[0])
    assert throttled.status() == []


async def test_status_names_the_limit_that_all_models_share() -> None:
    limits = {"openai": {"requests_per_minute": 0.1}, "openai:painter": {"requests_per_minute": 600}}
    throttled, jobs = throttle_with(limits), Jobs()
    calls = [asyncio.create_task(throttled.call(GENERATE, jobs.job(str(at)))) for at in range(2)]
    await settle()
    assert throttled.status() == ["openai:painter: 1 generating, 1 waiting (0.1 requests per minute, all models)"]
    calls[1].cancel()
    await jobs.empty(calls[0])


async def test_status_of_calls_that_wait_for_the_budget_or_a_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "BACKOFF_S", 500.0)
    monkeypatch.setattr("random.uniform", lambda low, high: high)

    @asynccontextmanager
    async def admission() -> AsyncIterator[None]:
        await asyncio.sleep(60)
        yield

    throttled = throttle_with()
    failed = asyncio.create_task(throttled.call(GENERATE, failing(provider_error("transient", 500))))
    unpaid = asyncio.create_task(throttled.call(JUDGE, failing(), admission=admission))
    await settle()
    assert throttled.status() == ["openai:painter: 1 waiting to retry", "openai:painter: 1 waiting (budget)"]
    for task in (failed, unpaid):
        task.cancel()
    await asyncio.gather(failed, unpaid, return_exceptions=True)
    assert throttled.status() == []


async def test_timeout_error_of_provider_is_reported_as_such() -> None:
    for limits_itself in (True, False):
        with pytest.raises(ProviderError, match="TimeoutError: the disk sleeps") as caught:
            await throttle_with({"openai": {"max_attempts": 1}}).call(
                GENERATE, failing(TimeoutError("the disk sleeps")), limits_itself=limits_itself
            )
        assert caught.value.kind == "transient"


async def test_outer_timeout_is_not_converted() -> None:
    tries = Tries()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await throttle_with().call(GENERATE, lambda: asyncio.sleep(60, ""), tries=tries)
    assert tries.count == 1


async def test_waiting_for_retry_occupies_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "BACKOFF_S", 500.0)
    monkeypatch.setattr("random.uniform", lambda low, high: high)

    throttled = throttle_with(most=1)
    slow = asyncio.create_task(throttled.call(GENERATE, failing(provider_error("transient", 500))))
    await settle()
    assert await throttled.call(GENERATE, failing()) == "done"
    assert not slow.done()
    slow.cancel()


async def test_models_do_not_block_each_other() -> None:
    throttled, jobs = throttle_with(most=1), Jobs()
    first = asyncio.create_task(throttled.call(GENERATE, jobs.job("first")))
    second = asyncio.create_task(throttled.call(GENERATE, jobs.job("second")))
    await settle()
    for lane in (OTHER, JUDGE, CUSTOM):
        assert await throttled.call(lane, failing()) == "done"
    assert jobs.now == ["first"]
    throttled.gate(OTHER).slow_down(monotonic(), 500)
    assert throttled.status()[-1:] == ["openai:sketcher: 0 waiting 500 s (rate limit)"]
    await jobs.empty(first, second)
    assert (await first, await second, jobs.most) == ("first", "second", 1)


@pytest.mark.parametrize(
    ("limits", "lanes", "most"),
    [
        ({}, [GENERATE], 8),
        ({"openai": {"max_concurrency": 3}}, [GENERATE], 3),
        ({"openai": {"max_concurrency": 3}}, [GENERATE, OTHER], 3),
        ({"openai": {"max_concurrency": 3}}, [GENERATE, JUDGE], 6),
        ({"openai:painter": {"max_concurrency": 2}}, [GENERATE, OTHER], 10),
        ({"openai:painter": {"max_concurrency": 2}, "openai": {"max_concurrency": 5}}, [GENERATE, OTHER], 5),
        ({"openai": {"timeout_s": 60}}, [GENERATE], 8),
        ({"mine:Generate": {"max_concurrency": 4}}, [CUSTOM], 4),
        ({"gemini": {"max_concurrency": 1}}, [GENERATE], 8),
    ],
)
async def test_limits_apply_per_model_or_per_provider(
    limits: Mapping[str, Any], lanes: list[RateLimitKey], most: int
) -> None:
    throttled, jobs = throttle_with(limits), Jobs()
    calls = [
        asyncio.create_task(throttled.call(lane, jobs.job(f"{at} {number}")))
        for number in range(20)
        for at, lane in enumerate(lanes)
    ]
    await settle()
    await jobs.empty(*calls)
    assert jobs.most == most
    assert len(jobs.started) == 20 * len(lanes)


async def test_rate_limit_pauses_model_until_success() -> None:
    throttled, jobs = throttle_with(most=4), Jobs()
    assert await throttled.call(GENERATE, failing(provider_error("rate_limit", 0.001))) == "done"
    calls = [asyncio.create_task(throttled.call(GENERATE, jobs.job(str(at)))) for at in range(6)]
    await settle()
    assert len(jobs.now) == 2, "half of four: the one success is not yet as many as are allowed"
    await jobs.empty(*calls)
    assert throttled.gate(GENERATE).seconds_until_open == 0


def per_minute(waits: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Records waits for a turn without waiting."""

    async def record_wait(_: Throttle, kind: str, seconds: float) -> None:
        waits.append(round(seconds))

    monkeypatch.setattr(Throttle, "_sleep", record_wait)
    monkeypatch.setattr(throttle, "monotonic", lambda: 1000.0)


@pytest.mark.parametrize(
    ("limits", "images", "expected"),
    [
        ({"openai:painter": {"requests_per_minute": 1}}, 1, [0, 54, 114]),
        ({"openai": {"requests_per_minute": 1}}, 1, [0, 54, 114]),
        ({"openai": {"images_per_minute": 2}}, 2, [0, 54, 114]),
        ({"openai": {"images_per_minute": 2}}, 0, []),
        ({"openai:painter": {"requests_per_minute": 60}, "openai": {"images_per_minute": 2}}, 1, [0, 0, 0, 24, 0, 54]),
        ({"openai:sketcher": {"requests_per_minute": 1}}, 1, []),
    ],
)
async def test_requests_and_images_per_minute(
    limits: Mapping[str, Any], images: int, expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    per_minute(waits, monkeypatch)

    throttled = throttle_with(limits)
    for _ in range(3):
        await throttled.call(GENERATE, failing(), images=images)
    assert waits == expected


async def test_stopped_run_starts_no_generation_but_still_judges() -> None:
    throttled, jobs = throttle_with(most=1), Jobs()
    running = asyncio.create_task(throttled.call(GENERATE, jobs.job("running")))
    waiting = asyncio.create_task(throttled.call(GENERATE, jobs.job("waiting")))
    await settle()
    throttled.close()
    for lane in (GENERATE, OTHER):
        with pytest.raises(ClosingError):
            await throttled.call(lane, failing())
    with pytest.raises(ClosingError):
        await waiting
    assert await throttled.call(JUDGE, failing(provider_error("transient"), provider_error("transient"))) == "done"
    await jobs.empty(running)
    assert (await running, jobs.started) == ("running", ["running"])


@pytest.mark.parametrize("kind", ["auth", "quota"])
async def test_after_a_refused_key_no_waiting_call_starts(kind: str) -> None:
    throttled = throttle_with(most=1)
    calls = [throttled.call(GENERATE, failing(error)) for error in (provider_error(kind), None, None)]
    refused, *waiting = await asyncio.gather(*calls, return_exceptions=True)
    assert str(refused) == f"it is {kind}"
    assert [type(error) for error in waiting] == [ClosingError, ClosingError]
    with pytest.raises(ClosingError):
        await throttled.call(JUDGE, failing())


async def test_stop_abandons_generation_waiting_for_retry() -> None:
    throttled = throttle_with()
    call = asyncio.create_task(throttled.call(GENERATE, failing(provider_error("transient", 500))))
    await settle()
    throttled.close()
    with pytest.raises(ClosingError):
        await call


async def test_stop_completes_a_judgement_waiting_for_retry() -> None:
    throttled = throttle_with()
    throttled.close()
    call = asyncio.create_task(throttled.call(JUDGE, failing(provider_error("transient", 500))))
    await settle()
    assert not call.done()
    call.cancel()


async def test_stop_abandons_generation_waiting_for_turn() -> None:
    throttled = throttle_with({"openai": {"requests_per_minute": 0.1}})
    assert await throttled.call(GENERATE, failing()) == "done"
    jobs = Jobs()
    calls = [asyncio.create_task(throttled.call(GENERATE, jobs.job(str(at)))) for at in range(3)]
    await settle()
    throttled.close()
    message = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(item) for item in message] == [ClosingError] * 3
    assert jobs.started == []


async def test_rate_limit_pauses_calls_waiting_for_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    throttled = throttle_with({"openai": {"requests_per_minute": 1}})
    waits: list[float] = []

    async def record_wait(_: Throttle, kind: str, seconds: float) -> None:
        waits.append(seconds)
        clock.now += seconds
        if seconds == 54:
            throttled.gate(GENERATE).slow_down(clock.now, 300)

    monkeypatch.setattr(Throttle, "_sleep", record_wait)

    assert await throttled.call(GENERATE, failing()) == "done"
    assert await throttled.call(GENERATE, failing()) == "done"
    assert waits == [0, 54, 300]
