"""Asks multiple-choice questions, in one call or one call each, and retries each unanswered question once on its own.

An answer is a letter or the exact text of a choice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from visioneval.errors import ProviderError
from visioneval.graders.gecko import (
    NONE_OF_THEM,
    VERDICTS,
    answer_text,
    asking_context,
    choice_of,
    lettered_choices,
    offers_none,
)
from visioneval.judging.ask import MAX_EXTRA_KEYS, Ask, How, OffSchemaError, exchange, object_schema, past_cache
from visioneval.providers.base import Part, Question, Reply
from visioneval.suite.questions import GeckoQuestion, folded_text
from visioneval.templates.render import Templates
from visioneval.threads import gather_all

OFF_SHAPE = "the answer does not match the schema"
MAX_UNASKED = 100
"""The most unrequested ids that a record lists."""
MAX_ANSWER_CHARS = 500
_VERDICT_LABEL = re.compile("(</?question>|Question:|Verdict:)")


@dataclass(frozen=True, slots=True)
class Instructions:
    """How a judge is asked: a template, and its variables besides the questions."""

    templates: Templates
    template: str
    variables: Mapping[str, Any] = field(default_factory=dict)

    def text(self, questions: Sequence[GeckoQuestion]) -> str:
        """The instructions for some of the questions. Raises ``TemplateError``."""
        return self.templates.render(self.template, {**self.variables, **asking_context(questions)})

    @property
    def give_verdicts(self) -> bool:
        """Whether the template asks for a verdict after each question, in text. What it shows does not count."""
        return self.templates.says(self.template, *VERDICTS)


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
    plain = [{"id": name, "answer": answer} for name, answer in data.items() if name in by_id]
    entries = data["answers"] if isinstance(data.get("answers"), list) else plain
    answers: dict[str, ParsedAnswer] = {}
    unasked: list[str] = []
    for entry in entries:
        question = by_id.get(str(entry["id"]).strip())
        if question is None:
            unasked.append(str(entry["id"])[:MAX_ANSWER_CHARS])
            continue
        text = answer_text(entry["answer"])
        choice, reason = choice_of(question, text), str(entry.get("reason") or "")[:MAX_ANSWER_CHARS]
        fault = None if choice is not None else "not one of the choices" if text else "no answer"
        answer = ParsedAnswer(text[:MAX_ANSWER_CHARS], reason, choice, fault)
        earlier = answers.get(question.id)
        if earlier is not None and earlier.choice != answer.choice:
            answer = ParsedAnswer(f"{earlier.answer} / {answer.answer}", answer.reason, None, "two different answers")
        answers[question.id] = answer
    return {question.id: answers.get(question.id, ParsedAnswer()) for question in questions}, unasked


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


@dataclass(frozen=True, slots=True)
class AnswerSet:
    """The answer to each question, by id. ``fault`` says why some could not be asked or read."""

    answers: Mapping[str, ParsedAnswer]
    replies: tuple[Reply, ...] = ()
    unasked: tuple[str, ...] = ()
    """Ids in the replies that were not asked for."""
    again: frozenset[str] = field(default_factory=frozenset)
    """Ids of the questions that were asked again."""
    fault: str | None = None
    cached: frozenset[str] = field(default_factory=frozenset)
    """Ids of the questions whose answers came from the cache, so the judge itself can still be asked."""
    extra_keys: Mapping[str, str] = field(default_factory=dict)
    """Keys that were not asked for (see ``judging.ask.Answer``)."""
    read: frozenset[How] = field(default_factory=frozenset)
    """How the replies were read (see ``judging.ask.Answer``)."""

    def off_shape(self) -> bool:
        """Whether a reply could not be read. Its questions count as neither wrong nor unanswered."""
        return any(answer.fault == OFF_SHAPE for answer in self.answers.values())


async def ask_all(
    ask: Ask, questions: Sequence[GeckoQuestion], instructions: Instructions, parts: Sequence[Part], *, single: bool
) -> AnswerSet:
    """Asks all questions; recorded answers are looked up once. Never raises because of a judge."""
    groups = [(question,) for question in questions] if single else [tuple(questions)]
    first = await gather_all(_ask_group(ask, group, instructions, parts) for group in groups)
    merged = _merged(first)
    is_recorded = any(reply.shape == "recorded" for reply in merged.replies)
    if merged.fault or is_recorded:
        return merged
    open_questions = [item for item in questions if merged.answers[item.id].fault and item.id not in merged.again]
    second = await gather_all(
        _ask_group(ask, (item,), instructions, parts, before=merged.answers[item.id]) for item in open_questions
    )
    return _merged([merged, *second])


async def ask_past_cache(
    ask: Ask,
    questions: Sequence[GeckoQuestion],
    instructions: Instructions,
    parts: Sequence[Part],
    answered: AnswerSet,
    *,
    single: bool,
) -> AnswerSet:
    """Asks the judge again, without the cache, the questions whose cached answers are unusable."""
    unusable = [
        question for question in questions if question.id in answered.cached and answered.answers[question.id].fault
    ]
    if answered.fault or not unusable:
        return answered
    return _merged([answered, await ask_all(past_cache(ask), unusable, instructions, parts, single=single)])


async def _ask_group(
    ask: Ask,
    group: tuple[GeckoQuestion, ...],
    instructions: Instructions,
    parts: Sequence[Part],
    *,
    before: ParsedAnswer | None = None,
) -> AnswerSet:
    """Asks once, and again if the reply does not match the schema. ``before`` is an unusable answer to one question."""
    gives_verdicts = instructions.give_verdicts

    async def ask_tolerantly(question: Question) -> Reply:
        reply = await ask(question)
        text = verdicts_as_json(group, reply.text) if gives_verdicts else reply.text
        return replace(reply, text=answer_as_json(group[0], text) if len(group) == 1 else text)

    text = instructions.text(group)
    if before is not None:
        cause = f"{before.fault}: {before.answer!r}" if before.answer else str(before.fault)
        text += (
            f"\n\nYou were asked this before, and what came could not be used ({cause})."
            " Answer with one of the letters above and nothing else as the answer."
        )
    question = Question(
        parts=(text, *parts),
        schema=None if gives_verdicts else answers_schema(),
        names=tuple(item.id for item in group),
        texts={item.id: item.question for item in group},
    )
    try:
        answer = await exchange(ask_tolerantly, question, partial(answer_faults, group), {"answers": []})
    except OffSchemaError as error:
        answers = {item.id: ParsedAnswer(error.replies[-1].text[:MAX_ANSWER_CHARS], fault=OFF_SHAPE) for item in group}
        asked_again = frozenset(answers) if len(group) == 1 else frozenset()
        return AnswerSet(answers, error.replies, again=asked_again, cached=_cached_ids(answers, error.replies))
    except ProviderError as error:
        return AnswerSet({}, fault=str(error))
    answers, unasked = read_answers(group, answer.data)
    return AnswerSet(
        answers,
        answer.replies,
        tuple(unasked[:MAX_UNASKED]),
        again=frozenset() if before is None else frozenset(answers),
        cached=_cached_ids(answers, answer.replies),
        extra_keys={name: value for name, value in answer.extra_keys.items() if name not in answers},
        read=frozenset({answer.how}),
    )


def _cached_ids(ids: Iterable[str], replies: Sequence[Reply]) -> frozenset[str]:
    return frozenset(ids) if all(reply.from_cache for reply in replies) else frozenset()


def _merged(parts: Sequence[AnswerSet]) -> AnswerSet:
    """Merges several calls; later answers win."""
    cached = {name: name in part.cached for part in parts for name in part.answers}
    extra_keys = {name: value for part in parts for name, value in part.extra_keys.items()}
    return AnswerSet(
        answers={name: answer for part in parts for name, answer in part.answers.items()},
        replies=tuple(reply for part in parts for reply in part.replies),
        unasked=tuple(dict.fromkeys(name for part in parts for name in part.unasked)),
        again=frozenset(name for part in parts for name in part.again),
        fault=next((part.fault for part in parts if part.fault), None),
        cached=frozenset(name for name, is_cached in cached.items() if is_cached),
        extra_keys=dict(list(extra_keys.items())[:MAX_EXTRA_KEYS]),
        read=frozenset().union(*(part.read for part in parts)),
    )
