"""Asks a judge: all rounds of a question, with one error for a refused API key and one for broken code."""

from __future__ import annotations

from visioneval.engine.calls.calls import Calls
from visioneval.engine.calls.cost.meter import Meter
from visioneval.engine.calls.user_code import BrokenCodeError, describe_error
from visioneval.engine.sanitize import Sanitizer
from visioneval.errors import AuthError, ProviderError, VisionEvalError
from visioneval.providers.base import CellRef, Judge, Question, Reply
from visioneval.providers.conversation import converse
from visioneval.suite.entries.judges import BaseJudge


async def ask_judge(
    calls: Calls, name: str, config: BaseJudge, judge: Judge, about: CellRef, meter: Meter, question: Question
) -> Reply:
    """Asks the judge ``name`` of the suite, or takes the answer from the cache.

    Adds the calls, their usage, their cost and refusals to ``meter``. Raises ``ProviderError``, and ``AuthError`` if
    the API key is refused.
    """
    try:
        return await converse(lambda part: calls.ask(config, judge, part, about, meter), question)
    except ProviderError as error:
        if error.kind == "refused":
            meter.add_refusal()
        raise_refused_key(error, f"the judge {name!r}", calls.sanitizer)
        raise
    except VisionEvalError:
        raise
    except Exception as error:
        raise BrokenCodeError(f"the judge {name!r}: {describe_error(error)}") from error


def raise_refused_key(error: ProviderError, who: str, sanitizer: Sanitizer) -> None:
    """Raises ``AuthError`` if a provider refused the API key, because every other call would fail too."""
    if error.kind == "auth":
        raise AuthError(f"{who}: the provider refused the API key: {sanitizer.text(error)}") from None
