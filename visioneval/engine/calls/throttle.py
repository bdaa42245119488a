"""Rate limits, waits and retries of provider calls.

Every model has one concurrency limiter for generations and one for judgements, so that the two overlap. A 429 halves
the number of concurrent calls and pauses all calls of the limiter; each success raises the number again. A call that
waits for its next attempt occupies no slot.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Literal, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_random_exponential

from visioneval.errors import LONGEST_RETRY_AFTER_S, ClosingError, ProviderError
from visioneval.suite.entries.limits import MAX_ATTEMPTS, TIMEOUT_S, Limits

T = TypeVar("T")
Kind = Literal["generate", "judge"]
Admission = Callable[[], AbstractAsyncContextManager[object]]
BACKOFF_S = 1.0
LONGEST_BACKOFF_S = 60.0
LONGEST_WAIT_S = 600.0
"""If a provider asks to wait longer than this, the call fails; the user can resume the run later."""
BURST_S = 6.0
"""The burst that a per-minute limit allows at once, in seconds of that limit."""


@dataclass(frozen=True, slots=True)
class RateLimitKey:
    """The limits that apply to a call. ``model`` is ``None`` for a provider without models."""

    provider: str
    model: str | None
    kind: Kind

    def __str__(self) -> str:
        return f"{self.provider}:{self.model}" if self.model else self.provider


class ConcurrencyLimiter:
    """Limits concurrent calls in order of arrival: fewer after a 429, more again with each success."""

    def __init__(self, max_calls: int) -> None:
        self._max_calls = max_calls
        self._allowed = float(max_calls)
        self._running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._opens_at = 0.0
        self._consecutive_limits = 0
        self._slowed_at = 0.0
        self._closed = False

    @property
    def waiting(self) -> int:
        """The number of waiting calls."""
        return len(self._waiting)

    @property
    def seconds_until_open(self) -> float:
        """Seconds until the limiter admits calls again; 0 if it is open."""
        return max(0.0, self._opens_at - monotonic())

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Waits for a slot, and releases it afterwards."""
        await self._enter()
        try:
            yield
        finally:
            self._running -= 1
            self._admit()

    async def _enter(self) -> None:
        if self._closed:
            raise ClosingError("the run is being stopped")
        if self.seconds_until_open > LONGEST_WAIT_S:
            raise self.wait_error()
        if not self._waiting and self._is_open():
            self._running += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                with contextlib.suppress(ValueError):  # already removed from the queue
                    self._waiting.remove(turn)
            elif not turn.exception():  # admitted and cancelled at the same time
                self._running -= 1
                self._admit()
            raise

    def close(self) -> None:
        """Admits no more calls: waiting calls raise ``ClosingError``."""
        self._closed = True
        self._reject_waiting(lambda: ClosingError("the run is being stopped"))

    def _reject_waiting(self, make_error: Callable[[], Exception]) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(make_error())

    def wait_error(self) -> ProviderError:
        """The error for a pause that is longer than any call may wait."""
        message = (
            f"the provider asks for a wait of {_duration_text(self.seconds_until_open)}: resume the run after that"
        )
        return ProviderError(message, kind="rate_limit", retry_after=self.seconds_until_open)

    def _is_open(self) -> bool:
        return self._running < int(self._allowed) and monotonic() >= self._opens_at

    def _admit(self) -> None:
        while self._waiting and self._is_open():
            turn = self._waiting.popleft()
            if not turn.done():
                self._running += 1
                turn.set_result(None)

    def succeeded(self) -> None:
        """Counts a successful call: after as many successes as the current limit, the limit rises by one."""
        self._consecutive_limits = 0
        self._allowed = min(float(self._max_calls), self._allowed + 1 / self._allowed)

    def slow_down(self, started: float, retry_after: float | None) -> None:
        """A call that began at ``started`` got a 429: halves the limit and pauses all calls.

        Calls that were already in flight do not halve it again, and extend the pause only if they ask for more time.
        """
        now = monotonic()
        if started >= self._slowed_at:
            self._slowed_at = now
            self._consecutive_limits += 1
            self._allowed = max(1.0, self._allowed / 2)
        backoff = min(LONGEST_BACKOFF_S, BACKOFF_S * 2 ** (self._consecutive_limits - 1)) * random.uniform(0.5, 1)  # noqa: S311
        opens = now + (backoff if retry_after is None else retry_after)
        if opens > self._opens_at and (retry_after is not None or started >= self._opens_at):
            self._opens_at = opens
            if self.seconds_until_open > LONGEST_WAIT_S:
                self._reject_waiting(self.wait_error)
            else:
                self._schedule_opening()

    def _schedule_opening(self) -> None:
        """Admits waiting calls once the pause ends. Reschedules itself because a timer may fire slightly early."""
        if self.seconds_until_open:
            asyncio.get_running_loop().call_later(self.seconds_until_open, self._schedule_opening)
        else:
            self._admit()


