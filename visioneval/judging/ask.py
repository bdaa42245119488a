"""Asks a judge for JSON, checks the reply against a schema, and retries once if it does not match; combines votes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from visioneval.errors import GraderError
from visioneval.providers.base import Question, Reply
from visioneval.providers.reply_json import UnreadableReplyError, read_objects, typed_value
from visioneval.types import Score

Ask = Callable[[Question], Awaitable[Reply]]
Check = Callable[[Any], list[str]]
"""Returns the problems with an answer; empty if there are none."""
How = Literal["json", "extracted", "repaired"]

OFF_SHAPE = "the judge's answer does not match the schema"
MAX_REPLY_CHARS = 20_000
"""The most characters of a reply that a record stores."""
MAX_EXTRA_KEYS = 20
"""The most unrequested keys that a record lists, each with the first characters of its value."""
_MAX_EXTRA_CHARS = 200


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that matches the schema. ``how`` is ``repaired`` if small JSON errors were tolerated."""

    data: Any
    how: How
    replies: tuple[Reply, ...]
    extra_keys: Mapping[str, str] = field(default_factory=dict)
    """Unrequested keys by path, with the first characters of their values as JSON."""

    @property
    def asked_again(self) -> bool:
        """Whether the first answer did not match the schema."""
        return len(self.replies) > 1


class OffSchemaError(GraderError):
    """The judge's reply did not match the schema, twice. ``replies`` holds both replies.

    ``objects`` are the JSON objects in them, the last one first, where a reply has one and is complete.
    """

    def __init__(self, message: str, replies: tuple[Reply, ...], objects: tuple[Mapping[str, Any], ...] = ()) -> None:
        super().__init__(message)
        self.replies = replies
        self.objects = objects


async def ask_for_json(
    ask: Ask, question: Question, check: Check, unrecorded: Mapping[str, Any] | None = None
) -> Answer:
    """Asks the judge. If two replies do not match and both came from the cache, asks without the cache.

    Raises ``OffSchemaError`` and ``ProviderError``.
    """
    try:
        return await exchange(ask, question, check, unrecorded)
    except OffSchemaError as error:
        if not all(reply.from_cache for reply in error.replies):
            raise
    return await exchange(past_cache(ask), question, check, unrecorded)


def past_cache(ask: Ask) -> Ask:
    """Asks without the cache, for questions whose cached answers are unusable."""
    return lambda question: ask(replace(question, past_cache=True))


async def exchange(ask: Ask, question: Question, check: Check, unrecorded: Mapping[str, Any] | None = None) -> Answer:
    """Asks, and retries once with the list of problems. Raises ``OffSchemaError`` if neither answer matches.

    ``unrecorded`` are defaults for keys that a file of recorded answers may omit, used only for the check.

    An answer with JSON errors is used only if the second answer does not match either. A truncated one is never used:
    a number without its last digit would pass for another number.
    """
    first_reply = await ask(question)
    if first_reply.shape == "recorded":
        data = json.loads(first_reply.text)
        if problems := check({**(unrecorded or {}), **data}):
            message = f"the recorded answer does not match the schema: {'; '.join(problems[:3])}"
            raise OffSchemaError(message, (first_reply,), (data,))
        return Answer(data, "json", (first_reply,))
    first_reading = read_reply(first_reply, check, question.schema)
    if first_reading.is_clean:
        return _answer(first_reading, question, first_reply)
    second_reply = await ask(retry_question(question, first_reply, first_reading.problems))
    second_reading = read_reply(second_reply, check, question.schema)
    usable = next((reading for reading in (second_reading, first_reading) if reading.how is not None), None)
    if usable is None:
        objects = tuple(data for data in (second_reading.data, first_reading.data) if data is not None)
        message = f"{OFF_SHAPE}: {'; '.join(second_reading.problems[:3])}"
        raise OffSchemaError(message, (first_reply, second_reply), objects)
    return _answer(usable, question, first_reply, second_reply)


