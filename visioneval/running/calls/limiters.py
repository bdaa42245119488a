"""Limits of one model: how many calls run at once, and how many start per minute."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Literal, NamedTuple

from visioneval.errors import LONGEST_RETRY_AFTER_S, ClosingError, ProviderError
from visioneval.suite.entries.judges import BaseJudge

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


Kind = Literal["generate", "judge"]


class RateLimitKey(NamedTuple):
    """The limits that apply to a call. ``model`` is ``None`` for a provider without models."""

    provider: str
    model: str | None
    kind: Kind

    def __str__(self) -> str:
        return f"{self.provider}:{self.model}" if self.model else self.provider


def generation_limit_key(provider: str, params: Mapping[str, Any]) -> RateLimitKey:
    """The rate-limit key of a generation."""
    model = params.get("model")
    return RateLimitKey(provider, model if isinstance(model, str) else None, "generate")


def judge_limit_key(config: BaseJudge) -> RateLimitKey:
    """The rate-limit key of a judgement."""
    return RateLimitKey(str(getattr(config, "provider", "")), getattr(config, "model", None), "judge")
