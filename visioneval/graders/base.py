"""What a grader is: it looks at one picture of one case and writes scores."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from visioneval.errors import GraderError
from visioneval.judging.shown_images import Show, shown
from visioneval.providers.base import Question, Reply
from visioneval.records.questions import PromptQuestions
from visioneval.suite.case import TestCase
from visioneval.types import CaseFiles, Picture, Score, TaskType

T = TypeVar("T")


class Once(Protocol):
    """Does a thing once for all cells of a run that need it: the first one does it, the others get what came of it."""

    async def __call__(self, key: str, make: Callable[[], Awaitable[T]]) -> T: ...


async def _alone(key: str, make: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG001 - where there is one cell
    return await make()


async def _nobody(judge: str, question: Question) -> Reply:  # noqa: ARG001 - where a cell has no judge
    raise GraderError(f"there is no judge {judge!r} to ask")


@dataclass(frozen=True, slots=True)
class Subject:
    """A cell as graders see it. It never says which model drew the picture."""

    case: TestCase
    task_type: TaskType
    prompt: str
    requested_size: str | None
    """``WIDTHxHEIGHT`` as the model run asked for it, or ``None``."""
    picture: Picture | None
    """``None`` for a cell without a picture, about which there are recorded answers only."""
    files: CaseFiles
    save: Callable[[str, bytes], str]
    """Keeps a grader's own picture beside the artifact: ``save("difference.png", data)`` gives its path in the run."""
    rules: tuple[str, ...] = ()
    """The verdict rules of this cell, as written, less those that only warn."""
    variables: Mapping[str, Any] = field(default_factory=dict)
    """The suite's ``vars``."""
    template_folders: tuple[Path, ...] = ()
    """Where templates are looked for: beside the suite first, then the built-in ones."""
    ask: Callable[[str, Question], Awaitable[Reply]] = _nobody
    """Asks a judge by its key. Raises ``ProviderError``."""
    show: Show = shown
    """A picture of the cell as judges are shown it, encoded once for all of them. Raises ``GraderError``."""
    watching: frozenset[str] = frozenset()
    """The judges, by key, that take videos and addresses as they are; all others are shown frames."""
    once: Once = _alone
    """What is the same for many cells, done once a run."""
    known_questions: Callable[[str, str, str], PromptQuestions | None] = lambda _prompt, _template, _making: None
    """The questions that this run had at its start, by the hashes of a prompt and of the templates that made them."""
    keep_questions: Callable[[PromptQuestions], None] = lambda _entry: None
    """Keeps the questions that were asked about a prompt with the run."""

    @property
    def drawn(self) -> Picture:
        """The picture. Raises ``GraderError`` where there is none."""
        if self.picture is None:
            raise GraderError("this cell has no picture")
        return self.picture


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


class Grader(Protocol):
    """Built once per run from its config; ``grade`` is called once per cell, many at a time.

    ``grade`` raises ``GraderError`` (or ``ProviderError`` from a judge) when nothing at all could be measured.
    Work that keeps a core busy belongs in ``asyncio.to_thread``: the engine sizes that pool to the machine.
    """

    async def grade(self, subject: Subject) -> Grade: ...