def _answer(reading: ReadReply, question: Question, *replies: Reply) -> Answer:
    assert reading.how is not None
    return Answer(reading.data, reading.how, replies, extra_keys_of(reading.data, question.schema))


@dataclass(frozen=True, slots=True)
class ReadReply:
    """A parsed reply. ``how`` is ``None`` if it does not match; ``problems`` also lists tolerated JSON errors.

    One that does not match has ``data`` too, if it has one JSON object.
    """

    data: Any = None
    how: How | None = None
    problems: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether the answer is valid JSON."""
        return self.how in ("json", "extracted")


def read_reply(reply: Reply, check: Check, schema: Mapping[str, Any] | None = None) -> ReadReply:
    """Finds the JSON object in a reply that passes the check. Several different ones make the reply unusable.

    Values that are unambiguous get the types of the schema first (see ``typed_value``).
    """
    if reply.unreadable:
        return ReadReply(problems=(reply.unreadable,))
    if reply.stopped:
        return ReadReply(problems=(f"the answer was cut off ({reply.stopped})",))
    if not reply.text.strip():
        return ReadReply(problems=("the answer was empty",))
    try:
        objects = [
            replace(parsed, value=typed_value(parsed.value, schema or {})) for parsed in read_objects(reply.text)
        ]
    except UnreadableReplyError as error:
        return ReadReply(problems=(str(error),))
    problems = [check(parsed.value) for parsed in objects]
    valid = [parsed for parsed, mismatches in zip(objects, problems, strict=True) if not mismatches]
    if not valid:
        return ReadReply(objects[0].value if len(objects) == 1 else None, problems=tuple(problems[-1]))
    if len({json.dumps(parsed.value, sort_keys=True) for parsed in valid}) > 1:
        return ReadReply(problems=(f"the answer contains {len(valid)} different JSON objects that match the schema",))
    parsed = min(valid, key=lambda parsed: parsed.repair is not None)
    if parsed.repair:
        return ReadReply(parsed.value, "repaired", (f"not JSON: {parsed.repair}",))
    return ReadReply(parsed.value, "json" if parsed.is_alone else "extracted")


def extra_keys_of(data: Any, schema: Mapping[str, Any] | None) -> dict[str, str]:
    """The keys of an answer that its schema does not define, by path. They are ignored, but recorded."""
    extra: dict[str, str] = {}
    for path, value in _extra_keys(data, schema or {}, ""):
        if len(extra) == MAX_EXTRA_KEYS:
            break
        extra[path[:_MAX_EXTRA_CHARS]] = json.dumps(value, ensure_ascii=False)[:_MAX_EXTRA_CHARS]
    return extra


def _extra_keys(data: Any, schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(data, dict) and "properties" in schema:
        for key, value in data.items():
            key_path = f"{path}.{key}" if path else key
            if key in schema["properties"]:
                yield from _extra_keys(value, schema["properties"][key], key_path)
            else:
                yield key_path, value
    elif isinstance(data, list) and "items" in schema:
        for index, item in enumerate(data):
            yield from _extra_keys(item, schema["items"], f"{path}[{index}]")


def retry_question(question: Question, reply: Reply, problems: Sequence[str]) -> Question:
    """The same question plus the problems with the last answer."""
    text = reply.text.strip()[:2000] or "(nothing)"
    listed = "\n".join(f"- {problem}" for problem in problems[:10])
    form = "in" if question.schema is None else "with one JSON object of"
    note = (
        f"Your last answer could not be used:\n{listed}\n\nIt was:\n{text}\n\n"
        f"Answer again {form} the form that was asked for, and nothing else."
    )
    return replace(question, parts=(*question.parts, note))


def answer_details(*answers: Answer) -> dict[str, Any]:
    """The details of the last answer for the record, with the replies if its first one was unusable.

    ``read`` is about all of the answers.
    """
    answer = answers[-1]
    last_reply = answer.replies[-1]
    details: dict[str, Any] = {"judge": last_reply.model, "reply_shape": last_reply.shape}
    if read := sorted({each.how for each in answers} - {"json"}):
        details["read"] = read
    if answer.extra_keys:
        details["extra_keys"] = dict(answer.extra_keys)
    if answer.asked_again:
        details |= {"asked_again": 1, "replies": reply_texts(answer.replies)}
    return details


def reply_texts(replies: Iterable[Reply]) -> list[str]:
    """The texts of replies, shortened for the record."""
    return [reply.text[:MAX_REPLY_CHARS] for reply in replies]


def object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a JSON object with exactly these properties, as strict mode requires it."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


_KINDS: Mapping[str, Any] = {
    "boolean": bool,
    "string": str,
    "number": (int, float),
    "integer": int,
    "array": list,
    "object": dict,
    "null": type(None),
}


def schema_problems(answers: Mapping[str, Mapping[str, Any]], data: Any) -> list[str]:
    """The problems with an object that must contain an answer for each name: ``type``, ``enum`` and limits."""
    if not isinstance(data, dict):
        return ["the answer is not a JSON object"]
    missing = [f"the key {name!r} is missing" for name in answers if name not in data]
    return missing or [
        f"{name}: {problem}" for name, schema in answers.items() for problem in _value_problems(schema, data[name])
    ]


def _value_problems(schema: Mapping[str, Any], value: Any) -> list[str]:
    kind, text = str(schema.get("type")), f"{value!r:.60}"
    if kind in _KINDS and (not isinstance(value, _KINDS[kind]) or isinstance(value, bool) != (kind == "boolean")):
        return [f"{text} is not of the type {kind}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{text} is not one of {', '.join(map(str, schema['enum']))}"]
    if kind in ("number", "integer") and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return [f"{text} is outside {schema.get('minimum', 'any')} to {schema.get('maximum', 'any')}"]
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        return [problem for item in value for problem in _value_problems(schema["items"], item)]
    return []


AnswerT = TypeVar("AnswerT", bound=Hashable)


def combined_vote(values: Sequence[Score]) -> Score:
    """The most frequent word, or yes or no, or the median of numbers; ``None`` if half of the votes or more are lost.

    ``values`` are the votes in the order in which they were asked, ``None`` for a lost one. The first vote for one of
    the most frequent answers decides a tie, and an even number of numbers has the mean of the two middle ones. With two
    votes, the expected score is then the judge's own rate or mean. A tie rule that always says no would turn a rate of
    .9 into .81.
    """
    counted = usable_votes(values)
    if len(counted) * 2 <= len(values):
        return None
    return most_frequent(counted) if isinstance(counted[0], (bool, str)) else median(counted)


def median(values: Sequence[int | float]) -> int | float:
    """The median of one or more numbers; of an even number, the mean of the two middle ones."""
    low, high = _middle(values)
    return low if low == high else (low + high) / 2


def most_frequent(votes: Sequence[AnswerT]) -> AnswerT:
    """The most frequent of one or more answers in order; the first vote for one of them decides a tie."""
    return Counter(votes).most_common(1)[0][0]


def is_tie(values: Sequence[Score]) -> bool:
    """Whether the tie rule decided: two answers are the most frequent ones, or the two middle numbers differ."""
    counted = usable_votes(values)
    if len(counted) * 2 <= len(values):
        return False
    if isinstance(counted[0], (bool, str)):
        times = sorted(Counter(counted).values())
        return len(times) > 1 and times[-1] == times[-2]
    low, high = _middle(counted)
    return low != high


def usable_votes(values: Sequence[Score]) -> list[Any]:
    """The votes that are not lost, in order."""
    return [value for value in values if value is not None]


def _middle(values: Sequence[int | float]) -> tuple[int | float, int | float]:
    """The two middle values, which are the same one if their number is odd."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
