"""The interface of graders: a grader looks at one output of a case and returns scores."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

from visioneval.errors import GraderError
from visioneval.graders.measures import Measure, MeasureOnce, measure_directly
from visioneval.judging.ask import Ask, How, ask_for_json, object_schema, schema_problems
from visioneval.judging.attachments import Attachment, Show, as_parts, load_attachments, message_parts, shown
from visioneval.providers.base import Part, Question, Reply
from visioneval.records.questions import PromptQuestions
from visioneval.suite.case import TestCase
from visioneval.suite.entries.graders import ShowingGrader
from visioneval.templates.render import Templates
from visioneval.types import CaseFiles, Output, Score, TaskType

T = TypeVar("T")


class RunOnce(Protocol):
    """Runs a task once per key and run: the first cell runs it, and the others get its result."""

    async def __call__(self, key: str, make: Callable[[], Awaitable[T]]) -> T: ...


async def run_directly(key: str, make: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG001 - the default for a single cell
    return await make()


async def _no_judge(judge: str, question: Question) -> Reply:  # noqa: ARG001 - the default without judges
    raise GraderError(f"no judge {judge!r}")


@dataclass(frozen=True, slots=True)
class GradingContext:
    """A cell as graders see it. It never names the model that generated the output.

    A class of your own needs ``case``, ``prompt``, ``files``, ``variables``, ``generated``, ``save``, ``judge`` and
    ``ask``. Most others serve the built-in graders.
    """

    case: TestCase
    task_type: TaskType
    prompt: str
    requested_size: str | None
    """``WIDTHxHEIGHT`` that the model run requested, or ``None``."""
    output: Output | None
    """``None`` for a cell that has only recorded answers and no output."""
    files: CaseFiles
    """The files of the case."""
    save: Callable[[str, bytes], str]
    """Stores the bytes of a PNG, JPEG or WebP next to the output: ``save("difference.png", data)`` returns its path in
    the run. A name has letters, digits, ``_``, ``-`` and ``.``, and can be saved once per cell: begin it with the
    grader's key.
    """
    measure: MeasureOnce = measure_directly
    """Makes a local measurement of a built-in grader, or reads it from the cache."""
    variables: Mapping[str, Any] = field(default_factory=dict)
    """The suite's ``vars``."""
    templates: Templates = field(default_factory=Templates)
    """The templates of the suite's folders, and the built-in ones."""
    judge: str | None = None
    """The key of the grader's judge. A panel grades an output once with each of its judges."""
    ask_judge: Callable[[str, Question], Awaitable[Reply]] = _no_judge
    """Asks a judge by its key. Raises ``ProviderError``."""
    show: Show = shown
    """Encodes an image of the cell for judges, once for all judges. Raises ``GraderError``."""
    watching: frozenset[str] = frozenset()
    """The keys of the judges that accept videos and URIs; all others get frames."""
    once: RunOnce = run_directly
    """Runs a task that many cells share once per run."""
    once_per_panel: RunOnce = run_directly
    """Runs a task that does not depend on the judge, such as OCR, once for all judges of a panel."""
    known_questions: Callable[[str, str, str], PromptQuestions | None] = lambda _prompt, _template, _making: None
    """Finds questions that the run already has, by the hashes of the prompt, the templates and the options."""
    keep_questions: Callable[[PromptQuestions], None] = lambda _entry: None
    """Stores the questions about a prompt in the run."""

    @property
    def generated(self) -> Output:
        """The output; its ``path`` is the file. Raises ``GraderError`` if there is none."""
        if self.output is None:
            raise GraderError("this cell has no image")
        return self.output

    @property
    def own_judge(self) -> str:
        """The key of the grader's judge. Raises ``GraderError`` if it has none."""
        if self.judge is None:
            raise GraderError("this grader has no judge: name one in the suite, such as 'judge: default'")
        return self.judge

    def ask_own_judge(self, question: Question) -> Awaitable[Reply]:
        """Asks the grader's judge. Raises ``ProviderError``, and ``GraderError`` if it has none."""
        return self.ask_judge(self.own_judge, question)

    async def ask(self, prompt: str, answers: Mapping[str, Mapping[str, Any]], *, frames: int = 8) -> dict[str, Any]:
        """Asks the grader's judge and returns its answers by name. ``answers`` maps each name to a JSON Schema, such as
        ``{"dogs": {"type": "integer"}}``.

        The judge gets ``prompt``, the case's input images and masks, and the output. A judge that cannot watch videos
        gets ``frames`` frames. A reply that does not match the schemas is retried once. Raises ``GraderError`` if no
        reply matches or the grader has no judge, ``ProviderError``, and ``TypeError`` for arguments of another type.
        """
        if not isinstance(prompt, str):
            raise TypeError(f"the question must be text, not {type(prompt).__name__}")
        if not isinstance(answers, Mapping) or not answers:
            raise TypeError(
                "answers must be a dict with a JSON Schema for each answer, such as {'dogs': {'type': 'integer'}}"
            )
        for name, schema in answers.items():
            if not isinstance(schema, Mapping):
                raise TypeError(f"answers[{name!r}] must be a JSON Schema, a dict, not {type(schema).__name__}")
        attachments = await load_attachments(self, self.own_judge, frames)
        question = Question((prompt, *as_parts(attachments)), schema=object_schema(answers), names=tuple(answers))
        answer = await ask_for_json(self.ask_own_judge, question, partial(schema_problems, answers))
        return {name: answer.data[name] for name in answers}


