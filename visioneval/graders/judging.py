"""Asking a judge for JSON: reading what it answers, and asking once more when that is off the schema."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from visioneval.errors import GraderError
from visioneval.providers.base import Question, Reply

Ask = Callable[[Question], Awaitable[Reply]]
Check = Callable[[Any], list[str]]
"""Says what is wrong with an answer; an empty list where nothing is."""

OFF_SHAPE = "the judge did not answer in shape"
"""What the error of such a grader says: its kept answers are of no use to a run that goes on."""
MAX_KEPT = 20_000
"""Characters of a reply that a record keeps."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that fits, and how it was got. ``how`` is ``repaired`` where mangled JSON had to be mended."""

    data: Any
    how: Literal["json", "extracted", "repaired"]
    replies: tuple[Reply, ...]

    @property
    def asked_again(self) -> bool:
        """Whether the first answer was off the schema."""
        return len(self.replies) > 1


class OffSchemaError(GraderError):
    """A judge that did not answer in shape, twice. ``replies`` are its words."""

    def __init__(self, message: str, replies: tuple[Reply, ...]) -> None:
        super().__init__(message)
        self.replies = replies


async def ask_for_json(
    ask: Ask, question: Question, check: Check, unrecorded: Mapping[str, Any] | None = None
) -> Answer:
    """Asks, and once more with what was wrong. Raises ``OffSchemaError`` where neither answer fits.

    ``unrecorded`` is what a file of recorded answers need not hold: it is filled in for the check alone.

    Mangled JSON is mended with json-repair only when the second answer is off too, and never where an answer was
    cut off: a number that lost its last digit would pass for another.
    """
    first = await ask(question)
    if first.shape == "recorded":
        return _recorded(first, check, unrecorded or {})
    data, how, problems = read_reply(first, check)
    if not problems:
        return Answer(data, how, (first,))
    second = await ask(again(question, first, problems))
    data, how, problems = read_reply(second, check)
    if not problems:
        return Answer(data, how, (first, second))
    for reply in (second, first):
        mended = None if reply.stopped else _mended(reply.text)
        if mended is not None and not check(mended):
            return Answer(mended, "repaired", (first, second))
    raise OffSchemaError(f"{OFF_SHAPE}: {'; '.join(problems[:3])}", (first, second))


def _recorded(reply: Reply, check: Check, unrecorded: Mapping[str, Any]) -> Answer:
    data = json.loads(reply.text)
    if problems := check({**unrecorded, **data}):
        raise OffSchemaError(f"the recorded answer does not fit: {'; '.join(problems[:3])}", (reply,))
    return Answer(data, "json", (reply,))


def again(question: Question, reply: Reply, problems: list[str]) -> Question:
    """The same question with what was wrong with its last answer."""
    said = reply.text.strip()[:2000] or "(nothing)"
    wrong = "\n".join(f"- {problem}" for problem in problems[:10])
    note = (
        f"Your last answer could not be used:\n{wrong}\n\nIt was:\n{said}\n\n"
        "Answer again with one JSON object of the form that was asked for, and nothing else."
    )
    return replace(question, parts=(*question.parts, note))


def read_reply(reply: Reply, check: Check) -> tuple[Any, Literal["json", "extracted"], list[str]]:
    """The JSON of a reply, whether it stood alone or among other words, and what is wrong with it."""
    text = reply.text.strip()
    if reply.stopped:
        return None, "json", [f"the answer was cut off ({reply.stopped})"]
    if not text:
        return None, "json", ["the answer was empty"]
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        faults = [f"not JSON: {error}"]
    else:
        return data, "json", check(data)
    for at, candidate in enumerate(_objects(text)):
        problems = check(candidate)
        if not problems:
            return candidate, "extracted", []
        faults = faults if at else problems
    return None, "json", faults


def _objects(text: str) -> list[Any]:
    """JSON objects that stand in a fence or in the middle of prose, the last first: it is the conclusion."""
    found = []
    start = text.find("{")
    while start >= 0:
        try:
            data, end = json.JSONDecoder().raw_decode(text, start)
        except (ValueError, RecursionError):
            start = text.find("{", start + 1)
            continue
        found.append(data)
        start = text.find("{", end)
    return found[::-1]


def _mended(text: str) -> Any:
    from json_repair import repair_json

    return repair_json(text, return_objects=True) if "{" in text else None


def told(answer: Answer) -> dict[str, Any]:
    """What the record keeps of how an answer was got; the judge's words where the first were not usable."""
    last = answer.replies[-1]
    kept: dict[str, Any] = {"judge": last.model, "reply_shape": last.shape}
    if answer.how != "json":
        kept["read"] = [answer.how]
    if answer.asked_again:
        kept |= {"asked_again": 1, "replies": words(answer.replies)}
    return kept


def words(replies: Iterable[Reply]) -> list[str]:
    """What a judge said, at a length that a record can hold."""
    return [reply.text[:MAX_KEPT] for reply in replies]


def total_usage(replies: tuple[Reply, ...]) -> dict[str, int] | None:
    """The tokens of several replies together, by kind; ``None`` where none was told."""
    sums: dict[str, int] = {}
    for reply in replies:
        for kind, tokens in (reply.usage or {}).items():
            sums[kind] = sums.get(kind, 0) + tokens
    return sums or None


def total_cost(replies: tuple[Reply, ...]) -> float | None:
    """What several replies cost together; ``None`` where any of it is not known."""
    costs = [reply.cost_usd for reply in replies]
    return None if not costs or any(cost is None for cost in costs) else sum(cost or 0.0 for cost in costs)


def object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object with exactly these properties, in the form that strict mode takes."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }
