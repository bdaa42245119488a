"""The judges of a run, and what asking them has cost.

Answers come from the cache, or from paid calls, which concurrent cells share.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import Any

from visioneval.errors import NOT_CACHED, AuthError, ProviderError, QuotaError, VisionEvalError
from visioneval.providers.base import CellRef, Judge, Part, Question, Reply, ToolCall
from visioneval.providers.questions import ScaledPart, converse, fitted, scaled_images
from visioneval.records.model import digest
from visioneval.running.calls.attempts import BrokenCodeError, PaidCall, as_reply, describe_error, reply_of
from visioneval.running.calls.calls import Calls
from visioneval.running.calls.prices import checked_usage, question_size
from visioneval.running.keys import RateLimitKey, judge_limit_key
from visioneval.running.sanitize import Sanitizer
from visioneval.suite.entries.judges import BaseJudge
from visioneval.threads import finish_in_thread, waiting

_MAX_REASON = 300
"""The most characters of a provider's words about a spent quota."""


@dataclass(frozen=True, slots=True)
class Judges:
    """The judges of a suite, by name: their configs, themselves, and what calls them."""

    configs: Mapping[str, BaseJudge]
    judges: Mapping[str, Judge]
    calls: Calls

    async def ask(self, name: str, question: Question, about: CellRef, meter: Meter) -> Reply:
        """Asks a judge, or takes the answer from the cache. The reply is that of all rounds with its tools.

        Adds the calls, their usage, their cost and refusals to ``meter``. Raises ``ProviderError``, and ``AuthError``
        if the API key is refused or its quota is spent.
        """
        config, judge = self.configs[name], self.judges[name]
        try:
            return await converse(lambda part: self.answer(config, judge, part, about, meter), question)
        except ProviderError as error:
            if error.kind == "refused":
                meter.add_refusal()
            raise_if_stopping(error, f"the judge {name!r}", str(getattr(config, "provider", "")), self.calls.sanitizer)
            raise
        except VisionEvalError:
            raise
        except Exception as error:
            raise BrokenCodeError(f"the judge {name!r}: {describe_error(error)}") from error

    async def answer(self, config: BaseJudge, judge: Judge, question: Question, about: CellRef, meter: Meter) -> Reply:
        """The answer of one round: the cached one to the same text and images, or that of a call.

        Concurrent calls with the same question share one request. Raises ``ProviderError`` and ``BudgetError``.
        """
        calls = self.calls
        if config.is_free:
            return await _free_answer(judge, question, about, meter)
        question = fitted(config, question)
        limit_key = judge_limit_key(config)
        key = question_key(config, question)  # reads no image, so a thread would take longer
        is_shared = calls.reuse.judgements and not (question.past_cache and not calls.reuse.offline)
        while is_shared and (same := calls.pending.get(key)) is not None:
            with contextlib.suppress(AbandonedError), waiting():
                return _metered(meter, await asyncio.shield(same), cached=True)
        with self._sharing(key) if is_shared else contextlib.nullcontext() as answer:
            if is_shared:
                await calls.pull(key)
            reply = self._cached(limit_key, key, about) if is_shared else None
            is_cached = reply is not None
            if reply is None:
                is_scaled = any(isinstance(part, ScaledPart) for part in question.parts)
                scaled = await asyncio.to_thread(scaled_images, question) if is_scaled else ()
                size, work = partial(question_size, config, question), partial(reply_of, judge, question, about)
                call = PaidCall(limit_key=limit_key, key=key, work=work, size=size, as_answer=as_reply)
                attempts = calls.attempts(call)
                reply = replace(await attempts.made(), cost_usd=attempts.cost, scaled=scaled)
                await self._store(key, reply)
            if answer is not None:
                answer.set_result(reply)
        return _metered(meter, reply, cached=is_cached)

    @contextlib.contextmanager
    def _sharing(self, key: str) -> Iterator[asyncio.Future[Reply]]:
        """The answer to a question, for which concurrent calls wait meanwhile."""
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.calls.pending[key] = answer
        try:
            yield answer
        except BaseException as error:
            answer.set_exception(error if isinstance(error, ProviderError) else AbandonedError())
            answer.exception()  # marks it as retrieved: nothing else may be waiting for it
            raise
        finally:
            del self.calls.pending[key]

    def _cached(self, limit_key: RateLimitKey, key: str, about: CellRef) -> Reply | None:
        """The cached reply, or ``None``, which is a ``ProviderError`` offline."""
        calls = self.calls
        entry = calls.cache.get(key) if calls.cache else None
        if entry is not None:
            calls.log.hit(limit_key, key)
            answer = dict(entry.answer)
            tool_calls = tuple(ToolCall(**call) for call in answer.pop("calls"))
            scaled = tuple(answer.pop("scaled", ()))
            return Reply(**answer, calls=tool_calls, scaled=scaled, from_cache=not calls.reuse.offline)
        if calls.reuse.offline:
            cell = f"{about.test_id!r} by {about.model_label!r}, sample {about.sample_index}"
            raise ProviderError(f"{NOT_CACHED}: the answer of {limit_key} about {cell}", kind="offline")
        return None

    async def _store(self, key: str, reply: Reply) -> None:
        calls, answer = self.calls, cached_fields(reply)
        if not calls.sanitizer.hides(answer):  # a masked answer would differ on the next run
            await finish_in_thread(calls.store, key, "judge", calls.sanitizer.mapping(answer))
        calls.stop_if_broken()


