"""Text read by a vision judge: line by line from the image, or by way of a description of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from visioneval.graders.base import GradingContext
from visioneval.graders.text.config import CHECK, DESCRIBE, LIST, TextGrader, text_contexts
from visioneval.graders.text.copy_match import Reading
from visioneval.judging.ask import (
    MAX_KEPT,
    Answer,
    Ask,
    OffSchemaError,
    ask_for_json,
    object_schema,
    told,
    total_cost,
    total_usage,
)
from visioneval.plan import digest
from visioneval.providers.base import Question, Reply
from visioneval.templates.render import render_file, template_digest

_LINES = {"lines": {"type": "array", "items": {"type": "string"}}}
_DESCRIBED = {"description": {"type": "string"}}
_CHECKED = {**_LINES, "criteria_met": {"type": "boolean"}, "reason": {"type": "string"}}

MAX_LINES = 1000
"""Lines that a judge may have read; an image does not show more."""
MAX_LINE_CHARS = 20_000
"""Characters of all these lines together."""


@dataclass(frozen=True, slots=True)
class Read:
    """What the judge read. ``criteria_met`` is ``None`` unless it went by a description of a case with criteria."""

    readings: tuple[Reading, ...]
    details: Mapping[str, Any]
    replies: tuple[Reply, ...]
    template_sha256: str
    schema_sha256: str
    criteria_met: bool | None = None
    reason: str = ""

    @property
    def usage(self) -> dict[str, int] | None:
        """Tokens of all calls, by kind."""
        return total_usage(self.replies)

    @property
    def cost_usd(self) -> float | None:
        """Cost of all calls; ``None`` where any of it is not known."""
        return total_cost(self.replies)


async def read(subject: GradingContext, config: TextGrader) -> Read:
    """Asks the judge.

    Raises ``OffSchemaError`` where it never answers in shape, and ``ProviderError``.
    """
    ask = partial(subject.ask_judge, config.judge)
    part = await asyncio.to_thread(subject.show, subject.generated.path)
    if not config.describe:
        answer = await ask_for_json(ask, _question(_words(LIST, subject), _LINES, part), partial(_faults, _LINES))
        return Read(_readings(answer), told(answer), answer.replies, *_hashes(subject, _LINES, LIST))
    question = _question(_words(DESCRIBE, subject), _DESCRIBED, part)
    described = await ask_for_json(ask, question, _description_faults, {"description": "-"})
    answer = await _checked(ask, subject, described)
    return Read(
        _readings(answer),
        {**told(answer), "description": _description(described)[:MAX_KEPT]},
        (*described.replies, *answer.replies),
        *_hashes(subject, {**_DESCRIBED, **_CHECKED}, DESCRIBE, CHECK),
        criteria_met=answer.data.get("criteria_met") if subject.case.criteria else None,
        reason=str(answer.data.get("reason", "")),
    )


async def _checked(ask: Ask, subject: GradingContext, described: Answer) -> Answer:
    """The second call, which sees no image."""
    question = _question(_words(CHECK, subject, _description(described)), _CHECKED)
    try:
        return await ask_for_json(ask, question, partial(_faults, _CHECKED), {"criteria_met": True, "reason": ""})
    except OffSchemaError as error:
        raise OffSchemaError(str(error), (*described.replies, *error.replies)) from None


def _description(answer: Answer) -> str:
    return str(answer.data.get("description", ""))


def _description_faults(data: Any) -> list[str]:
    """A description is a value of a JSON object, as prose that was cut off looks like prose."""
    words = data.get("description") if isinstance(data, dict) else None
    return [] if isinstance(words, str) and words.strip() else ["'description' is not text, or empty"]


def _words(template: str, subject: GradingContext, description: str = "") -> str:
    seen = text_contexts(subject.case, subject.prompt, description, describe=template != LIST)
    return render_file(template, subject.template_folders, seen[template])


def _hashes(subject: GradingContext, properties: Mapping[str, Any], *templates: str) -> tuple[str, str]:
    return template_digest(templates, subject.template_folders), digest(properties)


def _question(words: str, properties: Mapping[str, Any], *parts: Any) -> Question:
    return Question(parts=(words, *parts), schema=object_schema(properties), names=tuple(properties))


def _faults(names: Iterable[str], data: Any) -> list[str]:
    if not isinstance(data, dict):
        return ["the answer is not a JSON object"]
    if missing := [name for name in names if name not in data]:
        return [f"the key {name!r} is missing" for name in missing]
    lines = data["lines"]
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        return ["'lines' is not a list of texts"]
    if len(lines) > MAX_LINES or sum(map(len, lines)) > MAX_LINE_CHARS:
        return [f"'lines' holds over {MAX_LINES} lines or {MAX_LINE_CHARS:,} characters"]
    if "criteria_met" in data and not isinstance(data["criteria_met"], bool):
        return ["'criteria_met' is neither true nor false"]
    return []


def _readings(answer: Answer) -> tuple[Reading, ...]:
    return tuple(Reading(line) for item in answer.data["lines"] for line in item.splitlines() if line.strip())
