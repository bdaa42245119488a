"""The attempts of a call: each is within the budget, runs code of a provider or judge, and is priced and logged."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from inspect import isawaitable, iscoroutinefunction
from pathlib import Path
from time import perf_counter
from typing import Any, Generic, TextIO, TypeVar

from visioneval.errors import BudgetError, ProviderError, StoppedError, UsageError
from visioneval.plugins import describe_user_error
from visioneval.providers.base import CellRef, Generation, GenerationRequest, Judge, Question, Reply
from visioneval.running.calls.prices import CallSize, CostBound, Prices, bound_of, budget_too_small, tokens_of
from visioneval.running.calls.throttle import Throttle, Tries
from visioneval.running.keys import RateLimitKey
from visioneval.running.plan import Call
from visioneval.running.sanitize import usd
from visioneval.threads import Threads


@dataclass(frozen=True, slots=True)
class Claim:
    """The US dollars reserved for one call in flight; ``images`` is the number of images it generates."""

    limit_key: RateLimitKey
    images: int
    usd: float


@dataclass(slots=True)
class Budget:
    """The budget of a run in US dollars, or ``None``. A call in flight reserves the most that it may cost.

    If that amount is only an estimate because the token count is unknown, the first call of a rate-limit key runs
    alone, and later calls reserve the largest cost of a call so far.
    """

    limit_usd: float | None = None
    spent: float = 0.0
    refused: int = 0
    refusal: str | None = None
    """The message of the first call that the budget refused."""
    _reserved: float = 0.0
    _running: dict[RateLimitKey, int] = field(default_factory=lambda: defaultdict(int))
    _largest: dict[RateLimitKey, float] = field(default_factory=dict)
    """The largest cost of a call so far, per generated image if it generates any."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def reserve(self, limit_key: RateLimitKey, images: int, bound: Callable[[], CostBound]) -> Reservation:
        """A context that reserves the cost of one paid call. Calls ``bound`` only if there is a budget."""
        return Reservation(self, limit_key, images, bound)

    async def start(self, limit_key: RateLimitKey, images: int, bound: Callable[[], CostBound]) -> Claim:
        """Reserves the cost of one call. Waits while calls in flight may still leave enough of the budget.

        Raises ``BudgetError`` if they cannot.
        """
        if self.limit_usd is None:
            return Claim(limit_key, images, 0.0)
        claim = await self._claim(limit_key, images, bound(), self.limit_usd)
        self._running[limit_key] += 1
        self._reserved += claim.usd
        return claim

    def end(self, claim: Claim) -> None:
        """Releases the reservation of a call."""
        if self.limit_usd is None:
            return
        self._running[claim.limit_key] -= 1
        self._reserved = self._reserved - claim.usd if any(self._running.values()) else 0.0
        self._changed.set()
        self._changed = asyncio.Event()

    def settle(self, claim: Claim, cost: float | None) -> None:
        """Adds the cost of a call. If the cost is unknown because the reply was lost, adds the whole reservation."""
        self.spent += claim.usd if cost is None else cost
        if cost:  # a call that cost nothing, such as one that was paid before, tells nothing about the next
            largest = self._largest.get(claim.limit_key, 0.0)
            self._largest[claim.limit_key] = max(largest, cost / max(1, claim.images))

    async def _claim(self, limit_key: RateLimitKey, images: int, bound: CostBound, limit_usd: float) -> Claim:
        while True:
            largest = None if bound.is_strict else self._largest.get(limit_key)
            claim = Claim(limit_key, images, bound.usd if largest is None else largest * max(1, images))
            self._check_affordable(claim, bound, limit_usd)
            is_first = largest is None and not bound.is_strict
            if _is_within(self.spent + self._reserved + claim.usd, limit_usd) and not (
                is_first and self._running[limit_key]
            ):
                return claim
            await self._changed.wait()

    def _check_affordable(self, claim: Claim, bound: CostBound, limit_usd: float) -> None:
        """Raises ``BudgetError`` if the call exceeds the budget even when all calls in flight cost nothing."""
        if _is_within(self.spent + claim.usd, limit_usd):
            return
        self.refused += 1
        message = budget_too_small(limit_usd, claim.limit_key, bound)
        if self.spent:
            message = (
                f"the budget of {limit_usd:g} USD is used up: {self.spent:.4g} USD spent, and the next call of"
                f" {claim.limit_key} may cost {claim.usd:.4g} USD"
            )
        self.refusal = self.refusal or message
        raise BudgetError(message)


@dataclass(slots=True)
class Reservation:
    """The reservation of one call, for ``async with``. ``claim`` is set while the call is in flight."""

    budget: Budget
    limit_key: RateLimitKey
    images: int
    bound: Callable[[], CostBound]
    claim: Claim = field(init=False)

    async def __aenter__(self) -> Claim:
        """Waits until the call is affordable. Raises ``BudgetError`` if it cannot be."""
        self.claim = await self.budget.start(self.limit_key, self.images, self.bound)
        return self.claim

    async def __aexit__(self, *_: object) -> None:
        self.budget.end(self.claim)


