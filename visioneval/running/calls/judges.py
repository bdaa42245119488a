"""The judges of a run: asks one, with errors for a refused API key, a spent quota and broken code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from visioneval.errors import AuthError, ProviderError, QuotaError, VisionEvalError
from visioneval.ordered_pool import NO_TURN, in_turn
from visioneval.providers.base import CellRef, Judge, Question, Reply
from visioneval.providers.conversation import converse
from visioneval.running.calls.attempts import BrokenCodeError, describe_error
from visioneval.running.calls.calls import Calls
from visioneval.running.calls.meter import Meter
from visioneval.running.sanitize import Sanitizer
from visioneval.suite.entries.judges import BaseJudge

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
            with in_turn(NO_TURN):  # a call must not wait for the measurements of other cells
                return await converse(lambda part: self.calls.ask(config, judge, part, about, meter), question)
        except ProviderError as error:
            if error.kind == "refused":
                meter.add_refusal()
            raise_if_stopping(error, f"the judge {name!r}", str(getattr(config, "provider", "")), self.calls.sanitizer)
            raise
        except VisionEvalError:
            raise
        except Exception as error:
            raise BrokenCodeError(f"the judge {name!r}: {describe_error(error)}") from error


def raise_if_stopping(error: ProviderError, who: str, provider: str, sanitizer: Sanitizer) -> None:
    """Raises ``AuthError`` if every other call would fail too: the API key is refused, or its quota is spent."""
    if error.kind == "auth":
        raise AuthError(f"{who}: the provider refused the API key: {sanitizer.text(error)}") from None
    if error.kind == "quota":
        reason = sanitizer.text(error)[:_MAX_REASON]
        raise QuotaError(
            f"{who}: the quota at {provider} is spent: {reason}; add credit or raise the limit there, then resume"
        ) from None
