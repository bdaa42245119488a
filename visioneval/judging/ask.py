"""Asking a judge for JSON: reading what it answers, and asking once more when that is off the schema."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from visioneval.aio import run_in_thread
from visioneval.errors import GraderError
from visioneval.providers.base import Question, Reply
from visioneval.providers.reply_json import JSONObject, UnreadableReplyError, read_objects

Ask = Callable[[Question], Awaitable[Reply]]
Check = Callable[[Any], list[str]]
"""Says what is wrong with an answer; an empty list where nothing is."""
How = Literal["json", "extracted", "repaired"]

OFF_SHAPE = "the judge did not answer in shape"
MAX_KEPT = 20_000
"""Characters of a reply that a record keeps."""
SHORT = 10_000
"""Characters of a reply that is read in less time than it takes to have a thread do it."""
MAX_EXTRA_KEYS = 20
"""Keys that nobody asked for which a record names, each with the first characters of its value."""
_MAX_EXTRA_CHARS = 200


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that fits, and how it was got. ``how`` is ``repaired`` where slips in its JSON were forgiven."""

    data: Any
    how: How
    replies: tuple[Reply, ...]
    extra_keys: Mapping[str, str] = field(default_factory=dict)
    """Keys that were not asked for, by their path, and the beginnings of their values as JSON."""

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
    """Asks; where neither of two answers fits and both came from the cache, asks the judge itself.

    Raises ``OffSchemaError`` and ``ProviderError``.
    """
    try:
        return await exchange(ask, question, check, unrecorded)
    except OffSchemaError as error:
        if not all(reply.from_cache for reply in error.replies):
            raise
    return await exchange(past_cache(ask), question, check, unrecorded)


def past_cache(ask: Ask) -> Ask:
    """Asks judges themselves where the cache holds answers that are of no use."""

    async def asked(question: Question) -> Reply:
        return await ask(replace(question, past_cache=True))

    return asked


async def exchange(ask: Ask, question: Question, check: Check, unrecorded: Mapping[str, Any] | None = None) -> Answer:
    """Asks, and once more with what was wrong. Raises ``OffSchemaError`` where neither answer fits.

    ``unrecorded`` is what a file of recorded answers need not hold: it is filled in for the check alone.

    An answer with slips in its JSON is used only when the second answer is off too, and one that was cut off never: a
    number that lost its last digit would pass for another.
    """
    first = await ask(question)
    if first.shape == "recorded":
        return _recorded(first, check, unrecorded or {})
    one = await _read(first, check)
    if one.is_clean:
        return _answer(one, question, first)
    second = await ask(again(question, first, one.problems))
    other = await _read(second, check)
    found = next((each for each in (other, one) if each.how is not None), None)
    if found is None:
        raise OffSchemaError(f"{OFF_SHAPE}: {'; '.join(other.problems[:3])}", (first, second))
    return _answer(found, question, first, second)


def _answer(reading: Reading, question: Question, *replies: Reply) -> Answer:
    assert reading.how is not None
    return Answer(reading.data, reading.how, replies, extra_keys_of(reading.data, question.schema))


def _recorded(reply: Reply, check: Check, unrecorded: Mapping[str, Any]) -> Answer:
    data = json.loads(reply.text)
    if problems := check({**unrecorded, **data}):
        raise OffSchemaError(f"the recorded answer does not fit: {'; '.join(problems[:3])}", (reply,))
    return Answer(data, "json", (reply,))


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reply says. ``how`` is ``None`` where nothing in it can be used; ``problems`` also name forgiven slips."""

    data: Any = None
    how: How | None = None
    problems: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether it is an answer without any slip."""
        return self.how in ("json", "extracted")


async def _read(reply: Reply, check: Check) -> Reading:
    return await run_in_thread(read_reply, reply, check, when=len(reply.text) > SHORT)