def _is_within(usd: float, limit_usd: float) -> bool:
    """Allows a tiny excess for floating-point rounding."""
    return usd <= limit_usd * (1 + 1e-9)


T = TypeVar("T", Generation, Reply)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidCall(Generic[T]):
    """A call that costs money. ``key`` is that of its answer in the cache, and ``images`` what it generates.

    ``size`` is computed only if there is a budget. A call that ``is_paid`` before it begins needs none of it. What
    ``limits_itself`` has a timeout of its own. An operation keeps its turn until it has ended.
    """

    limit_key: RateLimitKey
    key: str
    work: Callable[[], Awaitable[T]]
    size: Callable[[], CallSize]
    images: int = 0
    tries: Tries = field(default_factory=Tries)
    limits_itself: bool = False
    is_operation: bool = False
    is_paid: Callable[[], bool] = lambda: False
    as_answer: Callable[[ProviderError], T | None] = lambda _: None
    """Turns errors that are paid answers into them: they are cached, and can be replayed."""


@dataclass(slots=True)
class PricedAttempts(Generic[T]):
    """The attempts of one call, one after the other. ``cost`` is that of the last one, ``None`` if unknown.

    An attempt that may have been billed although its reply was lost counts towards the budget.
    """

    call: PaidCall[T]
    throttle: Throttle
    prices: Prices
    budget: Budget
    log: CallLog
    cost: float | None = None
    _reservation: Reservation = field(init=False)
    _was_paid: bool = False

    def made(self) -> Awaitable[T]:
        """Makes the call when its turn comes, and retries it if that may help."""
        return self.throttle.call(
            self.call.limit_key,
            self.attempt,
            images=self.call.images,
            tries=self.call.tries,
            limits_itself=self.call.limits_itself,
            is_operation=self.call.is_operation,
            admission=self.admission,
        )

    def admission(self) -> Reservation:
        """The reservation of the next attempt."""
        call, prices, was_paid = self.call, self.prices, self.call.is_paid()

        def bound() -> CostBound:  # without ``self``, as it would keep these attempts, with their question, in memory
            return CostBound(0.0, is_strict=True) if was_paid else bound_of(prices, call.limit_key, call.size())

        self._was_paid = was_paid
        self._reservation = self.budget.reserve(call.limit_key, call.images, bound)
        return self._reservation

    async def attempt(self) -> T:
        """Makes an attempt, once it is admitted."""
        call, limit_key, tries = self.call, self.call.limit_key, self.call.tries
        start, claim = perf_counter(), self._reservation.claim
        try:
            answer = await call.work()
        except BaseException as error:
            paid_answer = call.as_answer(error) if isinstance(error, ProviderError) else None
            if paid_answer is None:
                self.log.call(limit_key, call.key, status_of(error), tries.count, perf_counter() - start)
                if may_be_billed(error):
                    self.budget.settle(claim, None)
                raise
            answer = paid_answer
        outputs = len(answer.outputs) if isinstance(answer, Generation) else 0
        is_unusable = getattr(answer, "unusable", None) is not None and outputs < call.images
        if is_unusable:
            outputs = call.images  # what cannot be used is paid for too
        usage = self.prices.checked_usage(limit_key, answer.usage, outputs)
        known = usd(answer.cost_usd)
        if answer.cost_usd is None:
            known = self.prices.reported_cost(limit_key, usage, outputs)
        status = "unusable" if is_unusable or getattr(answer, "unreadable", None) is not None else "ok"
        if getattr(answer, "refused", None) is not None:
            status = "refused"
        is_free = self._was_paid or (known is None and not answer.usage and status == "refused")
        self.budget.settle(claim, 0.0 if is_free else known)
        seconds = perf_counter() - start
        self.log.call(limit_key, call.key, status, tries.count, seconds, usage=usage or {}, cost=known)
        self.cost = known
        return replace(answer, usage=usage)


def generation_of(provider: Any, call: Call, request: GenerationRequest) -> Awaitable[Generation]:
    """Generates or edits."""
    generate = provider.edit if call.task_type == "image_editing" else provider.generate
    return call_user_code(Generation, generate, request, check=check_generation)


def reply_of(judge: Judge, question: Question, about: CellRef) -> Awaitable[Reply]:
    """Asks one round of a question."""
    return call_user_code(Reply, judge.ask, question, about, subject="ask()", check=check_reply)


def as_reply(error: ProviderError) -> Reply | None:
    """The reply for an answer that cannot be read: it is paid for, and no outage. ``None`` for any other error."""
    return Reply("", "", unreadable=str(error)) if error.kind == "unusable" else None


def as_generation(error: ProviderError) -> Generation | None:
    """The result for a refusal, and for an answer that cannot be used. ``None`` for any other error."""
    if error.kind == "unusable":
        return Generation(unusable=str(error), reply=error.reply)
    return Generation(refused=str(error)) if error.kind == "refused" else None


def status_of(error: BaseException) -> str:
    """The status of a failed attempt for the log: the kind of error, or ``cancelled`` for a timeout or interrupt."""
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return error.kind if isinstance(error, ProviderError) else type(error).__name__


