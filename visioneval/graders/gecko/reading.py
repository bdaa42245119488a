"""Parses a judge's reply with generated questions, checks each question, and computes the coverage. Pure.

Small JSON errors are tolerated if they cannot hide a truncated reply (``reply_json``). Questions are checked strictly:
an unusable one is dropped, with the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from visioneval.graders.gecko.choices import choice_of
from visioneval.judging.ask import extra_keys_of, object_schema
from visioneval.providers.reply_json import UnreadableReplyError, read_objects
from visioneval.records.questions import DroppedQuestion
from visioneval.suite.cases.question_forms import question_list
from visioneval.suite.cases.questions import MAX_QUESTIONS, TYPES, YES_NO, GeckoQuestion, Media, folded_text

VIDEO_CHOICES = 4
MAX_READ = 10 * MAX_QUESTIONS
"""The most questions read from one reply."""
_ITEM = re.compile(r"\{(\d{1,3})\}\s*\[([^\[\]]*)\]")
_LETTERED = re.compile(r"\(?([A-Za-z])[).:]\s*(\S.*)", re.DOTALL)
_NUMBER = re.compile(r"\d+(?:\.\d+)?|\.\d+")


@dataclass(frozen=True, slots=True)
class PromptItem:
    """A groundable word of a prompt. Only items of videos have ``kind`` and ``weight`` (0 to 1)."""

    text: str
    kind: str | None = None
    weight: float | None = None


@dataclass(frozen=True, slots=True)
class ParsedQuestions:
    """A parsed reply: the prompt with its items, the usable questions, and the dropped ones."""

    keywords: str
    questions: tuple[GeckoQuestion, ...]
    dropped: tuple[DroppedQuestion, ...]
    items: Mapping[int, PromptItem]
    about: Mapping[str, int]
    """For each question (by id) the number of its item."""
    extra_keys: Mapping[str, str] = field(default_factory=dict)
    """Keys that were not asked for (see ``judging.ask.Answer``)."""


def questions_schema(media: Media) -> dict[str, Any]:
    """The JSON Schema of a reply."""
    text = {"type": "string"}
    texts = {"type": "array", "items": text}
    properties: dict[str, Any] = {"id": text, "keyword": {"type": "integer"}, "question": text, "choices": texts}
    properties |= {"answer": text, "justification": text, "depends_on": texts}
    if media == "image":
        properties["type"] = {"type": "string", "enum": list(TYPES[media])}
    return object_schema({"keywords": text, "questions": {"type": "array", "items": object_schema(properties)}})


def read_json(text: str) -> dict[str, Any]:
    """The JSON object of a reply, small errors tolerated. Raises ``UnreadableReplyError``, also if it is truncated."""
    objects = [_with_our_names(candidate.value) for candidate in read_objects(text)]
    valid = [candidate for candidate in objects if "questions" in candidate]
    if len({json.dumps(candidate, sort_keys=True) for candidate in valid}) > 1:
        raise UnreadableReplyError(f"the answer contains {len(valid)} different JSON objects with questions")
    return (valid or objects)[0]


def _with_our_names(data: dict[str, Any]) -> dict[str, Any]:
    """A reply in the form of the published Gecko: a list ``qas``, whose ``question_id`` is the number of an item."""
    if "questions" in data or not isinstance(data.get("qas"), list):
        return data
    try:
        listed = question_list(data["qas"])
    except ValueError as error:
        raise UnreadableReplyError(str(error)) from None
    questions = [{"keyword": raw.get("id"), **raw} if isinstance(raw, dict) else raw for raw in listed]
    return {**{key: value for key, value in data.items() if key != "qas"}, "questions": questions}


def read_items(keywords: str, media: Media) -> dict[int, PromptItem]:
    """The numbered items of ``{1}[two] {2}[dogs]``, or of ``{1}[grapes, object, 1.0]`` for a video."""
    return {int(number): _item(inner, media) for number, inner in _ITEM.findall(keywords) if inner.strip()}


def _item(inner: str, media: Media) -> PromptItem:
    parts = [part.strip() for part in inner.rsplit(",", 2)] if media == "video" else [inner.strip()]
    if len(parts) == 3 and _NUMBER.fullmatch(parts[2]):
        return PromptItem(parts[0], " ".join(parts[1].casefold().split()), min(1.0, float(parts[2])))
    return PromptItem(inner.strip())


def read_questions(data: Any, media: Media) -> ParsedQuestions | str:
    """The questions of a reply, or the problem with the whole reply."""
    if not isinstance(data, dict) or not isinstance(data.get("questions"), list):
        return "the answer is not a complete JSON object with the keys 'keywords' and 'questions'"
    keywords = data.get("keywords")
    items = read_items(keywords, media) if isinstance(keywords, str) else {}
    if not items:
        form = "{1}[word]" if media == "image" else "{1}[word, type, 1.0]"
        return f"'keywords' does not number the items of the prompt in the form {form}"
    if len(data["questions"]) > MAX_READ:
        return f"there are {len(data['questions']):,} questions, over the limit of {MAX_READ}"
    questions: dict[str, GeckoQuestion] = {}
    dropped: list[DroppedQuestion] = []
    about: dict[str, int] = {}
    for number, raw in enumerate(data["questions"], 1):
        result = _read_question(raw, number, media, items, questions)
        if isinstance(result, str):
            text = raw.get("question") if isinstance(raw, dict) else raw
            dropped.append(DroppedQuestion(question=_utf8(text)[:500], reason=_utf8(result)))
            continue
        questions[result.id] = result
        if isinstance(raw.get("keyword"), int):
            about[result.id] = raw["keyword"]
    if not questions:
        cause = f": {dropped[0].reason}" if dropped else ""
        return f"no question is usable{cause}"
    return ParsedQuestions(
        _utf8(keywords), tuple(questions.values()), tuple(dropped), items, about, _extra_keys(data, media)
    )


def _extra_keys(data: Mapping[str, Any], media: Media) -> dict[str, str]:
    return {_utf8(name): _utf8(value) for name, value in extra_keys_of(data, questions_schema(media)).items()}


def _utf8(value: Any) -> str:
    """A value as text that can be written as UTF-8: JSON may contain lone surrogates."""
    return str(value).encode("utf-8", "replace").decode()


def coverage(parsed: ParsedQuestions, questions: Sequence[GeckoQuestion]) -> float:
    """The share of the items that have at least one question, 0 to 1."""
    asked = {parsed.about.get(question.id) for question in questions}
    return len(asked & parsed.items.keys()) / len(parsed.items)


def _read_question(
    raw: Any, number: int, media: Media, items: Mapping[int, PromptItem], questions: Mapping[str, GeckoQuestion]
) -> GeckoQuestion | str:
    """The question, or the reason why it cannot be used."""
    if len(questions) >= MAX_QUESTIONS:
        return f"over the limit of {MAX_QUESTIONS} questions"
    if not isinstance(raw, dict):
        return "not an object"
    try:
        question = _validated(raw, number, media, items)
    except ValidationError as error:
        part = error.errors(include_url=False)[0]
        return str(part["ctx"]["error"]) if part["type"] == "value_error" else f"{part['loc'][0]}: {part['msg']}"
    if question.id in questions:
        return f"another question has the id {question.id!r}"
    duplicate = next(
        (other.id for other in questions.values() if folded_text(other.question) == folded_text(question.question)),
        None,
    )
    if duplicate is not None:
        return f"the same question as {duplicate!r}"
    return _media_problem(question, raw, media, items) or question


def _validated(raw: Mapping[str, Any], number: int, media: Media, items: Mapping[int, PromptItem]) -> GeckoQuestion:
    kind = raw.get("type")
    if media == "video":
        item = items.get(raw["keyword"]) if isinstance(raw.get("keyword"), int) else None
        kind = item.kind if item else None
    elif kind not in TYPES[media]:
        kind = "other"
    fields = {key: raw[key] for key in ("id", "question", "answer", "depends_on") if raw.get(key) not in (None, "")}
    question = {
        "id": f"q{number}",
        "answer": "",
        **fields,
        "type": kind or "?",
        "choices": _choices(raw.get("choices")),
        "justification": _utf8(raw.get("justification") or "")[:2000],
    }
    answer = _choice_for_letter(question)
    return GeckoQuestion.model_validate(question | ({"answer": answer} if answer else {}))


def _choices(raw: Any) -> Any:
    """The choices without leading letters, which some judges add; yes and no if there are none."""
    listed = list(raw.values()) if isinstance(raw, dict) else raw or list(YES_NO)
    if not isinstance(listed, list) or not all(isinstance(choice, str) for choice in listed):
        return listed
    matches = [_LETTERED.fullmatch(choice.strip()) for choice in listed]
    letters = "".join(match[1].lower() for match in matches if match)
    if len(letters) == len(listed) and "abcdefghijklmnopqrstuvwxyz".startswith(letters):
        return [match[2] for match in matches if match]
    return listed


def _choice_for_letter(question: Mapping[str, Any]) -> str | None:
    """The choice that a letter stands for; ``None`` if the answer is not a letter."""
    try:
        candidate = GeckoQuestion.model_validate({**question, "type": "other", "answer": question["choices"][0]})
    except (ValidationError, LookupError, TypeError):
        return None
    index = choice_of(candidate, str(question["answer"]))
    return candidate.choices[index] if index is not None and index < len(candidate.choices) else None


def _media_problem(
    question: GeckoQuestion, raw: Mapping[str, Any], media: Media, items: Mapping[int, PromptItem]
) -> str | None:
    """Why a question does not fit its medium; ``None`` if it does."""
    if media == "image":
        is_yes_no = {folded_text(choice) for choice in question.choices} == set(YES_NO)
        return None if is_yes_no else "the choices are not yes and no"
    if question.type not in TYPES[media]:
        return f"its item {raw.get('keyword')!r:.40} has no known type"
    if len(question.choices) != VIDEO_CHOICES:
        return f"it has {len(question.choices)} choices instead of {VIDEO_CHOICES}"
    item_number = raw.get("keyword")
    other_texts = {folded_text(item.text) for number, item in items.items() if number != item_number}
    for index, choice in enumerate(question.choices):
        if index != question.expected and folded_text(choice) in other_texts:
            return f"the wrong choice {choice!r} also appears in the prompt"
    return None
