"""Reads text with a vision judge: line by line from the image, or from a description of it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from visioneval.graders.base import GradingContext
from visioneval.graders.text.config import CHECK, DESCRIBE, LIST, TEXTS, TextGrader, text_contexts
from visioneval.graders.text.copy_match import Reading
from visioneval.judging.ask import (
    MAX_REPLY_CHARS,
    Answer,
    Ask,
    OffSchemaError,
    answer_details,
    ask_for_json,
    object_schema,
)
from visioneval.providers.base import Question, Reply
from visioneval.records.model import digest

_LINES = {"lines": TEXTS}
_DESCRIBED = {"description": {"type": "string"}}
_CHECKED = {**_LINES, "criteria_met": {"type": "boolean"}, "reason": {"type": "string"}}

MAX_LINES = 1000
"""The most lines in a reply; no image shows more."""
MAX_LINE_CHARS = 20_000
"""The most characters in all lines of a reply."""


@dataclass(frozen=True, slots=True)
class JudgeReading:
    """What the judge read. ``criteria_met`` is ``None`` unless the case has criteria and ``describe`` is on."""

    readings: tuple[Reading, ...]
    details: Mapping[str, Any]
    replies: tuple[Reply, ...]
    template_sha256: str
    schema_sha256: str
    criteria_met: bool | None = None
    reason: str = ""


async def read(context: GradingContext, config: TextGrader) -> JudgeReading:
    """Asks the judge.

    Raises ``OffSchemaError`` if no reply matches the schema, and ``ProviderError``.
    """
    ask = context.ask_own_judge
    part = await asyncio.to_thread(context.show, context.generated.path)
    if not config.describe:
        answer = await ask_for_json(
            ask, _question(_instructions(LIST, context), _LINES, part), partial(_reply_problems, _LINES)
        )
        return JudgeReading(_readings(answer), answer_details(answer), answer.replies, *_hashes(context, _LINES, LIST))
    question = _question(_instructions(DESCRIBE, context), _DESCRIBED, part)
    described = await ask_for_json(ask, question, _description_problems, {"description": "-"})
    answer = await _check_description(ask, context, described)
    return JudgeReading(
        _readings(answer),
        {**answer_details(described, answer), "description": _description(described)[:MAX_REPLY_CHARS]},
        (*described.replies, *answer.replies),
        *_hashes(context, {**_DESCRIBED, **_CHECKED}, DESCRIBE, CHECK),
        criteria_met=answer.data.get("criteria_met") if context.case.criteria else None,
        reason=str(answer.data.get("reason", "")),
    )


async def _check_description(ask: Ask, context: GradingContext, described: Answer) -> Answer:
    """The second call, which sees no image."""
    question = _question(_instructions(CHECK, context, _description(described)), _CHECKED)
    needed = _CHECKED if context.case.criteria else _LINES  # without criteria, nothing reads the rest
    try:
        return await ask_for_json(ask, question, partial(_reply_problems, needed), {"criteria_met": True, "reason": ""})
    except OffSchemaError as error:
        raise OffSchemaError(str(error), (*described.replies, *error.replies)) from None


def _description(answer: Answer) -> str:
    return str(answer.data.get("description", ""))


def _description_problems(data: Any) -> list[str]:
    """The description is a value in a JSON object, since truncated prose cannot be recognized."""
    text = data.get("description") if isinstance(data, dict) else None
    return [] if isinstance(text, str) and text.strip() else ["'description' is not text or is empty"]


def _instructions(template: str, context: GradingContext, description: str = "") -> str:
    template_context = text_contexts(context.case, context.prompt, description, describe=template != LIST)
    return context.templates.render(template, template_context[template])


def _hashes(context: GradingContext, properties: Mapping[str, Any], *templates: str) -> tuple[str, str]:
    return context.templates.digest(*templates), digest(properties)


def _question(instructions: str, properties: Mapping[str, Any], *parts: Any) -> Question:
    return Question(parts=(instructions, *parts), schema=object_schema(properties), names=tuple(properties))


def _reply_problems(names: Collection[str], data: Any) -> list[str]:
    if not isinstance(data, dict):
        return ["the answer is not a JSON object"]
    if missing := [name for name in names if name not in data]:
        return [f"the key {name!r} is missing" for name in missing]
    lines = data["lines"]
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        return ["'lines' is not a list of strings"]
    if len(lines) > MAX_LINES or sum(map(len, lines)) > MAX_LINE_CHARS:
        return [f"'lines' has over {MAX_LINES} lines or {MAX_LINE_CHARS:,} characters"]
    if "criteria_met" in names and not isinstance(data["criteria_met"], bool):
        return ["'criteria_met' is not true or false"]
    return []


def _readings(answer: Answer) -> tuple[Reading, ...]:
    return tuple(Reading(line) for item in answer.data["lines"] for line in item.splitlines() if line.strip())
