"""How fast providers are called, and what happens when they say no. The one place that limits, waits and retries.

Every model has a limiter for generations and one for judgements, so that the two overlap. A limiter lets so many calls
through at once; a 429 halves that and holds everybody on it back, and each success lets it grow again. A call that
waits for its next try is outside of the gate.
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
from visioneval.suite.limits import MAX_ATTEMPTS, TIMEOUT_S, Limits

T = TypeVar("T")
Kind = Literal["generate", "judge"]
Admission = Callable[[], AbstractAsyncContextManager[object]]
BACKOFF_S = 1.0
LONGEST_BACKOFF_S = 60.0
LONGEST_WAIT_S = 600.0
"""A provider that asks for more time than this has its call given up: resume the run then."""
BURST_S = 6.0
"""How much of a per-minute limit may be used at once, in seconds of it."""


@dataclass(frozen=True, slots=True)
class RateLimitKey:
    """Whose limits a call is under. ``model`` is ``None`` for a provider that has none to name."""

    provider: str
    model: str | None
    kind: Kind

    def __str__(self) -> str:
        return f"{self.provider}:{self.model}" if self.model else self.provider


class ConcurrencyLimiter:
    """So many calls at once, first come, first served; less after a 429, more again with each success."""

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
        """How many calls wait here."""
        return len(self._waiting)

    @property
    def seconds_until_open(self) -> float:
        """Seconds until calls are let through again; 0 where they are."""
        return max(0.0, self._opens_at - monotonic())

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """A place inside."""
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
                with contextlib.suppress(ValueError):  # it was passed over at that very moment
                    self._waiting.remove(turn)
            elif not turn.exception():  # let in at the moment at which it was cancelled
                self._running -= 1
                self._admit()
            raise

    def close(self) -> None:
        """Lets nobody in any more: who waits gets a ``ClosingError``."""
        self._closed = True
        self._reject_waiting(lambda: ClosingError("the run is being stopped"))

    def _reject_waiting(self, make_error: Callable[[], Exception]) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(make_error())

    def wait_error(self) -> ProviderError:
        """Why nobody waits here: it would be for longer than any call may."""
        message = f"the provider asks for {_duration_text(self.seconds_until_open)} without a call: resume the run then"
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
        """A call came back well: after as many as are allowed, one more is."""
        self._consecutive_limits = 0
        self._allowed = min(float(self._max_calls), self._allowed + 1 / self._allowed)

    def slow_down(self, started: float, retry_after: float | None) -> None:
        """A call that began at ``started`` got a 429: half as many from now on, and nobody for a while.

        Calls that were on their way when it closed say nothing new, unless they name a later time.
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
        """Lets in who waits once it opens; a timer may ring early, by as much as the system's clock is coarse."""
        if self.seconds_until_open:
            asyncio.get_running_loop().call_later(self.seconds_until_open, self._schedule_opening)
        else:
            self._admit()


class CallRate:
    """So many a minute, spread evenly after a short burst (the generic cell rate algorithm)."""

    def __init__(self, per_minute: float) -> None:
        self._interval_s = 60.0 / per_minute
        self._next_at = 0.0

    def turn(self, count: int) -> float:
        """Takes the next turn, for ``count`` at once, and tells the seconds until it comes."""
        now = monotonic()
        begins = max(self._next_at, now - BURST_S)
        self._next_at = begins + count * self._interval_s
        return max(0.0, begins - now)


@dataclass(slots=True)
class Tries:
    """How often a call was tried."""

    count: int = 0


