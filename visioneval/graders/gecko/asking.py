"""Asks multiple-choice questions, in one call or one call each; retries each unanswered question once on its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from visioneval.aio import gather_all
from visioneval.errors import ProviderError
from visioneval.graders.gecko.answers import (
    MAX_ANSWER_CHARS,
    ParsedAnswer,
    answer_as_json,
    answer_faults,
    answers_schema,
    read_answers,
    verdicts_as_json,
)
from visioneval.graders.gecko.config import VERDICTS
from visioneval.judging.ask import MAX_EXTRA_KEYS, Ask, How, OffSchemaError, exchange, past_cache
from visioneval.providers.base import Part, Question, Reply
from visioneval.suite.cases.questions import GeckoQuestion

OFF_SHAPE = "the answer does not match the schema"
MAX_UNASKED = 100
"""The most unrequested ids that a record lists."""
Instructions = Callable[[Sequence[GeckoQuestion]], str]
"""Renders the instructions for some of the questions."""


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
    first = await gather_all(_ask_group(ask, group, instructions(group), parts) for group in groups)
    merged = _merged(first)
    is_recorded = any(reply.shape == "recorded" for reply in merged.replies)
    if merged.fault or is_recorded:
        return merged
    open_questions = [item for item in questions if merged.answers[item.id].fault and item.id not in merged.again]
    second = await gather_all(
        _ask_group(ask, (item,), _retry_instructions(instructions, item, merged.answers[item.id]), parts, again=True)
        for item in open_questions
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


def _retry_instructions(instructions: Instructions, question: GeckoQuestion, answer: ParsedAnswer) -> str:
    cause = f"{answer.fault}: {answer.answer!r}" if answer.answer else str(answer.fault)
    return (
        f"{instructions((question,))}\n\nYou were asked this before, and what came could not be used ({cause})."
        " Answer with one of the letters above and nothing else as the answer."
    )


async def _ask_group(
    ask: Ask, group: tuple[GeckoQuestion, ...], instructions: str, parts: Sequence[Part], *, again: bool = False
) -> AnswerSet:
    """Asks once, and again if the reply does not match the schema."""

    gives_verdicts = all(sign in instructions for sign in VERDICTS)

    async def ask_tolerantly(question: Question) -> Reply:
        reply = await ask(question)
        text = verdicts_as_json(group, reply.text) if gives_verdicts else reply.text
        return replace(reply, text=answer_as_json(group[0], text) if len(group) == 1 else text)

    question = Question(
        parts=(instructions, *parts),
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
        again=frozenset(answers) if again else frozenset(),
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
