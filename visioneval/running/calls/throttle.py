"""Rate limits, waits and retries of provider calls.

Every model has one concurrency limiter for generations and one for judgements, so that the two overlap. A 429 halves
the number of concurrent calls and pauses all calls of the limiter; each success raises the number again. A call that
waits for its next attempt occupies no slot.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass, field
from time import monotonic
from typing import Literal, Protocol, TypeVar, get_args

from visioneval.errors import LONGEST_RETRY_AFTER_S, STOPPING, ClosingError, ProviderError, count_of
from visioneval.running.keys import Kind, RateLimitKey
from visioneval.suite.entries.providers import MAX_ATTEMPTS, TIMEOUT_S, Limits
from visioneval.threads import waiting, working

BACKOFF_S = 1.0
LONGEST_BACKOFF_S = 60.0
_RATE_LIMIT_FACTOR = 5
"""A 429 backs off for longer than other failures: most limits are per minute, which the attempts of a call outlast."""
_MAX_DOUBLINGS = 10
LONGEST_WAIT_S = 600.0
"""If a provider asks to wait longer than this, the call fails; the user can resume the run later."""
BURST_S = 6.0
"""The burst that a per-minute limit allows at once, in seconds of that limit."""


class ConcurrencyLimiter:
    """Limits concurrent calls in order of arrival: fewer after a 429, more again with each success.

    A call runs inside ``async with`` of its limiter.
    """

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
    def allowed(self) -> int:
        """The number of calls that may run at once now."""
        return int(self._allowed)

    @property
    def seconds_until_open(self) -> float:
        """Seconds until the limiter admits calls again; 0 if it is open."""
        return max(0.0, self._opens_at - monotonic())

    async def __aenter__(self) -> None:
        """Waits for a slot."""
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

    async def __aexit__(self, *_: object) -> None:
        self._running -= 1
        self._admit()

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
        message = f"the provider asks for a wait of {duration_text(self.seconds_until_open)}: resume the run after that"
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

        Calls that were already in flight do not halve it again, and extend the pause only if they ask for more time. A
        server whose requested wait did not help is given at least as much time as one that requests none.
        """
        now, wait = monotonic(), retry_after
        if started >= self._slowed_at:
            self._slowed_at = now
            self._consecutive_limits += 1
            self._allowed = max(1.0, self._allowed / 2)
            if self._consecutive_limits > 1 and retry_after is not None:
                wait = max(retry_after, self._backoff())
        opens = now + (self._backoff() if wait is None else wait)
        if opens > self._opens_at and (retry_after is not None or started >= self._opens_at):
            self._opens_at = opens
            if self.seconds_until_open > LONGEST_WAIT_S:
                self._reject_waiting(self.wait_error)
            else:
                self._schedule_opening()

    def _backoff(self) -> float:
        doublings = min(_MAX_DOUBLINGS, self._consecutive_limits - 1)
        longest = min(LONGEST_BACKOFF_S, _RATE_LIMIT_FACTOR * BACKOFF_S * float(2**doublings))
        return longest * random.uniform(0.5, 1)  # noqa: S311

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


def duration_text(seconds: float) -> str:
    """A short text for a duration."""
    if seconds >= LONGEST_RETRY_AFTER_S - 60:  # some time has passed since
        return f"{LONGEST_RETRY_AFTER_S / 86_400:.0f} days or more"
    if seconds >= 2 * 86_400:
        return f"{seconds / 86_400:.0f} days"
    return f"{seconds / 3600:.0f} h" if seconds >= 7200 else f"{seconds:.0f} s"


Stage = Literal[
    "running",
    "operation",
    "slot",
    "requests",
    "images",
    "provider slot",
    "provider requests",
    "provider images",
    "budget",
    "retry",
]
"""``operation``: of the running calls, those that poll an operation. ``slot``, ``requests`` and ``images`` wait for a
limit of their model, or for one that all models of its provider share."""
WAITS: tuple[Stage, ...] = get_args(Stage)[2:]