async def _free_answer(judge: Judge, question: Question, about: CellRef, meter: Meter) -> Reply:
    try:
        reply = await reply_of(judge, question, about)
    except ProviderError as error:
        unreadable = as_reply(error)
        if unreadable is None:
            raise
        reply = unreadable
    meter.add(replace(reply, usage=checked_usage(reply.usage), cost_usd=0.0), cached=False)
    return reply


def _metered(meter: Meter, reply: Reply, *, cached: bool = False) -> Reply:
    if cached:
        reply = replace(reply, usage=None, cost_usd=0.0)
    meter.add(reply, cached=cached)
    return reply


def raise_if_stopping(error: ProviderError, who: str, provider: str, sanitizer: Sanitizer) -> None:
    """Raises ``AuthError`` if every other call would fail too: the API key is refused, or its quota is spent."""
    if error.kind == "auth":
        raise AuthError(f"{who}: the provider refused the API key: {sanitizer.text(error)}") from None
    if error.kind == "quota":
        reason = sanitizer.text(error)[:_MAX_REASON]
        raise QuotaError(
            f"{who}: the quota at {provider} is spent: {reason}; add credit or raise the limit there, then resume"
        ) from None


class AbandonedError(ProviderError):
    """A concurrent call with the same question ended without an answer."""

    def __init__(self) -> None:
        super().__init__("the call was abandoned", kind="transient")


def question_key(config: BaseJudge, question: Question) -> str:
    """The cache key of a question. Contains neither host nor cell, so identical images share one answer."""
    parts = {
        "judge": config.answering_options,
        "parts": [_part_key(part) for part in question.parts],
        "schema": question.schema,
        "tools": [[tool.name, tool.description, tool.parameters] for tool in question.tools],
        "detail": question.detail,
        "vote": question.vote,
        "turns": [
            [turn.raw, [[call.id, [_part_key(part) for part in parts]] for call, parts in turn.results]]
            for turn in question.turns
        ],
        "must_answer": question.must_answer,
    }
    return f"judge:{digest(parts)}"


def cached_fields(reply: Reply) -> dict[str, Any]:
    """What the cache stores of a reply. Not by ``asdict``, which copies all values one by one."""
    scaled = {"scaled": list(reply.scaled)} if reply.scaled else {}
    calls = {"calls": [asdict(call) for call in reply.calls]}
    return {name: getattr(reply, name) for name in _CACHED_FIELDS} | calls | scaled


_CACHED_FIELDS = tuple(item.name for item in fields(Reply) if item.name not in ("calls", "from_cache", "scaled"))


def _part_key(part: Part) -> Any:
    return part if isinstance(part, str) else [part.sha256, part.mime]


@dataclass(slots=True)
class Meter:
    """The usage and cost of judge calls, such as those of one grader for one cell, and its local measurements."""

    calls: int = 0
    cached: int = 0
    usage: dict[str, int] = field(default_factory=dict)
    cost_usd: float | None = 0.0
    refused: int = 0
    """Questions that a judge refused."""
    judge_model: str | None = None
    """The model of the last reply."""
    scaled: dict[str, None] = field(default_factory=dict)
    """What was done to the images that were above the limits of a judge, in order."""
    measurements: int = 0
    cached_measurements: int = 0
    whole: Meter | None = None
    """Counts the same calls, and those of other judges."""

    def __str__(self) -> str:
        cost = "unknown" if self.cost_usd is None else f"{self.cost_usd:.4f} USD"
        return f"asked {self.calls} questions, {self.cached} of them answered from the cache; cost: {cost}"

    @property
    def is_from_cache(self) -> bool:
        """Whether all judge calls were answered from the cache; without calls, whether all measurements were."""
        if self.calls:
            return self.cached == self.calls
        return 0 < self.measurements == self.cached_measurements

    @property
    def details(self) -> dict[str, list[str]]:
        """What a record's details say of the calls."""
        return {"scaled": list(self.scaled)} if self.scaled else {}

    def add_measurement(self, *, cached: bool) -> None:
        """Adds one local measurement."""
        self.measurements += 1
        self.cached_measurements += cached

    def add(self, reply: Reply, *, cached: bool) -> None:
        """Adds one call. An unknown cost makes the total unknown."""
        if self.whole is not None:
            self.whole.add(reply, cached=cached)
        self.calls += 1
        self.cached += cached
        self.judge_model = reply.model
        self.scaled |= dict.fromkeys(reply.scaled)
        for kind, tokens in (reply.usage or {}).items():
            self.usage[kind] = self.usage.get(kind, 0) + tokens
        self.cost_usd = None if self.cost_usd is None or reply.cost_usd is None else self.cost_usd + reply.cost_usd

    def add_refusal(self) -> None:
        """Adds a question that a judge refused."""
        if self.whole is not None:
            self.whole.add_refusal()
        self.refused += 1


@dataclass(frozen=True, slots=True)
class JudgeMeters:
    """The calls of one grader for one cell: all together, and by judge."""

    total: Meter = field(default_factory=Meter)
    by_judge: dict[str, Meter] = field(default_factory=dict)
    """The judges that were asked, even in vain."""

    def __str__(self) -> str:
        if len(self.by_judge) < 2:
            return str(self.total)
        return f"{self.total} ({'; '.join(f'{name}: {meter}' for name, meter in sorted(self.by_judge.items()))})"

    def of(self, judge: str) -> Meter:
        """The meter of a judge that is asked now."""
        return self.by_judge.setdefault(judge, Meter(whole=self.total))
