"""Base class for the options of graders, and the options of a custom grader. Contains no grading code."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field

from visioneval.suite.cases.case import Name, TestCase
from visioneval.suite.entries.custom import CLASS, ClassName, CustomEntry
from visioneval.suite.entries.datasets import QuestionRows
from visioneval.suite.entries.judge_prompt import JudgeTemplate
from visioneval.suite.entries.panels import Combine, JudgeNames, PanelOptions, names_of
from visioneval.suite.entries.recorded_answers import RecordedAnswer
from visioneval.suite.filters import When
from visioneval.suite.labels import LabelQuestion
from visioneval.types import Frozen, Metric, TaskType

Share = Annotated[float, Field(ge=0, le=1)]

YES = Metric(type="bool", better="higher")
SHARE_UP = Metric(type="number", range=(0, 1), better="higher")
SHARE_DOWN = Metric(type="number", range=(0, 1), better="lower")
AMOUNT_UP = Metric(type="number", range=(0, None), better="higher")
AMOUNT_DOWN = Metric(type="number", range=(0, None), better="lower")
SSIM = Metric(type="number", range=(-1, 1), better="higher")


def is_video(case: TestCase) -> bool:
    """Whether a case is about a video."""
    return case.task_type is TaskType.VIDEO_GENERATION


class BaseGrader(Frozen):
    """Options that all graders share."""

    runs_code: ClassVar[bool] = False
    """Whether code that is not visioneval's grades."""
    sees_videos: ClassVar[bool] = False
    """Whether it can grade a video."""
    after_run: ClassVar[bool] = False
    """Whether it compares pairs of images after the run instead of grading cells."""
    compares_samples: ClassVar[bool] = False
    """Whether its pairs are the samples of one case on one model run, measured on this machine. The pairs of all other
    graders after the run are the outputs of two model runs, shown to a judge."""

    asks_questions: ClassVar[bool] = False
    """Whether it asks questions about a prompt. They may be pinned or generated in advance; records contain them."""
    grades_records: ClassVar[bool] = False
    """Whether it can grade a cell without an image from recorded answers."""
    case_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields of a case that its grade depends on, in addition to those that every grade depends on."""

    needs: ClassVar[Mapping[str, str]] = {}
    """What a case must contain for a metric, by the metric's name without the grader's key."""

    key: Name = Field(description="Unique name; its metrics begin with it, and rules read them.")
    when: When | None = Field(default=None, description="Grades only these cases.")
    optional: bool | None = Field(
        default=None,
        description="Whether a cell can pass without this grader's scores. "
        "Default: true for cells in which only rules with `level: warn` read them.",
    )

    @property
    def type_name(self) -> str:
        """The ``type`` in the suite."""
        return str(getattr(self, "type", ""))

    @property
    def needs_trust(self) -> bool:
        """Whether only a trusted suite may use it."""
        return self.runs_code

    @property
    def version(self) -> str | None:
        """The version of its code. When it changes, ``--resume`` and ``grade`` grade again."""
        return None

    @property
    def key_options(self) -> dict[str, Any]:
        """The options that its grades depend on."""
        return _without_unset(self.model_dump(exclude={"optional"}))

    def is_for(self, case: TestCase) -> bool:
        """Whether it applies to a case.

        Graders that compare pairs skip cases that generate nothing. Judges of pairs also skip later turns: the two
        outputs of a pair would be edits of two images.
        """
        fits = self.when is None or self.when.fits(case.id, case.task_type, case.tags)
        is_skipped = (self.after_run and case.output_of is not None) or (self.judges_pairs and case.previous_turn)
        return fits and not is_skipped

    @property
    def judges_pairs(self) -> bool:
        """Whether a judge compares the outputs of model runs after the run."""
        return self.after_run and not self.compares_samples

    @abstractmethod
    def metrics(self, case: TestCase) -> dict[str, Metric]:
        """The metrics that this grader writes for ``case``; empty if the case has nothing to measure."""

    def omissible(self, case: TestCase) -> frozenset[str]:
        """Metrics that may not apply to an image: such a score is omitted instead of null."""
        return frozenset()

    def extra_for(self, case: TestCase) -> str | None:
        """The extra of the package without which it certainly measures nothing of ``case``, if any."""
        return None

    @property
    def measures_locally(self) -> bool:
        """Whether it measures images on this machine. Its measurements are cached like answers."""
        return False

    @property
    def needs_no_bytes(self) -> bool:
        """Whether it works without downloading the output, given a judge that reads remote URIs."""
        return self.sees_videos

    @property
    def judge_names(self) -> tuple[str, ...]:
        """The keys under ``judges`` of the judges that it uses: one, several if it has a panel, or none."""
        return names_of(getattr(self, "judge", None))

    @property
    def has_panel(self) -> bool:
        """Whether several judges grade each output."""
        return len(self.judge_names) > 1

    @property
    def required_judges(self) -> int:
        """How many of its judges must answer."""
        return getattr(self, "quorum", None) or len(self.judge_names)

    @property
    def panel_combine(self) -> Combine | None:
        """How its judges' scores are combined, if its options say so."""
        return getattr(self, "combine", None)

    def with_judge(self, name: str) -> Self:
        """The grader with this judge alone."""
        return self.model_copy(update={"judge": name, "combine": None, "quorum": None})

    def judge_templates(self, case: TestCase, variables: Mapping[str, Any]) -> tuple[JudgeTemplate, ...]:
        """The templates of its prompts for a case that its options name; ``variables`` are the suite's ``vars``.

        Raises ``TemplateError``.
        """
        return ()

    def templates(self, case: TestCase, variables: Mapping[str, Any]) -> tuple[str, ...]:
        """The templates of its prompts for a case. Raises ``TemplateError``."""
        return tuple(template.name for template in self.judge_templates(case, variables))

    def template_contexts(
        self,
        case: TestCase,
        prompt: str,
        *,
        variables: Mapping[str, Any],
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Each template that it renders for a case, with the template's variables, for checking them.

        ``variables`` are the suite's ``vars``.
        """
        yield from ()

    def judge_calls(
        self,
        times: int,
        cases: Sequence[TestCase],
        variables: Mapping[str, Any],
    ) -> int | None:
        """Number of calls of each judge for ``times`` cells or pairs of ``cases``; ``None`` if unknown."""
        return times

    def recorded_answers(self, case: TestCase) -> Mapping[str, RecordedAnswer]:
        """The answers about a case that a recorded judge can give, by metric or question; empty if they are unknown."""
        return {}

    @property
    def rounds_per_call(self) -> int:
        """The most rounds of one call of a judge: more than one if it may look closer before it answers."""
        return 1

    def shared_calls(self, prompts: Iterable[tuple[TestCase, str]]) -> int:
        """Number of calls whose answers all judges share, for cases with each prompt that graders see.

        The first judge answers them.
        """
        return 0

    @property
    def rubric(self) -> Mapping[str, tuple[float, float] | None]:
        """The metrics that a judge scores beside its own verdict, each with its scale; ``None`` for yes or no."""
        return {}

    @property
    def label_questions(self) -> Mapping[str, LabelQuestion]:
        """Its judge questions as questions to human raters, by metric."""
        return {}

    @property
    def question_file(self) -> str | QuestionRows | None:
        """Its file of pinned questions, or the dataset with them."""
        return None

    @property
    def drops_bad_dependencies(self) -> bool:
        """Whether dependencies on unknown questions are dropped instead of reported."""
        return False

    def compared(self, labels: Iterable[str]) -> list[str]:
        """The labels of the model runs that it compares with each other."""
        return []

    def narrowed(self, labels: Iterable[str]) -> Self | None:
        """The grader restricted to these model runs; ``None`` if nothing is left to grade."""
        return self


class CustomGrader(CustomEntry, BaseGrader, PanelOptions):
    """A grader class of an installed plug-in, or ``my_package.module:Class``."""

    group: ClassVar[str] = "visioneval.graders"
    name_key: ClassVar[str] = "type"
    type: ClassName = Field(description=CLASS)
    judge: JudgeNames | None = Field(default=None, description="The key of its judge, if any, or a list of keys.")
    writes: Annotated[dict[str, Metric], Field(min_length=1)] | None = Field(
        default=None,
        description="Its metrics, by the name used in rules. Required if the class has no metrics().",
    )

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        declared = self.declared
        if declared is None or declared.metrics is None:
            return dict(self.writes or {})
        return {name: declared.metrics[name] for name in declared.cases.get(case.id, ())}

    def judge_calls(self, times: int, cases: Sequence[TestCase], variables: Mapping[str, Any]) -> int | None:
        return None  # unknown: the class decides

    @property
    def key_options(self) -> dict[str, Any]:
        return _without_unset(self.model_dump(exclude={"declared", "optional"}))


_NO_TRACE = (*PanelOptions.model_fields, "show")
"""Options that are not part of a grader's hash where they are not set."""


def _without_unset(options: dict[str, Any]) -> dict[str, Any]:
    """Options without those that leave no trace, so that the hash of a grader without them stays the same."""
    unset = {name for name in _NO_TRACE if options.get(name) is None}
    return {name: value for name, value in options.items() if name not in unset}


def rubric_scale(metric: str, graders: Iterable[BaseGrader]) -> tuple[float, float] | None:
    """The scale of a rubric score; ``None`` for any other metric."""
    return next((grader.rubric[metric] for grader in graders if metric in grader.rubric), None)
