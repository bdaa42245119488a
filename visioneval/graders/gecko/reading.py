"""A judge's reply to "make questions": read with tolerance, checked without any, coverage counted. Pure.

Slips in the form of the reply are forgiven where none can hide a cut (``reply_json``); what a question says is not: one
that is unusable is dropped with the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from visioneval.graders.gecko.answers import choice_of
from visioneval.judging.ask import extra_keys_of, object_schema
from visioneval.providers.reply_json import UnreadableReplyError, read_objects
from visioneval.records.questions import DroppedQuestion
from visioneval.suite.questions import MAX_QUESTIONS, TYPES, YES_NO, GeckoQuestion, Media, folded_text

VIDEO_CHOICES = 4
MAX_READ = 10 * MAX_QUESTIONS
"""Questions of a reply that are looked at."""
_ITEM = re.compile(r"\{(\d{1,3})\}\s*\[([^\[\]]*)\]")
_LETTERED = re.compile(r"\(?([A-Za-z])[).:]\s*(\S.*)", re.DOTALL)
_NUMBER = re.compile(r"\d+(?:\.\d+)?|\.\d+")


@dataclass(frozen=True, slots=True)
class PromptItem:
    """A groundable word of a prompt. ``kind`` and ``weight`` (0 to 1) are those of a video's item."""

    text: str
    kind: str | None = None
    weight: float | None = None


@dataclass(frozen=True, slots=True)
class ParsedQuestions:
    """What a reply gives: the prompt with its items, the usable questions, and those that are not."""

    keywords: str
    questions: tuple[GeckoQuestion, ...]
    dropped: tuple[DroppedQuestion, ...]
    items: Mapping[int, PromptItem]
    about: Mapping[str, int]
    """For each question (by id) the number of its item."""
    extra_keys: Mapping[str, str] = field(default_factory=dict)
    """What was said beside what was asked (``judging.Answer``)."""


def questions_schema(media: Media) -> dict[str, Any]:
    """The JSON Schema of a reply."""
    text = {"type": "string"}
    texts = {"type": "array", "items": text}
    one: dict[str, Any] = {"id": text, "keyword": {"type": "integer"}, "question": text, "choices": texts}
    one |= {"answer": text, "justification": text, "depends_on": texts}
    if media == "image":
        one["type"] = {"type": "string", "enum": list(TYPES[media])}
    return object_schema({"keywords": text, "questions": {"type": "array", "items": object_schema(one)}})


def read_json(text: str) -> dict[str, Any]:
    """The JSON object of a reply, slips forgiven. Raises ``UnreadableReplyError``, as for a reply that was cut off."""
    objects = [each.value for each in read_objects(text)]
    fitting = [each for each in objects if "questions" in each]
    if len({json.dumps(each, sort_keys=True) for each in fitting}) > 1:
        raise UnreadableReplyError(f"the answer holds {len(fitting)} JSON objects that fit, and they differ")
    return (fitting or objects)[0]


def read_items(keywords: str, media: Media) -> dict[int, PromptItem]:
    """The numbered items of ``{1}[two] {2}[dogs]``, or of ``{1}[grapes, object, 1.0]`` for a video."""
    return {int(number): _item(inner, media) for number, inner in _ITEM.findall(keywords) if inner.strip()}


def _item(inner: str, media: Media) -> PromptItem:
    parts = [part.strip() for part in inner.rsplit(",", 2)] if media == "video" else [inner.strip()]
    if len(parts) == 3 and _NUMBER.fullmatch(parts[2]):
        return PromptItem(parts[0], " ".join(parts[1].casefold().split()), min(1.0, float(parts[2])))
    return PromptItem(inner.strip())


def read_questions(data: Any, media: Media) -> ParsedQuestions | str:
    """The questions of a reply, or what is wrong with all of it."""
    if not isinstance(data, dict) or not isinstance(data.get("questions"), list):
        return "the answer is not one whole JSON object with the keys 'keywords' and 'questions'"
    keywords = data.get("keywords")
    items = read_items(keywords, media) if isinstance(keywords, str) else {}
    if not items:
        form = "{1}[word]" if media == "image" else "{1}[word, type, 1.0]"
        return f"'keywords' does not number the items of the prompt in the form {form}"
    if len(data["questions"]) > MAX_READ:
        return f"there are {len(data['questions']):,} questions, over the limit of {MAX_READ}"
    kept: dict[str, GeckoQuestion] = {}
    dropped: list[DroppedQuestion] = []
    about: dict[str, int] = {}
    for at, raw in enumerate(data["questions"], 1):
        found = _usable(raw, at, media, items, kept)
        if isinstance(found, str):
            words = raw.get("question") if isinstance(raw, dict) else raw
            dropped.append(DroppedQuestion(question=_utf8(words)[:500], reason=_utf8(found)))
            continue
        kept[found.id] = found
        if isinstance(raw.get("keyword"), int):
            about[found.id] = raw["keyword"]
    if not kept:
        why = f": {dropped[0].reason}" if dropped else ""
        return f"no question is usable{why}"
    return ParsedQuestions(
        _utf8(keywords), tuple(kept.values()), tuple(dropped), items, about, _extra_keys(data, media)
    )


