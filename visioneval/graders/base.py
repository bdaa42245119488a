"""What a grader is: it looks at one image of one case and writes scores."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from visioneval.errors import GraderError
from visioneval.judging.ask import Ask, ask_for_json, misfits, object_schema
from visioneval.judging.attachments import as_parts, laid_out
from visioneval.judging.shown_images import Show, shown
from visioneval.providers.base import Question, Reply
from visioneval.records.questions import PromptQuestions
from visioneval.suite.case import TestCase
from visioneval.types import CaseFiles, Output, Score, TaskType

T = TypeVar("T")


class RunOnce(Protocol):
    """Does a thing once for all cells of a run that need it: the first one does it, the others get what came of it."""

    async def __call__(self, key: str, make: Callable[[], Awaitable[T]]) -> T: ...


async def _alone(key: str, make: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG001 - where there is one cell
    return await make()


async def _nobody(judge: str, question: Question) -> Reply:  # noqa: ARG001 - where a cell has no judge
    raise GraderError(f"there is no judge {judge!r} to ask")


@dataclass(frozen=True, slots=True)
class GradingContext:
    """A cell as graders see it. It never says which model drew the image."""

    case: TestCase
    task_type: TaskType
    prompt: str
    requested_size: str | None
    """``WIDTHxHEIGHT`` as the model run asked for it, or ``None``."""
    output: Output | None
    """``None`` for a cell without an image, about which there are recorded answers only."""
    files: CaseFiles
    save: Callable[[str, bytes], str]
    """Keeps a grader's own image beside the artifact: ``save("difference.png", data)`` gives its path in the run."""
    rules: tuple[str, ...] = ()
    """The verdict rules of this cell, as written, less those that only warn."""
    variables: Mapping[str, Any] = field(default_factory=dict)
    """The suite's ``vars``."""
    template_folders: tuple[Path, ...] = ()
    """Where templates are looked for: beside the suite first, then the built-in ones."""
    judge: str | None = None
    """The key of the grader's own judge."""
    ask_judge: Callable[[str, Question], Awaitable[Reply]] = _nobody
    """Asks a judge by its key. Raises ``ProviderError``."""
    show: Show = shown
    """An image of the cell as judges are shown it, encoded once for all of them. Raises ``GraderError``."""
    watching: frozenset[str] = frozenset()
    """The judges, by key, that take videos and addresses as they are; all others are shown frames."""
    once: RunOnce = _alone
    """What is the same for many cells, done once a run."""
    known_questions: Callable[[str, str, str], PromptQuestions | None] = lambda _prompt, _template, _making: None
    """The questions that this run had at its start, by the hashes of a prompt and of the templates that made them."""
    keep_questions: Callable[[PromptQuestions], None] = lambda _entry: None
    """Keeps the questions that were asked about a prompt with the run."""

    @property
    def generated(self) -> Output:
        """The image. Raises ``GraderError`` where there is none."""
        if self.output is None:
            raise GraderError("this cell has no image")
        return self.output

    async def ask(self, words: str, answers: Mapping[str, Mapping[str, Any]], *, frames: int = 8) -> dict[str, Any]:
        """What the grader's judge answers, by name: ``answers`` holds a JSON Schema for each, such as
        ``{"dogs": {"type": "integer"}}``.

        The judge is shown ``words``, the case's input images and masks, and the output; of a video, ``frames`` frames
        where it watches none. An answer that does not fit is asked for once more. Raises ``GraderError`` where it
        never fits, or the grader names no judge, and ``ProviderError``.
        """
        if self.judge is None:
            raise GraderError("this grader has no judge to ask: name one in the suite, such as 'judge: default'")
        shown = await laid_out(self, self.judge, frames)
        question = Question((words, *as_parts(shown)), schema=object_schema(answers), names=tuple(answers))
        answer = await ask_for_json(partial(self.ask_judge, self.judge), question, partial(misfits, answers))
        return {name: answer.data[name] for name in answers}


@dataclass(frozen=True, slots=True)
class Grade:
    """What a grader found. A score that could not be measured is ``None``, with the cause in ``error``."""

    scores: Mapping[str, Score]
    reasons: Mapping[str, str] = field(default_factory=dict)
    failure_tags: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    usage: Mapping[str, int] | None = None
    cost_usd: float | None = None
    judge_model: str | None = None
    template_sha256: str | None = None
    schema_sha256: str | None = None
    tool_versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choice:
    """A judge's answer: the image that it was shown first, the second, or neither; and why, in its own words."""

    answer: Literal["first", "second", "tie"]
    reason: str
    extra_keys: Mapping[str, str] = field(default_factory=dict)
    """What it said beside what it was asked (``judging.Answer``)."""


class PairGrader(Protocol):
    """A grader of ``after_run``: it has a judge choose between two images of a cell."""

    def question(self, subject: GradingContext, first: Output, second: Output) -> Question:
        """The question about two images, in this order. Raises ``GraderError`` for one that cannot be shown."""

    async def choose(self, ask: Ask, question: Question) -> Choice:
        """Asks. Raises ``ProviderError``, and ``OffSchemaError`` where two answers were of no use."""


class QuestionMaker(Protocol):
    """A grader that asks questions about a prompt: it can make them before there is any image."""

    async def make_questions(self, case: TestCase, prompt: str, ask: Ask, folders: tuple[Path, ...]) -> PromptQuestions:
        """What the suite pins for the case, or else what the judge makes. Raises ``GraderError``, ``ProviderError``."""


class Grader(Protocol):
    """Built once per run from its config; ``grade`` is called once per cell, many at a time.

    ``grade`` is a coroutine, or a plain function, which is called in a thread. It raises ``GraderError`` (or
    ``ProviderError`` from a judge) when nothing at all could be measured. What keeps a core busy in a coroutine belongs
    in ``asyncio.to_thread``: the engine sizes that pool to the machine.

    A class of the user's own may have ``Options``, ``version`` and ``metrics`` besides: see ``docs/extending.md``.
    """

    def grade(self, subject: GradingContext, /) -> Grade | Awaitable[Grade]: ...
