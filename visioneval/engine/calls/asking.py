"""Asks a judge: all rounds of a question, with one error for a refused API key and one for broken code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from visioneval.engine.calls.calls import Calls
from visioneval.engine.calls.cost.meter import Meter
from visioneval.engine.calls.user_code import BrokenCodeError
from visioneval.engine.sanitize import Sanitizer
from visioneval.errors import AuthError, ProviderError
from visioneval.providers.base import CellRef, Judge, Question, Reply
from visioneval.providers.conversation import converse
from visioneval.suite.entries.judges import BaseJudge


def judge_asker(
    calls: Calls, name: str, config: BaseJudge, judge: Judge, about: CellRef, meter: Meter
) -> Callable[[Question], Awaitable[Reply]]:
    """Returns a function that asks the judge ``name`` of the suite, or takes the answer from the cache.

    Adds the calls, their usage, their cost and refusals to ``meter``. The function raises ``ProviderError``, and
    ``AuthError`` if the API key is refused.
    """

    async def ask(question: Question) -> Reply:
        try:
            return await converse(lambda part: calls.ask(config, judge, part, about, meter), question)
        except ProviderError as error:
            if error.kind == "refused":
                meter.add_refusal()
            raise_refused_key(error, f"the judge {name!r}", calls.sanitizer)
            raise
        except BrokenCodeError as error:
            raise BrokenCodeError(f"the judge {name!r}: {error}") from error

    return ask


def raise_refused_key(error: ProviderError, who: str, sanitizer: Sanitizer) -> None:
    """Raises ``AuthError`` if a provider refused the API key, because every other call would fail too."""
    if error.kind == "auth":
        raise AuthError(f"{who}: the provider refused the API key: {sanitizer.text(error)}") from None
