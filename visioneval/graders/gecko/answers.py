"""What a judge's answer to a question with choices means: a letter or a choice's own text, and nothing in between."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from visioneval.graders.gecko.config import lettered, offers_none
from visioneval.judging.ask import object_schema
from visioneval.suite.questions import GeckoQuestion, folded_text

_LETTER = re.compile(r"\(?([a-z])[).:\]]?", re.ASCII)
_LETTER_AND_TEXT = re.compile(r"\(?([a-z])[).:\]]\s*(.+)", re.ASCII)
_NONE = {"none", "none of them", "none of these", "none of the above", "none of the choices"}
MAX_SAID = 500


@dataclass(frozen=True, slots=True)
class Said:
    """What was answered to one question. ``choice`` counts the answers on offer; ``None`` where it is none of them."""

    answer: str = ""
    reason: str = ""
    choice: int | None = None
    fault: str | None = "no answer"


def choice_of(question: GeckoQuestion, answer: str) -> int | None:
    """The place of the choice that an answer names, counted from 0; the place after the last means none of them.

    A letter, a choice's text, or both where they agree; never a part of a sentence.
    """
    offered = {letter: folded_text(text) for letter, text in lettered(question).items()}
    texts = list(offered.values())
    folded = folded_text(answer)
    if folded in texts:
        return texts.index(folded)
    if offers_none(question) and folded in _NONE:
        return len(texts) - 1
    plain = " ".join(answer.casefold().split()).strip("\"'`* ")
    alone = _LETTER.fullmatch(plain)
    if alone and alone[1] in offered:
        return list(offered).index(alone[1])
    both = _LETTER_AND_TEXT.fullmatch(plain)
    if both and offered.get(both[1]) == folded_text(both[2]):
        return list(offered).index(both[1])
    return None


def chosen(question: GeckoQuestion, said: Said) -> str | None:
    """The text of the choice that was named; ``None`` where none was."""
    return None if said.choice is None else list(lettered(question).values())[said.choice]


def answers_schema() -> dict[str, Any]:
    """The JSON Schema of a reply: the reason first, so that the judge looks before it answers."""
    one = object_schema({"id": {"type": "string"}, "reason": {"type": "string"}, "answer": {"type": "string"}})
    return object_schema({"answers": {"type": "array", "items": one}})


def answer_faults(questions: Sequence[GeckoQuestion], data: Any) -> list[str]:
    """What is wrong with the form of a reply. What single answers say is no part of that."""
    if isinstance(data, dict) and isinstance(data.get("answers"), list):
        odd = [
            entry for entry in data["answers"] if not isinstance(entry, dict) or not {"id", "answer"} <= entry.keys()
        ]
        return ["an entry of 'answers' has no id or no answer"] if odd else []
    if isinstance(data, dict) and any(question.id in data for question in questions):
        return []
    return ["the answer is not a JSON object with the key 'answers', a list of {id, reason, answer}"]


def read_answers(questions: Sequence[GeckoQuestion], data: Mapping[str, Any]) -> tuple[dict[str, Said], list[str]]:
    """What was said to each question, by id, and the ids in the reply that nobody asked for.

    Two different answers to one question are no answer; what no choice fits has a ``fault``.
    """
    by_id = {question.id: question for question in questions}
    entries = data["answers"] if isinstance(data.get("answers"), list) else _entries(data, by_id)
    said: dict[str, Said] = {}
    unasked: list[str] = []
    for entry in entries:
        question = by_id.get(str(entry["id"]).strip())
        if question is None:
            unasked.append(str(entry["id"])[:MAX_SAID])
            continue
        now = _said(question, entry)
        before = said.get(question.id)
        if before is not None and before.choice != now.choice:
            now = Said(f"{before.answer} / {now.answer}", now.reason, None, "two different answers")
        said[question.id] = now
    return {question.id: said.get(question.id, Said()) for question in questions}, unasked


def _entries(data: Mapping[str, Any], asked: Collection[str]) -> list[dict[str, Any]]:
    return [{"id": name, "answer": answer} for name, answer in data.items() if name in asked]


def _said(question: GeckoQuestion, entry: Mapping[str, Any]) -> Said:
    value = entry["answer"]
    answer = ("yes" if value else "no") if isinstance(value, bool) else "" if value is None else str(value).strip()
    choice = choice_of(question, answer)
    fault = None if choice is not None else "no answer" if not answer else "not one of the choices"
    return Said(answer[:MAX_SAID], str(entry.get("reason") or "")[:MAX_SAID], choice, fault)


def as_json(question: GeckoQuestion, text: str) -> str:
    """A reply to one question alone that is no JSON but names a choice, as the JSON that was asked for."""
    if len(text) > MAX_SAID or choice_of(question, text) is None or _may_go_on(question, text):
        return text
    return json.dumps({"answers": [{"id": question.id, "reason": "", "answer": text.strip()}]})


def _may_go_on(question: GeckoQuestion, text: str) -> bool:
    """Whether a text that names a choice is also how the text of another one begins: it may have been cut off there."""
    choice = choice_of(question, text)
    offered = [(at, folded_text(each)) for at, each in enumerate(lettered(question).values())]
    offered += [(len(offered) - 1, each) for each in _NONE] if offers_none(question) else []
    return any(at != choice and each.startswith(folded_text(text)) for at, each in offered)
