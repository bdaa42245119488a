"""Asking questions with choices: all in one call or one call each, and alone once more what got no usable answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from visioneval.aio import gather_all
from visioneval.errors import ProviderError
from visioneval.graders.gecko.answers import MAX_SAID, Said, answer_faults, answers_schema, as_json, read_answers
from visioneval.judging.ask import MAX_EXTRA_KEYS, Ask, OffSchemaError, exchange, past_cache
from visioneval.providers.base import Part, Question, Reply
from visioneval.suite.questions import GeckoQuestion

OFF_SHAPE = "the reply was not in shape"
MAX_UNASKED = 100
"""Ids that nobody asked for which a record names."""
Words = Callable[[Sequence[GeckoQuestion]], str]
"""The instructions for some of the questions."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What was said to each question, by id. ``fault`` is why some could not be asked, or not be read."""

    said: Mapping[str, Said]
    replies: tuple[Reply, ...] = ()
    unasked: tuple[str, ...] = ()
    """Ids in the replies that nobody asked for."""
    again: frozenset[str] = field(default_factory=frozenset)
    """Ids of the questions that were asked once more."""
    fault: str | None = None
    cached: frozenset[str] = field(default_factory=frozenset)
    """Ids of the questions whose answers came from the cache, and could be asked for again."""
    extra_keys: Mapping[str, str] = field(default_factory=dict)
    """What was said beside what was asked (``judging.Answer``)."""

    def off_shape(self) -> bool:
        """Whether a reply could not be read, which is no answer at all: it is neither wrong nor left out."""
        return any(each.fault == OFF_SHAPE for each in self.said.values())


async def ask_all(
    ask: Ask, questions: Sequence[GeckoQuestion], words: Words, shown: Sequence[Part], *, single: bool
) -> Answered:
    """Asks every question; recorded answers are looked up once. Raises nothing that a judge can cause."""
    groups = [(question,) for question in questions] if single else [tuple(questions)]
    first = await gather_all(_asked(ask, group, words(group), shown) for group in groups)
    whole = _joined(first)
    recorded = any(reply.shape == "recorded" for reply in whole.replies)
    if whole.fault or recorded:
        return whole
    open_ones = [each for each in questions if whole.said[each.id].fault and each.id not in whole.again]
    second = await gather_all(
        _asked(ask, (each,), _again(words, each, whole.said[each.id]), shown, again=True) for each in open_ones
    )
    return _joined([whole, *second])


async def ask_past_cache(
    ask: Ask,
    questions: Sequence[GeckoQuestion],
    words: Words,
    shown: Sequence[Part],
    answered: Answered,
    *,
    single: bool,
) -> Answered:
    """Asks the judge itself what the cache holds no usable answer to, and nothing else."""
    lost = [each for each in questions if each.id in answered.cached and answered.said[each.id].fault]
    if answered.fault or not lost:
        return answered
    return _joined([answered, await ask_all(past_cache(ask), lost, words, shown, single=single)])


def _again(words: Words, question: GeckoQuestion, said: Said) -> str:
    told = f"{said.fault}: {said.answer!r}" if said.answer else str(said.fault)
    return (
        f"{words((question,))}\n\nYou were asked this before, and what came could not be used ({told})."
        " Answer with one of the letters above and nothing else as the answer."
    )


async def _asked(
    ask: Ask, group: tuple[GeckoQuestion, ...], words: str, shown: Sequence[Part], *, again: bool = False
) -> Answered:
    """One call, and one more where its answer is not in shape."""

    async def tolerant(question: Question) -> Reply:
        reply = await ask(question)
        return replace(reply, text=as_json(group[0], reply.text)) if len(group) == 1 else reply

    question = Question(
        parts=(words, *shown),
        schema=answers_schema(),
        names=tuple(each.id for each in group),
        texts={each.id: each.question for each in group},
    )
    try:
        answer = await exchange(tolerant, question, partial(answer_faults, group), {"answers": []})
    except OffSchemaError as error:
        said = {each.id: Said(error.replies[-1].text[:MAX_SAID], fault=OFF_SHAPE) for each in group}
        asked_again = frozenset(said) if len(group) == 1 else frozenset()
        return Answered(said, error.replies, again=asked_again, cached=_cached(said, error.replies))
    except ProviderError as error:
        return Answered({}, fault=str(error))
    said, unasked = read_answers(group, answer.data)
    return Answered(
        said,
        answer.replies,
        tuple(unasked[:MAX_UNASKED]),
        again=frozenset(said) if again else frozenset(),
        cached=_cached(said, answer.replies),
        extra_keys={name: value for name, value in answer.extra_keys.items() if name not in said},
    )


def _cached(said: Iterable[str], replies: Sequence[Reply]) -> frozenset[str]:
    return frozenset(said) if all(reply.from_cache for reply in replies) else frozenset()


def _joined(parts: Sequence[Answered]) -> Answered:
    """Several calls together; what was said later wins."""
    cached = {name: name in part.cached for part in parts for name in part.said}
    extra_keys = {name: value for part in parts for name, value in part.extra_keys.items()}
    return Answered(
        said={name: said for part in parts for name, said in part.said.items()},
        replies=tuple(reply for part in parts for reply in part.replies),
        unasked=tuple(dict.fromkeys(name for part in parts for name in part.unasked)),
        again=frozenset(name for part in parts for name in part.again),
        fault=next((part.fault for part in parts if part.fault), None),
        cached=frozenset(name for name, is_cached in cached.items() if is_cached),
        extra_keys=dict(list(extra_keys.items())[:MAX_EXTRA_KEYS]),
    )