def read_reply(reply: Reply, check: Check) -> Reading:
    """The one JSON object of a reply that passes the check; of several that differ none is the answer."""
    if reply.stopped:
        return Reading(problems=(f"the answer was cut off ({reply.stopped})",))
    if not reply.text.strip():
        return Reading(problems=("the answer was empty",))
    try:
        objects = read_objects(reply.text)
    except UnreadableReplyError as error:
        return Reading(problems=(str(error),))
    faults = [check(each.value) for each in objects]
    fitting = [each for each, wrong in zip(objects, faults, strict=True) if not wrong]
    if not fitting:
        return Reading(problems=tuple(faults[-1]))
    if len({json.dumps(each.value, sort_keys=True) for each in fitting}) > 1:
        return Reading(problems=(f"the answer holds {len(fitting)} JSON objects that fit, and they differ",))
    return _reading(min(fitting, key=lambda each: each.repair is not None))


def _reading(found: JSONObject) -> Reading:
    if found.repair:
        return Reading(found.value, "repaired", (f"not JSON: {found.repair}",))
    return Reading(found.value, "json" if found.is_alone else "extracted")


def extra_keys_of(data: Any, schema: Mapping[str, Any] | None) -> dict[str, str]:
    """The keys of an answer that its schema does not name, by their path: they are ignored, but on record."""
    found: dict[str, str] = {}
    for path, value in _extra_keys(data, schema or {}, ""):
        if len(found) == MAX_EXTRA_KEYS:
            break
        found[path[:_MAX_EXTRA_CHARS]] = json.dumps(value, ensure_ascii=False)[:_MAX_EXTRA_CHARS]
    return found


def _extra_keys(data: Any, schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(data, dict) and "properties" in schema:
        for key, value in data.items():
            place = f"{path}.{key}" if path else key
            if key in schema["properties"]:
                yield from _extra_keys(value, schema["properties"][key], place)
            else:
                yield place, value
    elif isinstance(data, list) and "items" in schema:
        for at, item in enumerate(data):
            yield from _extra_keys(item, schema["items"], f"{path}[{at}]")


def again(question: Question, reply: Reply, problems: Sequence[str]) -> Question:
    """The same question with what was wrong with its last answer."""
    said = reply.text.strip()[:2000] or "(nothing)"
    wrong = "\n".join(f"- {problem}" for problem in problems[:10])
    note = (
        f"Your last answer could not be used:\n{wrong}\n\nIt was:\n{said}\n\n"
        "Answer again with one JSON object of the form that was asked for, and nothing else."
    )
    return replace(question, parts=(*question.parts, note))


def told(answer: Answer) -> dict[str, Any]:
    """What the record keeps of how an answer was got; the judge's words where the first were not usable."""
    last = answer.replies[-1]
    kept: dict[str, Any] = {"judge": last.model, "reply_shape": last.shape}
    if answer.how != "json":
        kept["read"] = [answer.how]
    if answer.extra_keys:
        kept["extra_keys"] = dict(answer.extra_keys)
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


_KINDS: Mapping[str, Any] = {
    "boolean": bool,
    "string": str,
    "number": (int, float),
    "integer": int,
    "array": list,
    "object": dict,
    "null": type(None),
}


def misfits(answers: Mapping[str, Mapping[str, Any]], data: Any) -> list[str]:
    """What is wrong with an object that is to hold an answer for each name, by ``type``, ``enum`` and limits."""
    if not isinstance(data, dict):
        return ["the answer is not a JSON object"]
    missing = [f"the key {name!r} is missing" for name in answers if name not in data]
    return missing or [f"{name}: {why}" for name, schema in answers.items() for why in _misfit(schema, data[name])]


def _misfit(schema: Mapping[str, Any], value: Any) -> list[str]:
    kind, shown = str(schema.get("type")), f"{value!r:.60}"
    if kind in _KINDS and (not isinstance(value, _KINDS[kind]) or isinstance(value, bool) != (kind == "boolean")):
        return [f"{shown} is not of the type {kind}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{shown} is not one of {', '.join(map(str, schema['enum']))}"]
    if kind in ("number", "integer") and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return [f"{shown} is outside {schema.get('minimum', 'any')} to {schema.get('maximum', 'any')}"]
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        return [why for item in value for why in _misfit(schema["items"], item)]
    return []