def message_about(
    context: GradingContext, config: ShowingGrader, attachments: Sequence[Attachment], **own: Any
) -> tuple[Part, ...]:
    """A message with these attachments and the instructions of a grader's template, which also reads its ``own``
    variables. Raises ``TemplateError``."""
    images = [{"id": attachment.id, "description": attachment.description} for attachment in attachments]
    variables = config.prompt_variables(context.case, context.prompt, images=images, variables=context.variables, **own)
    instructions = context.templates.render(config.template_of(context.case, context.variables), variables)
    return message_parts(instructions, attachments, config.parts)


@dataclass(frozen=True, slots=True)
class Grade:
    """The result of a grader. A score that could not be measured is ``None``, with the cause in ``error``.

    ``scores`` and ``reasons`` are by metric. ``usage`` and ``cost_usd`` count only if the grader asked no judge.
    """

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
    """A judge's preference, for the first image, the second, or neither, and its reason."""

    answer: Literal["first", "second", "tie"]
    reason: str
    extra_keys: Mapping[str, str] = field(default_factory=dict)
    """Keys that were not asked for (see ``judging.ask.Answer``)."""
    how: How = "json"
    """How the reply was read (see ``judging.ask.Answer``)."""


def all_hold(answers: Collection[Score]) -> bool | None:
    """Whether all answers are true; ``None`` if none is false and one is unknown."""
    return False if False in answers else None if None in answers else True


class PairGrader(Protocol):
    """A grader of the kind ``PAIR``: a judge chooses between two images of a cell."""

    def question(self, context: GradingContext, first: Output, second: Output) -> Question:
        """The question about two images, in this order. Raises ``GraderError`` if one cannot be encoded."""

    async def choose(self, ask: Ask, question: Question) -> Choice:
        """Asks. Raises ``ProviderError``, and ``OffSchemaError`` after two unusable replies."""


@dataclass(frozen=True, slots=True)
class SampleDistance:
    """How much two images differ; 0 is identical. ``distance`` is 1 - SSIM, 0..2; ``delta_e`` is a mean CIEDE2000."""

    distance: float
    delta_e: float


class SampleGrader(Protocol):
    """A grader of the kind ``SAMPLES``: it compares the samples of a case on this machine."""

    def measure(self, first: Output, second: Output) -> Measure[SampleDistance]:
        """The measure of two images, which does not depend on their order. It raises ``GraderError``."""


class DuplicateGrader(Protocol):
    """A grader of the kind ``CASES``: it finds outputs of different cases that are nearly the same image."""

    def signature(self, output: Output) -> Measure[Any]:
        """The measure of one output. It raises ``GraderError``."""

    def thumbnail(self, signature: Any) -> Any:
        """The small image in a signature."""

    def details(self, thumbnails: Sequence[Any]) -> Any:
        """What of the small images is compared: a row for each."""

    def alike(self, vectors: Any, row: int) -> list[int]:
        """The rows after one that are worth a full comparison with it, the most alike first."""

    def measure(self, first: Output, second: Output) -> Measure[Any]:
        """The full comparison of two outputs, which does not depend on their order. It raises ``GraderError``."""

    def is_duplicate(self, likeness: Any) -> bool:
        """Whether it makes them near-duplicates. It also has a ``distance`` and a ``delta_e``."""


class QuestionMaker(Protocol):
    """A grader that asks questions about a prompt. It can generate them before there is an output."""

    async def make_questions(self, case: TestCase, prompt: str, ask: Ask, templates: Templates) -> PromptQuestions:
        """Returns the pinned questions of the case, or asks the judge. Raises ``GraderError``, ``ProviderError``."""


class Grader(Protocol):
    """Built once per run from its config; ``grade`` is called once per cell, many at a time.

    ``grade`` is a coroutine, or a plain function that the engine calls in a thread. It raises ``GraderError`` (or
    ``ProviderError`` from a judge) if nothing could be measured. In a coroutine, run CPU-bound work with
    ``asyncio.to_thread``: the engine sizes that pool to the machine.

    A custom class may also have ``Options``, ``version`` and ``metrics``: see ``docs/reference/extending.md``.
    """

    def grade(self, context: GradingContext, /) -> Grade | Awaitable[Grade]: ...