@dataclass(slots=True)
class Throttle:
    """The gates and rates of a run. ``limits`` are the suite's; ``max_concurrency`` holds where they name none."""

    limits: Mapping[str, Limits]
    max_concurrency: int
    gates: dict[tuple[str, str | None, Kind], ConcurrencyLimiter] = field(default_factory=dict)
    rates: dict[tuple[str, str], CallRate] = field(default_factory=dict)
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether no generation begins any more."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether no call of any kind begins any more."""

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
        """Does a call, once it is its turn, and again where that may help. ``limits_itself``: it has a time limit.

        ``admission`` is around each try, its wait for a turn behind it, and not under the time limit.

        Raises ``ProviderError``, that of the last try, and ``ClosingError``.
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
                    self.shut()  # before this place in the gate is free: the run ends here
                if _wait_is_too_long(error):
                    raise _with_wait(error) from error.__cause__
                raise
            model_gate.succeeded()
            return answer

    def _setting(self, limit_key: RateLimitKey, name: str) -> float | None:
        """A limit of the model, or else of its provider."""
        settings = (getattr(self.limits.get(entry), name, None) for entry in (str(limit_key), limit_key.provider))
        return next((value for value in settings if value is not None), None)

    def gate(self, limit_key: RateLimitKey) -> ConcurrencyLimiter:
        """The gate of a model's generations or judgements."""
        return self._gate((limit_key.provider, limit_key.model or "", limit_key.kind), self.max_calls(limit_key))

    def max_calls(self, limit_key: RateLimitKey) -> int:
        """How many calls a model may have at once."""
        return int(self._setting(limit_key, "max_concurrency") or self.max_concurrency)

    def _shared(self, limit_key: RateLimitKey) -> ConcurrencyLimiter | None:
        """The gate that all models of a provider share, where the suite limits the provider."""
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
        """Begins no generation any more. What is generated is still judged."""
        self.closed.set()
        for (_, _, kind), gate in self.gates.items():
            if kind == "generate":
                gate.close()

    def shut(self) -> None:
        """Begins no call of any kind any more: who waits for a turn or for another try gets a ``ClosingError``."""
        self.ended.set()
        self.closed.set()
        for gate in self.gates.values():
            gate.close()

    def _event(self, kind: Kind) -> asyncio.Event:
        """What says that no call of a kind begins any more."""
        return self.closed if kind == "generate" else self.ended

    async def _sleep(self, kind: Kind, seconds: float) -> None:
        """Waits; no longer once the run is being stopped, for a call that will not begin."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._event(kind).wait(), seconds)

    async def _check_open(self, kind: Kind, gate: ConcurrencyLimiter) -> None:
        """Whoever came in and then waited for a turn is held back by what became of the others meanwhile."""
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
        """Who waits for what, in words, for the person at the terminal."""
        if self.ended.is_set():
            return ["stopping: waiting for the calls in flight (interrupt to stop now)"]
        return [
            f"{provider}{f':{model}' if model else ''}: {gate.waiting} wait {_duration_text(gate.seconds_until_open)} (rate limit)"
            for (provider, model, _), gate in self.gates.items()
            if gate.seconds_until_open
        ]


def _is_retryable(error: BaseException) -> bool:
    """Whether another try may fare better."""
    return isinstance(error, ProviderError) and error.kind in _RETRYABLE and not _wait_is_too_long(error)


_RETRYABLE = ("rate_limit", "transient")


def _wait_is_too_long(error: ProviderError) -> bool:
    return error.kind in _RETRYABLE and (error.retry_after or 0) > LONGEST_WAIT_S


def _with_wait(error: ProviderError) -> ProviderError:
    """The same error, which says why it is not tried again."""
    message = f"{error} (the provider asks to wait {_duration_text(error.retry_after or 0)}: resume the run then)"
    return ProviderError(message, kind=error.kind, retry_after=error.retry_after)


def _duration_text(seconds: float) -> str:
    """Seconds in words that stay short."""
    if seconds >= LONGEST_RETRY_AFTER_S - 60:  # the clock has gone on since
        return f"{LONGEST_RETRY_AFTER_S / 86_400:.0f} days or more"
    if seconds >= 2 * 86_400:
        return f"{seconds / 86_400:.0f} days"
    return f"{seconds / 3600:.0f} h" if seconds >= 7200 else f"{seconds:.0f} s"


def _retry_wait(state: RetryCallState) -> float:
    """Seconds before the next try. After a 429 the gate makes everybody wait: no wait of its own comes on top."""
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, ProviderError) and error.kind == "rate_limit":
        return 0.0
    retry_after = error.retry_after if isinstance(error, ProviderError) else None
    return max(retry_after or 0.0, wait_random_exponential(multiplier=BACKOFF_S, max=LONGEST_BACKOFF_S)(state))
