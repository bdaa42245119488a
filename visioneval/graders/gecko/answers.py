"""Interprets a judge's answer to a multiple-choice question: a letter or the exact text of a choice."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from visioneval.graders.gecko.choices import NONE_OF_THEM, answer_text, choice_of, lettered_choices, offers_none
from visioneval.judging.ask import object_schema
from visioneval.suite.cases.questions import GeckoQuestion, folded_text

MAX_ANSWER_CHARS = 500
_VERDICT_LABEL = re.compile("(</?question>|Question:|Verdict:)")


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """The answer to one question. ``choice`` is the index of the chosen answer; ``None`` if it matches none."""

    answer: str = ""
    reason: str = ""
    choice: int | None = None
    fault: str | None = "no answer"


def chosen_text(question: GeckoQuestion, answer: ParsedAnswer) -> str | None:
    """The text of the chosen answer; ``None`` if there is none."""
    return None if answer.choice is None else list(lettered_choices(question).values())[answer.choice]


def answers_schema() -> dict[str, Any]:
    """The JSON Schema of a reply. The reason comes first, so that the judge looks before it answers."""
    item = object_schema({"id": {"type": "string"}, "reason": {"type": "string"}, "answer": {"type": "string"}})
    return object_schema({"answers": {"type": "array", "items": item}})


def answer_faults(questions: Sequence[GeckoQuestion], data: Any) -> list[str]:
    """The problems with the form of a reply. The contents of the answers are not checked here."""
    if isinstance(data, dict) and isinstance(data.get("answers"), list):
        incomplete = [
            entry for entry in data["answers"] if not isinstance(entry, dict) or not {"id", "answer"} <= entry.keys()
        ]
        return ["an entry of 'answers' has no id or no answer"] if incomplete else []
    if isinstance(data, dict) and any(question.id in data for question in questions):
        return []
    return ["the answer is not a JSON object with the key 'answers', a list of {id, reason, answer}"]


def read_answers(
    questions: Sequence[GeckoQuestion], data: Mapping[str, Any]
) -> tuple[dict[str, ParsedAnswer], list[str]]:
    """The answer to each question, by id, and the unrequested ids in the reply.

    Two different answers to one question count as no answer. An answer that matches no choice has a ``fault``.
    """
    by_id = {question.id: question for question in questions}
    entries = data["answers"] if isinstance(data.get("answers"), list) else _entries(data, by_id)
    answers: dict[str, ParsedAnswer] = {}
    unasked: list[str] = []
    for entry in entries:
        question = by_id.get(str(entry["id"]).strip())
        if question is None:
            unasked.append(str(entry["id"])[:MAX_ANSWER_CHARS])
            continue
        answer = _parse_answer(question, entry)
        earlier = answers.get(question.id)
        if earlier is not None and earlier.choice != answer.choice:
            answer = ParsedAnswer(f"{earlier.answer} / {answer.answer}", answer.reason, None, "two different answers")
        answers[question.id] = answer
    return {question.id: answers.get(question.id, ParsedAnswer()) for question in questions}, unasked


def _entries(data: Mapping[str, Any], ids: Collection[str]) -> list[dict[str, Any]]:
    return [{"id": name, "answer": answer} for name, answer in data.items() if name in ids]


def _parse_answer(question: GeckoQuestion, entry: Mapping[str, Any]) -> ParsedAnswer:
    answer = answer_text(entry["answer"])
    choice = choice_of(question, answer)
    fault = None if choice is not None else "no answer" if not answer else "not one of the choices"
    return ParsedAnswer(answer[:MAX_ANSWER_CHARS], str(entry.get("reason") or "")[:MAX_ANSWER_CHARS], choice, fault)


def answer_as_json(question: GeckoQuestion, text: str) -> str:
    """Wraps a plain-text reply that names a choice as the JSON that was asked for."""
    if len(text) > MAX_ANSWER_CHARS or choice_of(question, text) is None or _may_be_truncated(question, text):
        return text
    return json.dumps({"answers": [{"id": question.id, "reason": "", "answer": text.strip()}]})


def verdicts_as_json(questions: Sequence[GeckoQuestion], text: str) -> str:
    """Turns a reply of ``<question> reason Question: text Verdict: choice`` into the JSON of other replies.

    A reply is unchanged if it repeats none of the questions word for word. What ends a reply may be cut off.
    """
    by_text = {folded_text(question.question): question for question in questions}
    parts = _VERDICT_LABEL.split(text)
    answers: list[dict[str, str]] = []
    reason, question = "", None
    for number, (label, content) in enumerate(zip(parts[1::2], parts[2::2], strict=True), 1):
        stripped = content.strip("* \t\n\r")
        if label == "<question>":
            reason, question = stripped, None
        elif label == "Question:":
            question = by_text.get(folded_text(stripped))
        elif label == "Verdict:" and question is not None:
            is_last = number == len(parts) // 2
            if not (is_last and _may_be_truncated(question, stripped)):
                answers.append({"id": question.id, "reason": reason, "answer": stripped[:MAX_ANSWER_CHARS]})
            reason, question = "", None
    return json.dumps({"answers": answers}) if answers else text


def _may_be_truncated(question: GeckoQuestion, text: str) -> bool:
    """Whether a text that names a choice is also the start of another choice, so that it may be truncated."""
    choice = choice_of(question, text)
    offered = [
        (index, folded_text(offered_text)) for index, offered_text in enumerate(lettered_choices(question).values())
    ]
    offered += [(len(offered) - 1, offered_text) for offered_text in NONE_OF_THEM] if offers_none(question) else []
    return any(index != choice and offered_text.startswith(folded_text(text)) for index, offered_text in offered)
