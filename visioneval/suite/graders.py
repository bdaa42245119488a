"""What the options of every grader share, and those of a grader of the user's own. No grader's work is here."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, StringConstraints
from pydantic.json_schema import SkipJsonSchema

from visioneval.suite.case import Name, TestCase
from visioneval.suite.filters import When
from visioneval.suite.labels import LabelQuestion
from visioneval.types import Frozen, Metric, TaskType


class Declared(Frozen):
    """What a class of the user's own says of itself. A run holds it, so that it can be read without the class."""

    version: str | None = None
    metrics: dict[str, Metric] | None = None
    """What a grader writes; ``None`` where it leaves that to the suite's ``writes``."""
    cases: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """The names of the metrics that it writes for each case, by the case's id."""


Share = Annotated[float, Field(ge=0, le=1)]
ModuleClass = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", max_length=200)]

YES = Metric(type="bool", better="higher")
SHARE_UP = Metric(type="number", range=(0, 1), better="higher")
SHARE_DOWN = Metric(type="number", range=(0, 1), better="lower")
SSIM = Metric(type="number", range=(-1, 1), better="higher")


def is_video(case: TestCase) -> bool:
    """Whether a case is about a video."""
    return case.task_type is TaskType.VIDEO_GENERATION


class BaseGrader(Frozen):
    """What all graders share."""

    runs_code: ClassVar[bool] = False
    sees_videos: ClassVar[bool] = False
    """Whether it can grade a video."""
    after_run: ClassVar[bool] = False
    """Whether it grades no cell, and looks at pairs of images once all are there."""

    asks_questions: ClassVar[bool] = False
    """Whether it asks questions about a prompt, which may be pinned or made ahead, and keeps them in its records."""
    grades_records: ClassVar[bool] = False
    """Whether recorded answers are enough for it, where a cell has no image."""
    case_fields: ClassVar[frozenset[str]] = frozenset()
    """The fields of a case that its grade depends on, beside those that every grade does."""

    needs: ClassVar[Mapping[str, str]] = {}
    """What a case must hold for a metric, by the metric's name after the key."""

    key: Name
    when: When | None = None

    @property
    def type_name(self) -> str:
        """Its ``type``, as the suite writes it."""
        return str(getattr(self, "type", ""))

    @property
    def version(self) -> str | None:
        """Stands for what its code does: where it changes, ``--resume`` and ``grade`` grade again."""
        return None

    @property
    def key_options(self) -> dict[str, Any]:
        """Its options as far as its grades depend on them."""
        return self.model_dump()

    def is_for(self, case: TestCase) -> bool:
        """Whether it looks at a case; one that looks at pairs leaves those out that generate nothing."""
        fits = self.when is None or self.when.fits(case.id, case.task_type, case.tags)
        return fits and not (self.after_run and case.output_of is not None)

    @abstractmethod
    def metrics(self, case: TestCase) -> dict[str, Metric]:
        """What this grader writes for ``case``; empty where the case holds nothing for it to measure."""

    def optional(self, case: TestCase) -> frozenset[str]:
        """Those of its metrics that an image may turn out to have nothing for: such a score is left out, not null."""
        return frozenset()

    @property
    def needs_no_bytes(self) -> bool:
        """Whether a judge that reads addresses is all that it takes."""
        return self.sees_videos

    @property
    def judge_name(self) -> str | None:
        """The key of the judge that it asks, under ``judges:``; ``None`` where it asks nobody."""
        return None

    @property
    def templates(self) -> tuple[str, ...]:
        """The templates that its questions are made from."""
        return ()

    def template_contexts(
        self,
        case: TestCase,
        prompt: str,
        *,
        rules: Sequence[str],
        variables: Mapping[str, Any],
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Each template that it fills in for a case, with what the template sees, so that all can be tried out.

        ``rules`` are the rules that can fail the case, as written; ``variables`` are the suite's ``vars``.
        """
        yield from ()

    def judge_calls(
        self,
        times: int,
        cases: Sequence[TestCase],
        variables: Mapping[str, Any],
    ) -> int | None:
        """The calls that its judge gets about so many cells or pairs of ``cases``; ``None`` where that is open."""
        return times

    @property
    def rubric(self) -> Mapping[str, tuple[float, float] | None]:
        """The metrics that a judge scores beside a verdict of its own: each one's scale, ``None`` for yes or no."""
        return {}

    @property
    def label_questions(self) -> Mapping[str, LabelQuestion]:
        """The same that it asks a judge as questions to people, by metric."""
        return {}

    @property
    def question_file(self) -> str | None:
        """The file of pinned questions that it names."""
        return None

    @property
    def drops_bad_dependencies(self) -> bool:
        """Whether a question that depends on none that is there is no error."""
        return False

    def compared(self, labels: Iterable[str]) -> list[str]:
        """Those of the model runs that it compares with each other."""
        return []

    def narrowed(self, labels: Iterable[str]) -> Self | None:
        """The grader for these model runs alone; ``None`` where it has nothing left to do."""
        return self


class CustomGrader(BaseGrader):
    """A grader of the user's own, ``my_package.module:Class``. Needs ``--trust-suite``."""

    runs_code: ClassVar[bool] = True
    type: ModuleClass
    judge: Name | None = Field(default=None, description="The key of the judge that it asks, if it asks any.")
    writes: Annotated[dict[str, Metric], Field(min_length=1)] | None = Field(
        default=None,
        description="Its metrics, by the name that rules use; for a class that does not say so itself.",
    )
    options: dict[str, Any] = Field(default_factory=dict)
    declared: SkipJsonSchema[Declared | None] = None

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        declared = self.declared
        if declared is None or declared.metrics is None:
            return dict(self.writes or {})
        return {name: declared.metrics[name] for name in declared.cases.get(case.id, ())}

    @property
    def judge_name(self) -> str | None:
        return self.judge

    def judge_calls(self, times: int, cases: Sequence[TestCase], variables: Mapping[str, Any]) -> int | None:
        return None  # as often as its class likes

    @property
    def version(self) -> str | None:
        return self.declared.version if self.declared else None

    @property
    def key_options(self) -> dict[str, Any]:
        return self.model_dump(exclude={"declared"})


def scored_by(metric: str, graders: Iterable[BaseGrader]) -> tuple[float, float] | None:
    """The scale of a rubric's score; ``None`` for every other metric."""
    return next((grader.rubric[metric] for grader in graders if metric in grader.rubric), None)