@dataclass(slots=True)
class CallCounts:
    """The calls of a run that have not ended, by key and stage."""

    counts: Counter[tuple[RateLimitKey, Stage]] = field(default_factory=Counter)

    @contextlib.contextmanager
    def at(self, limit_key: RateLimitKey, stage: Stage) -> Iterator[None]:
        """A context in which a call counts as being at this stage."""
        self.counts[limit_key, stage] += 1
        try:
            yield
        finally:
            self.counts[limit_key, stage] -= 1

    @property
    def running(self) -> int:
        """How many calls run, of all keys."""
        return sum(count for (_, stage), count in self.counts.items() if stage == "running")

    def keys(self) -> list[RateLimitKey]:
        """The keys with calls, those with waiting calls first, in the order of their first call."""
        keys = {key: None for (key, _), count in self.counts.items() if count}
        return sorted(keys, key=lambda key: not any(self.counts[key, stage] for stage in WAITS))

    def running_text(self, limit_key: RateLimitKey) -> str:
        """``3 generating``; empty if no call runs."""
        operations = self.counts[limit_key, "operation"]
        others = self.counts[limit_key, "running"] - operations
        verb = "generating" if limit_key.kind == "generate" else "judging"
        parts = [f"{count_of(operations, 'video')} in progress"] if operations else []
        return ", ".join([*parts, f"{others} {verb}"] if others > 0 else parts)


T = TypeVar("T")
_RETRYABLE = ("rate_limit", "transient")
_MODEL_STAGES: tuple[Stage, ...] = ("slot", "requests", "images")
_PROVIDER_STAGES: tuple[Stage, ...] = ("provider slot", "provider requests", "provider images")
Admission = Callable[[], AbstractAsyncContextManager[object]]


@dataclass(slots=True)
class Tries:
    """The number of attempts of a call."""

    count: int = 0


class CallTurn(Protocol):
    """Where an admitted call reports how it ended, for the calls after it."""

    def succeeded(self) -> None:
        """The provider answered."""

    def slow_down(self, started: float, retry_after: float | None) -> None:
        """A call that began at ``started`` (monotonic) got a 429, which asks for a wait of ``retry_after`` seconds."""


