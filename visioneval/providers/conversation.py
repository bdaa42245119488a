"""The rounds of a question with tools: the judge calls tools, and finally answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from visioneval.errors import ProviderError
from visioneval.providers.base import Part, Question, Reply, Tool, ToolCall, Turn
from visioneval.providers.reply_json import UnreadableReplyError, read_objects

SPARE_CALLS = 2
"""Calls over the limit that are answered with a warning before the judge must answer."""


async def converse(ask: Callable[[Question], Awaitable[Reply]], question: Question) -> Reply:
    """Asks until there is an answer; ``ask`` is one round. The reply has the tokens and the cost of all rounds.

    Raises ``ProviderError`` if a judge never stops calling tools.
    """
    reply = await ask(question)
    rounds, call_count = [reply], 0
    while reply.raw is not None:
        if question.must_answer:
            raise ProviderError(f"the judge still called tools after {call_count} calls", kind="invalid")
        results = [(call, tuple(await asyncio.to_thread(run_tool, question.tools, call))) for call in reply.calls]
        call_count += len(results)
        question = replace(
            question,
            turns=(*question.turns, Turn(reply.raw, tuple(results))),
            must_answer=not results or call_count >= question.max_tool_calls + SPARE_CALLS,
        )
        reply = await ask(question)
        rounds.append(reply)
    return replace(reply, tool_calls=call_count, usage=_usage(rounds), cost_usd=_cost(rounds)) if rounds[1:] else reply


def run_tool(tools: Sequence[Tool], call: ToolCall) -> Sequence[Part]:
    """The result of a tool call; bad names and bad JSON give an error message for the judge."""
    tool = next((candidate for candidate in tools if candidate.name == call.name), None)
    if tool is None:
        return [f"There is no tool {call.name!r}. There are: {', '.join(candidate.name for candidate in tools)}."]
    try:
        objects = read_objects(call.arguments or "{}")
    except UnreadableReplyError as error:
        return [f"The arguments are not JSON: {error}."]
    return tool.call(objects[0].value) if len(objects) == 1 else ["The arguments must be one JSON object."]


def _usage(rounds: Sequence[Reply]) -> dict[str, int] | None:
    sums: dict[str, int] = {}
    for reply in rounds:
        for kind, tokens in (reply.usage or {}).items():
            sums[kind] = sums.get(kind, 0) + tokens
    return sums or None


def _cost(rounds: Sequence[Reply]) -> float | None:
    costs = [reply.cost_usd for reply in rounds]
    return None if None in costs else sum(cost or 0.0 for cost in costs)
