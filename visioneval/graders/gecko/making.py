"""The questions about a prompt: pinned by the suite, or made by a judge, once a prompt and run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from visioneval.aio import run_in_thread
from visioneval.errors import GraderError
from visioneval.graders.gecko.answers import Said, chosen
from visioneval.graders.gecko.asking import OFF_SHAPE, ask_all, ask_past_cache
from visioneval.graders.gecko.config import CHECK, GeckoOptions, checking_context, making_context
from visioneval.graders.gecko.reading import ParsedQuestions, coverage, questions_schema, read_json, read_questions
from visioneval.judging.ask import SHORT, Ask, again, past_cache
from visioneval.plan import digest
from visioneval.providers.base import Question, Reply
from visioneval.providers.reply_json import UnreadableReplyError
from visioneval.records.questions import DroppedQuestion, PromptQuestions, prompt_sha256
from visioneval.suite.case import TestCase
from visioneval.suite.questions import GeckoQuestion, dependency_problems, without_bad_dependencies
from visioneval.templates.render import render_file, template_digest

Folders = tuple[Path, ...]
UNSAID = "the prompt does not say"


def way_of(options: GeckoOptions) -> str:
    """A hash of the options that made questions depend on, beside prompt and templates."""
    return digest([options.judge, options.media, options.on_bad_dependency])


def making_key(options: GeckoOptions, prompt: str, templates: str) -> str:
    """What a set of made questions depends on: two graders that agree in it share theirs."""
    return f"questions {digest([way_of(options), templates, prompt])}"


def pinned(case: TestCase, prompt: str) -> PromptQuestions | None:
    """The questions that the suite pins for a case, less its added ones; ``None`` where it pins none."""
    if case.questions is None:
        return None
    return PromptQuestions(prompt_sha256=prompt_sha256(prompt), source="pinned", questions=case.questions)


def settled(questions: Sequence[GeckoQuestion], options: GeckoOptions) -> tuple[GeckoQuestion, ...]:
    """Questions whose dependencies can be followed. Where a bad one is an error, there is none: that was checked."""
    return without_bad_dependencies(questions) if options.on_bad_dependency == "drop" else tuple(questions)


async def make(ask: Ask, prompt: str, options: GeckoOptions, folders: Folders, bill: list[Reply]) -> PromptQuestions:
    """Asks the judge for questions, twice at most, and drops those that the prompt does not bear out.

    Every reply goes on the ``bill``. Raises ``GraderError`` where there are no usable questions, ``ProviderError``.
    """
    words = render_file(options.template_for_questions, folders, making_context(options.media, prompt))
    made = await _made(ask, Question((words,), schema=questions_schema(options.media)), options, bill)
    kept, unborne = await _borne_out(ask, prompt, made, options, folders, bill)
    if not kept:
        raise GraderError(f"no question is left of {len(made.questions)}: the prompt bears out none of their answers")
    return PromptQuestions(
        prompt_sha256=prompt_sha256(prompt),
        keywords=made.keywords,
        source="generated",
        template_sha256=template_digest(options.making_templates, folders),
        making_sha256=way_of(options),
        coverage=coverage(made, kept),
        questions=kept,
        dropped=(*made.dropped, *unborne),
        extra_keys=dict(made.extra_keys) or None,
    )


async def _made(ask: Ask, question: Question, options: GeckoOptions, bill: list[Reply]) -> ParsedQuestions:
    made, replies = await _exchange(ask, question, options)
    bill += replies
    if isinstance(made, str) and all(reply.from_cache for reply in replies):
        made, replies = await _exchange(past_cache(ask), question, options)
        bill += replies
    if isinstance(made, str):
        raise GraderError(f"the judge made no usable questions: {made}")
    return made


async def _exchange(ask: Ask, question: Question, options: GeckoOptions) -> tuple[ParsedQuestions | str, list[Reply]]:
    """Asks, and once more with what was wrong."""
    first = await ask(question)
    made = await _read(first, options)
    if isinstance(made, ParsedQuestions):
        return made, [first]
    second = await ask(again(question, first, [made]))
    return await _read(second, options), [first, second]


async def _read(reply: Reply, options: GeckoOptions) -> ParsedQuestions | str:
    return await run_in_thread(_read_now, reply, options, when=len(reply.text) > SHORT)


def _read_now(reply: Reply, options: GeckoOptions) -> ParsedQuestions | str:
    """The questions of a reply, with dependencies that hold, or what is wrong with it."""
    if reply.stopped:
        return f"the answer was cut off ({reply.stopped})"
    try:
        data = read_json(reply.text)
    except UnreadableReplyError as error:
        return str(error)
    made = read_questions(data, options.media)
    if isinstance(made, str):
        return made
    questions = without_gone(made.questions, {q.id for q in made.questions} | _named(data))
    problem = next(iter(dependency_problems(questions)), None)
    if problem is not None and options.on_bad_dependency == "error":
        return problem[1]
    return replace(made, questions=settled(questions, options))


def _named(data: Mapping[str, Any]) -> set[str]:
    """The ids of all questions of a reply, the dropped ones too."""
    return {str(raw.get("id")) for raw in data["questions"] if isinstance(raw, dict)}


def without_gone(questions: Sequence[GeckoQuestion], known: set[str]) -> tuple[GeckoQuestion, ...]:
    """Questions that no longer depend on those of the ``known`` ones that were dropped."""
    gone = known - {question.id for question in questions}
    return tuple(
        question.model_copy(update={"depends_on": tuple(p for p in question.depends_on if p not in gone)})
        for question in questions
    )


async def _borne_out(
    ask: Ask, prompt: str, made: ParsedQuestions, options: GeckoOptions, folders: Folders, bill: list[Reply]
) -> tuple[tuple[GeckoQuestion, ...], list[DroppedQuestion]]:
    """The questions whose answer follows from the prompt alone, by a call that sees no image, and the others."""
    if not options.check_questions:
        return made.questions, []

    def words(asked: Sequence[GeckoQuestion]) -> str:
        return render_file(CHECK, folders, checking_context(prompt, asked))

    asked = [each.model_copy(update={"choices": (*each.choices, UNSAID)}) for each in made.questions]
    answered = await ask_all(ask, asked, words, (), single=False)
    if answered.off_shape():
        answered = await ask_past_cache(ask, asked, words, (), answered, single=False)
    bill += answered.replies
    if answered.fault or answered.off_shape():
        raise GraderError(f"the questions could not be checked: {answered.fault or OFF_SHAPE}")
    said = answered.said
    kept = tuple(question for question in made.questions if said[question.id].choice == question.expected)
    dropped = [
        DroppedQuestion(question=question.question, reason=_unborne(question, said[question.id]))
        for question in made.questions
        if question not in kept
    ]
    return without_gone(kept, {question.id for question in made.questions}), dropped


def _unborne(question: GeckoQuestion, said: Said) -> str:
    told = chosen(question.model_copy(update={"choices": (*question.choices, UNSAID)}), said)
    return f"the prompt alone does not give {question.answer!r}: {told or said.answer or said.fault}"


def with_added(entry: PromptQuestions, case: TestCase, options: GeckoOptions) -> PromptQuestions:
    """Made questions with those that a case adds; an id that the case uses is taken away from a made one."""
    if entry.source == "pinned":
        return entry.model_copy(update={"questions": settled((*entry.questions, *case.add_questions), options)})
    taken = {question.id for question in case.add_questions}
    names = {question.id: _free(question.id, taken) for question in entry.questions}
    made = tuple(
        question.model_copy(
            update={"id": names[question.id], "depends_on": tuple(names[parent] for parent in question.depends_on)}
        )
        for question in entry.questions
    )
    return entry.model_copy(update={"questions": settled((*made, *case.add_questions), options)})


def _free(name: str, taken: set[str]) -> str:
    """A name that is not taken, and is from now on."""
    found = next(each for each in (name, *(f"{name}_{n}" for n in range(2, 1000))) if each not in taken)
    taken.add(found)
    return found