def _extra_keys(data: Mapping[str, Any], media: Media) -> dict[str, str]:
    return {_utf8(name): _utf8(value) for name, value in extra_keys_of(data, questions_schema(media)).items()}


def _utf8(value: Any) -> str:
    """Any value as text that a file can hold: JSON may bring lone surrogates."""
    return str(value).encode("utf-8", "replace").decode()


def coverage(made: ParsedQuestions, questions: Sequence[GeckoQuestion]) -> float:
    """The share of the items that one of the questions is about, 0 to 1."""
    asked = {made.about.get(question.id) for question in questions}
    return len(asked & made.items.keys()) / len(made.items)


def _usable(
    raw: Any, at: int, media: Media, items: Mapping[int, PromptItem], kept: Mapping[str, GeckoQuestion]
) -> GeckoQuestion | str:
    """A question, or why it cannot be asked."""
    if len(kept) >= MAX_QUESTIONS:
        return f"over the limit of {MAX_QUESTIONS} questions"
    if not isinstance(raw, dict):
        return "not an object"
    try:
        question = _validated(raw, at, media, items)
    except ValidationError as error:
        part = error.errors(include_url=False)[0]
        return str(part["ctx"]["error"]) if part["type"] == "value_error" else f"{part['loc'][0]}: {part['msg']}"
    if question.id in kept:
        return f"a second question with the id {question.id!r}"
    twin = next((q.id for q in kept.values() if folded_text(q.question) == folded_text(question.question)), None)
    if twin is not None:
        return f"the same question as {twin!r}"
    return _misfit(question, raw, media, items) or question


def _validated(raw: Mapping[str, Any], at: int, media: Media, items: Mapping[int, PromptItem]) -> GeckoQuestion:
    kind = raw.get("type")
    if media == "video":
        item = items.get(raw["keyword"]) if isinstance(raw.get("keyword"), int) else None
        kind = item.kind if item else None
    elif kind not in TYPES[media]:
        kind = "other"
    known = {key: raw[key] for key in ("id", "question", "answer", "depends_on") if raw.get(key) not in (None, "")}
    question = {
        "id": f"q{at}",
        "answer": "",
        **known,
        "type": kind or "?",
        "choices": _choices(raw.get("choices")),
        "justification": _utf8(raw.get("justification") or "")[:2000],
    }
    answer = _spelt_out(question)
    return GeckoQuestion.model_validate(question | ({"answer": answer} if answer else {}))


def _choices(raw: Any) -> Any:
    """Choices without the letters that some judges put before them; yes and no where there are none."""
    listed = list(raw.values()) if isinstance(raw, dict) else raw or list(YES_NO)
    if not isinstance(listed, list) or not all(isinstance(choice, str) for choice in listed):
        return listed
    found = [_LETTERED.fullmatch(choice.strip()) for choice in listed]
    letters = "".join(match[1].lower() for match in found if match)
    if len(letters) == len(listed) and "abcdefghijklmnopqrstuvwxyz".startswith(letters):
        return [match[2] for match in found if match]
    return listed


def _spelt_out(question: Mapping[str, Any]) -> str | None:
    """The choice that an answer given as a letter means; ``None`` where it is none."""
    try:
        shell = GeckoQuestion.model_validate({**question, "type": "other", "answer": question["choices"][0]})
    except (ValidationError, LookupError, TypeError):
        return None
    place = choice_of(shell, str(question["answer"]))
    return shell.choices[place] if place is not None and place < len(shell.choices) else None


def _misfit(
    question: GeckoQuestion, raw: Mapping[str, Any], media: Media, items: Mapping[int, PromptItem]
) -> str | None:
    """Why a question is none of its medium."""
    if media == "image":
        plain = {folded_text(choice) for choice in question.choices} == set(YES_NO)
        return None if plain else "its choices are not yes and no"
    if question.type not in TYPES[media]:
        return f"it is about the item {raw.get('keyword')!r:.40}, which has no known type"
    if len(question.choices) != VIDEO_CHOICES:
        return f"it has {len(question.choices)} choices, not {VIDEO_CHOICES}"
    own = raw.get("keyword")
    others = {folded_text(item.text) for number, item in items.items() if number != own}
    for at, choice in enumerate(question.choices):
        if at != question.expected and folded_text(choice) in others:
            return f"the wrong choice {choice!r} is another part of the prompt"
    return None