def may_be_billed(error: BaseException) -> bool:
    """Whether a failed attempt may be billed: the call was cut off, or its error does not rule it out."""
    if isinstance(error, ProviderError):
        return error.may_be_billed
    return not isinstance(error, StoppedError)


def check_generation(generation: Generation) -> None:
    """Raises ``BrokenCodeError`` for a generation that contradicts itself."""
    if not isinstance(generation.outputs, (tuple, list)):
        raise BrokenCodeError(f"it returned outputs={type(generation.outputs).__name__}: it must be a tuple of bytes")
    if generation.refused is not None and generation.outputs:
        raise BrokenCodeError("it returned both outputs and a refusal: return one of them")
    if (problem := _cost_problem(generation.cost_usd)) is not None:
        raise BrokenCodeError(f"it returned {problem}")


def check_reply(reply: Reply) -> None:
    """Raises ``BrokenCodeError`` for a reply without a text or with an impossible cost."""
    if not isinstance(reply.text, str):
        raise BrokenCodeError(f"ask() returned a Reply whose text is {type(reply.text).__name__}, not str")
    if (problem := _cost_problem(reply.cost_usd)) is not None:
        raise BrokenCodeError(f"ask() returned {problem}")


def _cost_problem(cost: Any) -> str | None:
    """Why a cost is impossible; ``None`` if it is possible or unknown."""
    if cost is None or usd(cost) is not None:
        return None
    return f"cost_usd={cost!r:.60}: it must be a number from 0, or None if it is unknown"


Result = TypeVar("Result")
_FUNCTIONS = Threads(64, thread_name_prefix="function")
"""A separate pool, because such code may wait forever."""


class BrokenCodeError(Exception):
    """A provider, grader or judge exited, cancelled itself, or returned the wrong type."""


async def call_user_code(
    expected: type[Result],
    work: Callable[..., Result | Awaitable[Result]],
    *arguments: Any,
    subject: str = "it",
    check: Callable[[Result], None] | None = None,
) -> Result:
    """Calls a provider, grader or judge: functions in a thread, coroutines in the event loop. Checks the result.

    An exit or a self-cancellation of the code does not end the calling worker. ``subject`` is what messages call the
    code.
    """

    def call_in_thread() -> Any:
        try:
            return work(*arguments)
        except StopIteration as error:  # a future cannot store it
            raise BrokenCodeError("it raised StopIteration") from error

    try:
        result: Any
        if iscoroutinefunction(work):
            result = await work(*arguments)
        else:
            run = copy_context().run
            result = await asyncio.get_running_loop().run_in_executor(_FUNCTIONS, run, call_in_thread)
            result = await result if isawaitable(result) else result
    except SystemExit as error:
        raise BrokenCodeError(f"{subject} called exit({error.code})") from error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise BrokenCodeError(f"{subject} cancelled itself") from None
    if not isinstance(result, expected):
        raise BrokenCodeError(f"{subject} returned {type(result).__name__}, not {expected.__name__}")
    if check is not None:
        check(result)
    return result


def describe_error(error: BaseException) -> str:
    """The message for an unexpected exception."""
    return str(error) if isinstance(error, BrokenCodeError) else describe_user_error(error)


class CallLog:
    """Appends calls to ``--log-file``, and prints them to ``echo`` if given."""

    def __init__(self, path: Path | None = None, echo: TextIO | None = None) -> None:
        """Raises ``UsageError`` if the file cannot be opened for writing."""
        self._echo = echo
        self._file: TextIO | None = None
        if path is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._file = path.open("a", encoding="utf-8", buffering=1)
            except OSError as error:
                raise UsageError(f"--log-file {path}: cannot write: {error.strerror or error}") from None

    def call(
        self,
        limit_key: RateLimitKey,
        key: str,
        status: str,
        attempt: int,
        seconds: float,
        *,
        usage: Mapping[str, int] | None = None,
        cost: float | None = None,
    ) -> None:
        """Logs one attempt of a call. ``status`` is ``ok`` or the kind of error, ``usage`` as the provider counts."""
        tokens = {} if usage is None else tokens_of(usage)
        self._write(limit_key, key, status, attempt=attempt, seconds=round(seconds, 6), tokens=tokens, cost_usd=cost)

    def hit(self, limit_key: RateLimitKey, key: str) -> None:
        """Logs a reply from the cache."""
        self._write(limit_key, key, "cached")

    def _write(self, limit_key: RateLimitKey, key: str, status: str, **more: object) -> None:
        if self._file is None and self._echo is None:
            return
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        text = json.dumps({"at": at, **limit_key._asdict(), "status": status, **more, "key": key})
        if self._echo is not None:
            print(text, file=self._echo)
        try:
            if self._file is not None:
                print(text, file=self._file)
        except OSError as error:  # a failed log line must not discard a paid call
            self.close()
            self._file = None
            print(f"--log-file: cannot write; logging stopped: {error.strerror or error}", file=sys.stderr)

    def close(self) -> None:
        """Closes the log file."""
        with contextlib.suppress(OSError):
            if self._file is not None:
                self._file.close()
