"""Generations that are operations: each is written down when it begins, then the provider is asked for its end.

Only the beginning is paid. Whatever fails while an operation runs, it stays written down: another attempt, or the
resumed run, asks for its end instead of beginning another.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from visioneval.errors import ImageError, OperationError, ProviderError
from visioneval.media.video import seconds_of
from visioneval.providers.base import VIDEO_MS, Generation, GenerationRequest, OperationGenerator, OutputFile
from visioneval.records.outputs import MAX_NAME, OperationFile
from visioneval.running.calls import limiters
from visioneval.running.calls.attempts import BrokenCodeError, call_user_code, check_generation
from visioneval.suite.entries.limits import TIMEOUT_S
from visioneval.threads import finish_in_thread

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 10.0
WAIT_GROWTH = 1.5
"""Waits between polls: each is longer than the one before, up to the longest."""
MAX_FAILURES = 8
"""Polls in a row without an answer after which an operation is left for the resumed run."""
_RETRYABLE = ("rate_limit", "transient")


@dataclass(frozen=True, slots=True)
class OperationCall:
    """One call of a provider that works by operations.

    ``limit_s`` is the longest time for which it is awaited. ``hides`` says whether a text contains a secret.
    """

    provider: OperationGenerator
    request: GenerationRequest
    file: OperationFile
    limit_s: float
    hides: Callable[[str], bool]

    async def run(self) -> Generation:
        """Begins the operation unless it has begun, and returns its result. Raises ``ProviderError``."""
        name = await asyncio.to_thread(self.file.read)
        if name is None:
            begun = await self._begin()
            if isinstance(begun, Generation):
                return await with_video_length(begun)
            name = begun
        try:
            return await with_video_length(await self._end_of(name))
        except OperationError as error:
            if error.kind != "refused":
                await asyncio.to_thread(self.file.end, name)
            raise

    async def forget(self) -> None:
        """Notes that the result cannot be used, so that resuming the run begins another operation."""
        name = await asyncio.to_thread(self.file.read)
        if name is not None:
            await asyncio.to_thread(self.file.end, name)

    async def _begin(self) -> str | Generation:
        """The operation is written down even if the call is cut off right after the provider's answer."""
        begin = partial(
            call_user_code, object, self.provider.begin, self.request, subject="begin()", check=self._check_begun
        )
        begun: str | Generation = await _timed(begin, may_be_billed=True)
        if isinstance(begun, str):
            await finish_in_thread(self.file.begin, begun)
        return begun

    def _check_begun(self, begun: object) -> None:
        """Raises ``BrokenCodeError`` unless it is a name that can be written down, or a result."""
        if isinstance(begun, Generation):
            check_generation(begun)
        elif not isinstance(begun, str):
            raise BrokenCodeError(f"begin() returned {type(begun).__name__}, not the name of an operation")
        elif not 0 < len(begun) <= MAX_NAME:
            raise BrokenCodeError(
                f"begin() returned a name of {len(begun):,} characters: it must have 1 to {MAX_NAME:,}"
            )
        elif self.hides(begun):
            raise BrokenCodeError("begin() returned a name that contains a key: it cannot be written down")

    async def _end_of(self, name: str) -> Generation:
        ends_at, wait, failures = monotonic() + self.limit_s, FIRST_WAIT_S, 0
        while True:
            try:
                generation: Generation | None = await _timed(partial(self._poll, name))
            except ProviderError as error:
                if isinstance(error, OperationError):
                    raise
                if error.kind == "unusable":  # what ended the operation can be asked for again, at no cost
                    error.kind = "invalid"
                if error.kind not in _RETRYABLE:
                    error.may_be_billed = True
                    raise
                failures += 1
                backoff = min(limiters.LONGEST_BACKOFF_S, limiters.BACKOFF_S * 2 ** (failures - 1))
                pause = max(error.retry_after or 0.0, backoff * random.uniform(0.5, 1))  # noqa: S311
                problem = f"cannot be asked for: {error}"
                if failures >= MAX_FAILURES:
                    raise pending(name, problem) from None
            else:
                if generation is not None:
                    return generation
                failures, pause = 0, wait * random.uniform(0.8, 1)  # noqa: S311
                problem = f"has not ended within {self.limit_s:g} s (timeout_s)"
                wait = min(LONGEST_WAIT_S, wait * WAIT_GROWTH)
            if monotonic() + pause > ends_at:
                raise pending(name, problem)
            await asyncio.sleep(pause)

    async def _poll(self, name: str) -> Generation | None:
        generation = await call_user_code(object, self.provider.poll, name, self.request)
        if generation is None:
            return None
        if not isinstance(generation, Generation):
            raise BrokenCodeError(f"poll() returned {type(generation).__name__}, not Generation or None")
        check_generation(generation)
        return generation


def pending(name: str, problem: str) -> ProviderError:
    """The error for an operation whose end is unknown."""
    return ProviderError(
        f"the operation {name} {problem}; it is paid for, and --resume asks for it again",
        kind="pending",
        may_be_billed=True,
    )


async def _timed(work: Callable[[], Awaitable[Any]], *, may_be_billed: bool = False) -> Any:
    limit = asyncio.timeout(TIMEOUT_S)
    try:
        async with limit:
            return await work()
    except TimeoutError as error:
        message = f"no answer within {TIMEOUT_S:g} s" if limit.expired() else f"TimeoutError: {error}"
        raise ProviderError(message, kind="transient", may_be_billed=may_be_billed) from None


async def with_video_length(generation: Generation) -> Generation:
    """A generation with the length of its videos in its usage: the provider's, or else that of the files."""
    usage: Mapping[str, int] = generation.usage or {}
    if VIDEO_MS in usage or not generation.outputs:
        return generation
    lengths = await asyncio.to_thread(_lengths, generation.outputs)
    return replace(generation, usage={**usage, VIDEO_MS: round(1000 * sum(lengths))}) if lengths else generation


def _lengths(outputs: Sequence[object]) -> list[float]:
    """The seconds of each video; none if one cannot be read, which its cell reports."""
    videos = (output.path if isinstance(output, OutputFile) else output for output in outputs)
    try:
        return [seconds_of(video) for video in videos if isinstance(video, (bytes, Path))]
    except ImageError:
        return []
