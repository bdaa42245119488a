"""A judge with OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from visioneval.errors import ProviderError
from visioneval.providers.base import CellRef, Part, Question, Reply, ToolCall, Turn
from visioneval.providers.error_replies import read_error
from visioneval.providers.openai.chat_judge import ChatJudge, function, valid_arguments, with_params
from visioneval.providers.openai.config import OpenAIJudge
from visioneval.providers.openai.connection import (
    Connection,
    data_url,
    encoded,
    flat_usage,
    kind_of_error,
    parse_errors,
    status_of_error,
)
from visioneval.providers.refusals import is_refusing_end
from visioneval.providers.retry_after import retry_after

_REASONING = "reasoning.encrypted_content"
"""Reasoning that must be sent back between rounds, since nothing is stored."""


class ResponsesJudge:
    """Asks with a strict schema; nothing is stored at the provider unless the suite's params say so."""

    def __init__(self, config: OpenAIJudge, connection: Connection) -> None:
        self._config = config
        self._connection = connection
        self._reasons = True

    async def ask(self, question: Question, about: CellRef) -> Reply:  # noqa: ARG002 - no judge is told the cell
        """One round."""
        answer = await self._answer(question)
        with parse_errors():
            return _reply(answer)

    def _body(self, question: Question) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._config.model,
            "input": [{"role": "user", "content": [_part(part, question) for part in question.parts]}],
            "store": False,
        }
        for turn in question.turns:
            body["input"] += _turn(turn, question)
        if question.schema is not None:
            form = {"type": "json_schema", "name": "answer", "strict": True, "schema": question.schema}
            body["text"] = {"format": form}
        if question.tools:
            body["tools"] = [{"type": "function", "strict": True, **function(tool)} for tool in question.tools]
            body |= {"include": [_REASONING]} if self._reasons else {}
        body = with_params(body, self._config.params)
        return {**body, "tool_choice": "none"} if question.must_answer else body

    async def _answer(self, question: Question) -> dict[str, Any]:
        """Retries without encrypted reasoning if the model does not support it (status 400)."""
        reasons = self._reasons
        try:
            return await self._connection.post("/responses", encoded(self._body(question)))
        except ProviderError as error:
            is_included = question.tools and "include" not in self._config.params
            if error.kind != "invalid" or "ncrypted" not in str(error) or not (is_included and reasons):
                raise
        self._reasons = False
        return await self._answer(question)


def _turn(turn: Turn, question: Question) -> list[dict[str, Any]]:
    """All items of the judge, including reasoning, and the result of each tool call."""
    outputs = [
        {"type": "function_call_output", "call_id": call.id, "output": [_part(part, question) for part in parts]}
        for call, parts in turn.results
    ]
    return [*turn.raw, *outputs]


def _sent_back(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item of an answer, converted for the next request."""
    sent = {name: value for name, value in item.items() if value is not None}
    return {**sent, "arguments": valid_arguments(sent["arguments"])} if "arguments" in sent else sent


def _part(part: Part, question: Question) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "input_text", "text": part}
    return {"type": "input_image", "image_url": data_url(part.data, part.mime), "detail": question.detail or "auto"}


def _reply(answer: Mapping[str, Any]) -> Reply:
    output = answer.get("output") or ()
    contents = [part for item in output if item["type"] == "message" for part in item["content"]]
    _refuse(answer, contents)
    reason = (answer.get("incomplete_details") or {}).get("reason")
    calls = tuple(
        ToolCall(item["name"], item.get("arguments") or "", item["call_id"])
        for item in output
        if item["type"] == "function_call"
    )
    return Reply(
        text="".join(part["text"] for part in contents if part["type"] == "output_text"),
        model=str(answer.get("model")),
        usage=flat_usage(answer.get("usage")) or None,
        stopped=(reason or "incomplete") if answer.get("status") == "incomplete" else None,
        calls=calls,
        raw=[_sent_back(item) for item in output] if calls else None,
    )


def _refuse(answer: Mapping[str, Any], contents: list[Mapping[str, Any]]) -> None:
    refusal = next((part["refusal"] for part in contents if part["type"] == "refusal"), None)
    if refusal is not None:
        raise ProviderError(f"the judge refused: {refusal}", kind="refused", may_be_billed=True)
    if answer.get("status") == "failed":
        error = read_error({"error": answer.get("error") or {}})
        status = status_of_error(error, 400)
        why = error.message if answer.get("error") else "no reason given"
        wait = retry_after(status, {}, error)
        raise ProviderError(f"the answer failed: {why}", kind=kind_of_error(status, error), retry_after=wait)
    reason = (answer.get("incomplete_details") or {}).get("reason")
    if is_refusing_end(reason):
        raise ProviderError(f"the judge's answer was blocked: {reason}", kind="refused", may_be_billed=True)


def open_judge(config: OpenAIJudge) -> ResponsesJudge | ChatJudge:
    """Creates the judge of an entry. Raises ``UsageError`` without its key."""
    connection = Connection(config)
    return ResponsesJudge(config, connection) if config.api == "responses" else ChatJudge(config, connection)