@dataclass(slots=True)
class Throttle:
    """The limiters and rates of a run. ``limits`` are the suite's; ``max_concurrency`` is the default.

    A subclass may get its turns elsewhere, as the workers of a cluster do.
    """

    limits: Mapping[str, Limits]
    max_concurrency: int
    gates: dict[tuple[str, str | None, Kind], ConcurrencyLimiter] = field(default_factory=dict)
    rates: dict[tuple[str, str], CallRate] = field(default_factory=dict)
    counts: CallCounts = field(default_factory=CallCounts)
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
        is_operation: bool = False,
        admission: Admission = nullcontext,
    ) -> T:
        """Makes a call when its turn comes, and retries it if that may help. ``limits_itself``: it has its own timeout.

        An operation keeps its turn until it has ended, and applies the timeout of its model itself. Enters
        ``admission`` around each attempt, after the wait for a turn and outside the timeout.

        Raises the ``ProviderError`` of the last attempt, and ``ClosingError``.
        """
        tries = tries or Tries()
        timeout_s = None if is_operation else self.timeout_s(limit_key, None if limits_itself else TIMEOUT_S)
        last = tries.count + int(self._setting(limit_key, "max_attempts") or MAX_ATTEMPTS)
        while True:
            tries.count += 1
            try:
                async with AsyncExitStack() as stack:
                    with waiting():
                        turn = await self.turn(stack, limit_key, images, admission)
                    started = monotonic()
                    limit = asyncio.timeout(timeout_s)
                    try:
                        async with limit:
                            with working(), self.counts.at(limit_key, "operation") if is_operation else nullcontext():
                                answer = await work()
                    except TimeoutError as error:
                        message = self._late(limit_key, timeout_s) if limit.expired() else f"TimeoutError: {error}"
                        raise ProviderError(message, kind="transient", may_be_billed=True) from None
                    except ProviderError as error:
                        if error.kind == "rate_limit":
                            turn.slow_down(started, error.retry_after)
                        elif error.kind in STOPPING:
                            self.shut()  # before the slot is released, so that no other call starts
                        if error.kind in _RETRYABLE and _wait_is_too_long(error):
                            wait = duration_text(error.retry_after or 0)
                            message = f"{error} (the provider asks for a wait of {wait}: resume the run after that)"
                            reason = ProviderError(message, kind=error.kind, retry_after=error.retry_after)
                            raise reason from error.__cause__
                        raise
                    turn.succeeded()
                    return answer
            except ProviderError as error:
                if error.kind not in _RETRYABLE or _wait_is_too_long(error) or tries.count >= last:
                    raise
                with waiting(), self.counts.at(limit_key, "retry"):
                    await self._sleep(limit_key.kind, _retry_wait(error, tries.count))

    async def turn(self, stack: AsyncExitStack, limit_key: RateLimitKey, images: int, admission: Admission) -> CallTurn:
        """Waits until a call may start. ``stack`` holds its slots.

        Raises ``ClosingError`` once the run is being stopped, ``ProviderError`` if the provider asks for too long a
        wait, and what ``admission`` raises.
        """
        limiter = self.gate(limit_key)
        limits = (
            (str(limit_key), limiter, _MODEL_STAGES),
            (limit_key.provider, self._shared(limit_key), _PROVIDER_STAGES),
        )
        for name, gate, (slot, *rates) in limits:
            if gate is not None:
                with self.counts.at(limit_key, slot):
                    await stack.enter_async_context(gate)
                for stage, count in zip(rates, (1, images), strict=True) if self.limits else ():
                    await self._wait_for_rate(limit_key, name, stage, count)
        with self.counts.at(limit_key, "budget"):
            await stack.enter_async_context(admission())
        with self.counts.at(limit_key, "slot"):
            await self._check_open(limit_key.kind, limiter)
        stack.enter_context(self.counts.at(limit_key, "running"))
        return limiter

    def timeout_s(self, limit_key: RateLimitKey, default: float | None) -> float | None:
        """The timeout of one call of a model, in seconds; ``None`` if it has none."""
        return self._setting(limit_key, "timeout_s") or default

    def _late(self, limit_key: RateLimitKey, timeout_s: float | None) -> str:
        """The message for a call that took too long: its timeout, and where that is set."""
        for entry in (str(limit_key), limit_key.provider):
            if getattr(self.limits.get(entry), "timeout_s", None) is not None:
                return f"no answer within {timeout_s:g} s, the timeout_s of limits: {entry}"
        return f"no answer within {timeout_s:g} s, the default timeout_s: set it under limits: {limit_key}"

    def _setting(self, limit_key: RateLimitKey, name: str) -> float | None:
        """A limit of the model, or else of the provider."""
        if not self.limits:
            return None
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

    async def _wait_for_rate(self, limit_key: RateLimitKey, name: str, stage: Stage, count: int) -> None:
        per_minute = self._per_minute(limit_key, stage)
        if per_minute and count:
            turn = self.rates.setdefault((name, stage), CallRate(per_minute)).turn(count)
            with self.counts.at(limit_key, stage):
                await self._sleep(limit_key.kind, turn)

    def _per_minute(self, limit_key: RateLimitKey, stage: Stage) -> float | None:
        """The limit per minute that a call at this stage waits for."""
        rate = stage.removeprefix("provider ")
        limits = self.limits.get(str(limit_key) if rate == stage else limit_key.provider)
        return getattr(limits, f"{rate}_per_minute", None)

    def status(self) -> list[str]:
        """A line for each model with calls: how many run, and how many wait for what. Those that wait come first."""
        if self.ended.is_set():
            return ["stopping: waiting for the calls in flight (interrupt to stop now)"]
        paused = [
            RateLimitKey(provider, model or None, kind)
            for (provider, model, kind), gate in self.gates.items()
            if gate.seconds_until_open
        ]
        limit_keys = self.counts.keys()
        limit_keys += [limit_key for limit_key in paused if limit_key not in limit_keys]
        lines = ((limit_key, ", ".join(self._state_of(limit_key))) for limit_key in limit_keys)
        return [f"{limit_key}: {state}" for limit_key, state in lines if state]

    def _state_of(self, limit_key: RateLimitKey) -> Iterator[str]:
        if text := self.counts.running_text(limit_key):
            yield text
        gates = {"slot": self.gate(limit_key), "provider slot": self._shared(limit_key)}
        for stage in WAITS:
            count, gate = self.counts.counts[limit_key, stage], gates.get(stage)
            if gate is not None and gate.seconds_until_open:
                yield f"{count} waiting {duration_text(math.ceil(gate.seconds_until_open))} (rate limit)"
            elif count:
                yield f"{count} waiting {self._reason(limit_key, stage, gate)}"

    def _reason(self, limit_key: RateLimitKey, stage: Stage, gate: ConcurrencyLimiter | None) -> str:
        if gate is not None:
            return f"({gate.allowed} at once)"
        if per_minute := self._per_minute(limit_key, stage):
            rate = stage.removeprefix("provider ")
            return f"({per_minute:g} {rate} per minute{', all models' * (rate != stage)})"
        return "(budget)" if stage == "budget" else "to retry"


def _wait_is_too_long(error: ProviderError) -> bool:
    return (error.retry_after or 0) > LONGEST_WAIT_S


def _retry_wait(error: ProviderError, attempt: int) -> float:
    """Seconds before the next attempt; 0 after a 429, because the limiter already pauses all calls."""
    if error.kind == "rate_limit":
        return 0.0
    backoff = min(LONGEST_BACKOFF_S, BACKOFF_S * 2 ** (attempt - 1))
    return max(error.retry_after or 0.0, random.uniform(0, backoff))  # noqa: S311
