"""A Gemini model as a judge, with a JSON schema and tool calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google import genai
from google.genai import types

from visioneval.providers.base import AddressPart, CellRef, ImagePart, Part, Question, Reply
from visioneval.providers.gemini import add_usage, client_for, config_of, content_parts, refuse, told_errors
from visioneval.suite.judges import GeminiJudge

SPARE_ROUNDS = 2
WHOLE = ("STOP", "FINISH_REASON_UNSPECIFIED")


class Gemini:
    """Asks with a JSON schema. A model that takes no schema beside tools gets the schema once it calls no more."""

    def __init__(self, config: GeminiJudge) -> None:
        self._config = config
        self._client: genai.Client = client_for(config)

    async def ask(self, question: Question, about: CellRef) -> Reply:  # noqa: ARG002 - no judge is told the cell
        """One question, with as many rounds as its tools are used, and one more for the answer in shape."""
        turns = [types.Content(role="user", parts=[_part(part) for part in question.parts])]
        usage: dict[str, int] = {}
        used = 0
        while question.tools and used < question.max_tool_calls + SPARE_ROUNDS:
            answer = await self._send(turns, self._options(question, tools=True), usage)
            calls = [part.function_call for part in content_parts(answer) if part.function_call]
            candidate = answer.candidates[0] if answer.candidates else None
            if candidate is not None and candidate.content is not None and candidate.content.parts:
                turns.append(candidate.content)
            if not calls:
                turns.append(types.Content(role="user", parts=[types.Part(text="Now give your answer.")]))
                break
            turns.append(types.Content(role="user", parts=_answers(question, calls)))
            used += len(calls)
        answer = await self._send(turns, self._options(question, tools=False), usage)
        return _reply(answer, usage, used, self._config.model)

    def _options(self, question: Question, *, tools: bool) -> dict[str, Any]:
        options: dict[str, Any] = dict(self._config.params)
        if tools:
            declared = [
                types.FunctionDeclaration(
                    name=tool.name, description=tool.description, parameters_json_schema=dict(tool.parameters)
                )
                for tool in question.tools
            ]
            options["tools"] = [types.Tool(function_declarations=declared)]
            options["automatic_function_calling"] = types.AutomaticFunctionCallingConfig(disable=True)
        elif question.schema is not None:
            options["response_mime_type"] = "application/json"
            options["response_json_schema"] = dict(question.schema)
        if question.detail in ("low", "high"):
            level = "MEDIA_RESOLUTION_LOW" if question.detail == "low" else "MEDIA_RESOLUTION_HIGH"
            options.setdefault("media_resolution", level)
        return options

    async def _send(
        self, turns: Sequence[types.Content], options: dict[str, Any], usage: dict[str, int]
    ) -> types.GenerateContentResponse:
        async with told_errors():
            answer = await self._client.aio.models.generate_content(
                model=self._config.model, contents=list(turns), config=config_of(options)
            )
        add_usage(usage, answer)
        refuse(answer)
        return answer


def _part(part: Part) -> types.Part:
    return types.Part(text=part) if isinstance(part, str) else _picture(part)


def _picture(part: ImagePart) -> types.Part:
    if isinstance(part, AddressPart):
        return types.Part.from_uri(file_uri=part.uri, mime_type=part.mime)
    return types.Part.from_bytes(data=part.data, mime_type=part.mime)


def _answers(question: Question, calls: Sequence[types.FunctionCall]) -> list[types.Part]:
    """A function response per call with its words, then the pictures, in the order of the calls."""
    responses: list[types.Part] = []
    pictures: list[types.Part] = []
    for call in calls:
        tool = next((each for each in question.tools if each.name == call.name), None)
        names = ", ".join(each.name for each in question.tools)
        parts = tool.call(_whole(call.args or {})) if tool else [f"There is no tool {call.name!r}. There are: {names}."]
        words = "\n".join(part for part in parts if isinstance(part, str))
        responses.append(
            types.Part(function_response=types.FunctionResponse(id=call.id, name=call.name, response={"result": words}))
        )
        pictures += [_picture(part) for part in parts if isinstance(part, ImagePart)]
    return responses + pictures


def _whole(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Whole numbers as such: the service's own form of arguments knows only floats."""
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in arguments.items()
    }


def _reply(answer: types.GenerateContentResponse, usage: dict[str, int], used: int, model: str) -> Reply:
    reason = answer.candidates[0].finish_reason if answer.candidates else None
    return Reply(
        text="".join(part.text for part in content_parts(answer) if part.text and not part.thought),
        model=answer.model_version or model,
        usage=usage or None,
        stopped=reason.name.lower() if reason and reason.name not in WHOLE else None,
        tool_calls=used,
    )
