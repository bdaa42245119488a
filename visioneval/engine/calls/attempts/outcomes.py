"""Calls the code of a provider or judge; what its failures mean."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from visioneval.engine.calls.checked_results import check_generation, check_reply
from visioneval.engine.calls.user_code import call_user_code
from visioneval.errors import ProviderError, StoppedError
from visioneval.expansion.plan import Call
from visioneval.providers.base import CellRef, Generation, GenerationRequest, Judge, Question, Reply


def generation_of(provider: Any, call: Call, request: GenerationRequest) -> Awaitable[Generation]:
    """Generates or edits."""
    generate = provider.edit if call.task_type == "image_editing" else provider.generate
    return call_user_code(Generation, generate, request, check=check_generation)


async def reply_of(judge: Judge, question: Question, about: CellRef) -> Reply:
    """Asks one round of a question. An answer that cannot be read is a reply, as it is paid for: no outage."""
    try:
        return await call_user_code(Reply, judge.ask, question, about, subject="ask()", check=check_reply)
    except ProviderError as error:
        if error.kind != "unusable":
            raise
        return Reply("", "", unreadable=str(error))


async def answer_as_result(work: Awaitable[Generation]) -> Generation:
    """Generates; returns a refusal, or an answer that cannot be used, as a result: it is cached and can be replayed."""
    try:
        return await work
    except ProviderError as error:
        if error.kind == "unusable":
            return Generation(unusable=str(error), reply=error.reply)
        if error.kind != "refused":
            raise
        return Generation(refused=str(error))


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