class CallRate:
    """A per-minute limit, spread evenly after a short burst (generic cell rate algorithm)."""

    def __init__(self, per_minute: float) -> None:
        self._interval_s = 60.0 / per_minute
        self._next_at = 0.0

    def turn(self, count: int) -> float:
        """Reserves the next turn for ``count`` units. Returns the seconds until that turn."""
        now = monotonic()
        begins = max(self._next_at, now - BURST_S)
        self._next_at = begins + count * self._interval_s
        return max(0.0, begins - now)


@dataclass(slots=True)
class Tries:
    """The number of attempts of a call."""

    count: int = 0


@dataclass(slots=True)
class Throttle:
    """The limiters and rates of a run. ``limits`` are the suite's; ``max_concurrency`` is the default."""

    limits: Mapping[str, Limits]
    max_concurrency: int
    gates: dict[tuple[str, str | None, Kind], ConcurrencyLimiter] = field(default_factory=dict)
    rates: dict[tuple[str, str], CallRate] = field(default_factory=dict)
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once no new generation may start."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once no new call of any kind may start."""

    async def call(
        self,
        limit_key: RateLimitKey,
        work: Callable[[], Awaitable[T]],
        *,
        images: int = 0,
        tries: Tries | None = None,
        limits_itself: bool = False,
        admission: Admission = nullcontext,
    ) -> T:
        """Makes a call when its turn comes, and retries it if that may help. ``limits_itself``: it has its own timeout.

        Enters ``admission`` around each attempt, after the wait for a turn and outside the timeout.

        Raises the ``ProviderError`` of the last attempt, and ``ClosingError``.
        """
        tries = tries or Tries()
        timeout_s = self._setting(limit_key, "timeout_s") or (None if limits_itself else TIMEOUT_S)
        retrying = AsyncRetrying(
            stop=stop_after_attempt(int(self._setting(limit_key, "max_attempts") or MAX_ATTEMPTS)),
            wait=_retry_wait,
            retry=retry_if_exception(_is_retryable),
            sleep=partial(self._sleep, limit_key.kind),
            reraise=True,
        )
        async for attempt in retrying:
            with attempt:
                tries.count += 1
                return await self._attempt(limit_key, work, timeout_s, images, admission)
        raise AssertionError("tenacity gives up by raising")

    async def _attempt(
        self,
        limit_key: RateLimitKey,
        work: Callable[[], Awaitable[T]],
        timeout_s: float | None,
        images: int,
        admission: Admission,
    ) -> T:
        async with AsyncExitStack() as stack:
            model_gate = self.gate(limit_key)
            for name, gate in ((str(limit_key), model_gate), (limit_key.provider, self._shared(limit_key))):
                if gate is not None:
                    await stack.enter_async_context(gate.slot())
                    await self._wait_for_rate(limit_key.kind, name, images)
            await stack.enter_async_context(admission())
            await self._check_open(limit_key.kind, model_gate)
            started = monotonic()
            limit = asyncio.timeout(timeout_s)
            try:
                async with limit:
                    answer = await work()
            except TimeoutError as error:
                message = f"no answer within {timeout_s:g} s" if limit.expired() else f"TimeoutError: {error}"
                raise ProviderError(message, kind="transient", may_be_billed=True) from None
            except ProviderError as error:
                if error.kind == "rate_limit":
                    model_gate.slow_down(started, error.retry_after)
                elif error.kind == "auth":
                    self.shut()  # before the slot is released, so that no other call starts
                if _wait_is_too_long(error):
                    raise _with_wait(error) from error.__cause__
                raise
            model_gate.succeeded()
            return answer

    def _setting(self, limit_key: RateLimitKey, name: str) -> float | None:
        """A limit of the model, or else of the provider."""
        settings = (getattr(self.limits.get(entry), name, None) for entry in (str(limit_key), limit_key.provider))
        return next((value for value in settings if value is not None), None)

    def gate(self, limit_key: RateLimitKey) -> ConcurrencyLimiter:
        """The limiter of a model's generations or judgements."""
        return self._gate((limit_key.provider, limit_key.model or "", limit_key.kind), self.max_calls(limit_key))

    def max_calls(self, limit_key: RateLimitKey) -> int:
        """The maximum of concurrent calls of a model."""
        return int(self._setting(limit_key, "max_concurrency") or self.max_concurrency)

    def _shared(self, limit_key: RateLimitKey) -> ConcurrencyLimiter | None:
        """The limiter that all models of a provider share, if the suite limits the provider."""
        limits = self.limits.get(limit_key.provider)
        if limits is None or limit_key.model is None:
            return None
        return self._gate((limit_key.provider, None, limit_key.kind), limits.max_concurrency or self.max_concurrency)

    def _gate(self, key: tuple[str, str | None, Kind], max_calls: int) -> ConcurrencyLimiter:
        if key not in self.gates:
            self.gates[key] = ConcurrencyLimiter(max_calls)
            if self._event(key[2]).is_set():
                self.gates[key].close()
        return self.gates[key]

    def close(self) -> None:
        """Starts no more generations. Existing outputs are still judged."""
        self.closed.set()
        for (_, _, kind), gate in self.gates.items():
            if kind == "generate":
                gate.close()

    def shut(self) -> None:
        """Starts no more calls of any kind: calls that wait for a turn or a retry raise ``ClosingError``."""
        self.ended.set()
        self.closed.set()
        for gate in self.gates.values():
            gate.close()

    def _event(self, kind: Kind) -> asyncio.Event:
        """The event that stops new calls of a kind."""
        return self.closed if kind == "generate" else self.ended

    async def _sleep(self, kind: Kind, seconds: float) -> None:
        """Waits, but returns early if the run is being stopped."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._event(kind).wait(), seconds)

    async def _check_open(self, kind: Kind, gate: ConcurrencyLimiter) -> None:
        """Checks again after the wait for a turn, as other calls may have closed the limiter meanwhile."""
        while gate.seconds_until_open and not self._event(kind).is_set():
            if gate.seconds_until_open > LONGEST_WAIT_S:
                raise gate.wait_error()
            await self._sleep(kind, gate.seconds_until_open)
        if self._event(kind).is_set():
            raise ClosingError("the run is being stopped")

    async def _wait_for_rate(self, kind: Kind, name: str, images: int) -> None:
        limits = self.limits.get(name)
        if limits is None:
            return
        for what, per_minute, count in (
            ("requests", limits.requests_per_minute, 1),
            ("images", limits.images_per_minute, images),
        ):
            if per_minute and count:
                await self._sleep(kind, self.rates.setdefault((name, what), CallRate(per_minute)).turn(count))

    def waiting(self) -> list[str]:
        """Status lines about waiting calls, for the terminal."""
        if self.ended.is_set():
            return ["stopping: waiting for the calls in flight (interrupt to stop now)"]
        return [
            f"{RateLimitKey(*key)}: {gate.waiting} waiting {_duration_text(gate.seconds_until_open)} (rate limit)"
            for key, gate in self.gates.items()
            if gate.seconds_until_open
        ]


def _is_retryable(error: BaseException) -> bool:
    """Whether a retry may succeed."""
    return isinstance(error, ProviderError) and error.kind in _RETRYABLE and not _wait_is_too_long(error)


_RETRYABLE = ("rate_limit", "transient")


def _wait_is_too_long(error: ProviderError) -> bool:
    return error.kind in _RETRYABLE and (error.retry_after or 0) > LONGEST_WAIT_S


def _with_wait(error: ProviderError) -> ProviderError:
    """The same error, with the reason why there is no retry."""
    message = (
        f"{error} (the provider asks for a wait of {_duration_text(error.retry_after or 0)}: resume the run after that)"
    )
    return ProviderError(message, kind=error.kind, retry_after=error.retry_after)


def _duration_text(seconds: float) -> str:
    """A short text for a duration."""
    if seconds >= LONGEST_RETRY_AFTER_S - 60:  # some time has passed since
        return f"{LONGEST_RETRY_AFTER_S / 86_400:.0f} days or more"
    if seconds >= 2 * 86_400:
        return f"{seconds / 86_400:.0f} days"
    return f"{seconds / 3600:.0f} h" if seconds >= 7200 else f"{seconds:.0f} s"


def _retry_wait(state: RetryCallState) -> float:
    """Seconds before the next attempt; 0 after a 429, because the limiter already pauses all calls."""
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, ProviderError) and error.kind == "rate_limit":
        return 0.0
    retry_after = error.retry_after if isinstance(error, ProviderError) else None
    return max(retry_after or 0.0, wait_random_exponential(multiplier=BACKOFF_S, max=LONGEST_BACKOFF_S)(state))
