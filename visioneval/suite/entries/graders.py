"""The kinds of graders, by what they look at, the options that all graders share, and those of a custom one.

When a grader works, and where its results are stored, depends on its kind alone. Its type matters only to code that
reads its details or its metrics, such as the questions of a gecko grader or the gaps of an alignment.

A new grader is a folder in ``graders/`` with its options and checks in ``__init__.py``, a name in ``GRADERS`` of
``plugins.py``, and a contract in ``pyproject.toml``.

What a layer does for a kind has one place there: the work after the cells in ``running/runner.py``, what a run has
of it in ``analysis/summary/summary.py``, and what is shown of it in ``report/run.py``.

What other code knows of a type are class attributes of its options. Few places have its name: ``analysis/redaction.py``
(what ``--redact`` keeps of its ``details``), ``_OMITS_READ`` in ``analysis/summary/judges.py`` (whose ``details`` have
``read``), ``scale/ray/jobs.py``, ``label/items.py`` and ``probing/prepare.py`` (what reads text by OCR),
``analysis/sides.py`` (what a comparison shows of details) and ``providers/mock`` (which flaws it sees).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Annotated, Any, ClassVar, Protocol, Self, TypeVar

from pydantic import Field

from visioneval.plugins import GRADERS, config_of
from visioneval.suite.case import Name, TestCase, Text, context
from visioneval.suite.entries import CLASS, ClassName, CustomEntry
from visioneval.suite.entries.judges import (
    ASKED,
    SHOWN,
    Combine,
    JudgeNames,
    JudgeTemplate,
    PanelOptions,
    RecordedAnswer,
    ShowOptions,
    media_of,
    names_of,
    template_name,
)
from visioneval.suite.files import FrameCount, QuestionRows
from visioneval.suite.filters import When
from visioneval.suite.labels import LabelQuestion
from visioneval.types import Frozen, Metric, TaskType

PREFERENCES = "preferences.jsonl"
DIVERSITY = "diversity.jsonl"
DUPLICATES = "duplicates.jsonl"


@dataclass(frozen=True, slots=True)
class GraderKind:
    """What a grader looks at, and when: one cell, as soon as it has an output, or several, after all cells are done."""

    name: str
    file: str | None = None
    """The file in the run's folder with what it finds; ``None`` if the records of cells have it."""
    compares: str = ""
    """What it compares, in words; empty if it looks at one cell."""
    shown: int = 1
    """How many outputs a question to a judge shows."""
    turns: bool = True
    """Whether it grades later turns, too. One that compares model runs does not: each run edits another image there."""

    comparisons: Callable[[Sequence[int]], int] = lambda _: 0
    """How many comparisons it makes of a case, of which each model run has so many samples."""

    @property
    def grades_cells(self) -> bool:
        """Whether it grades each cell by itself."""
        return self.file is None

    def is_for(self, case: TestCase) -> bool:
        """Whether it is about a case. A case that generates nothing has no outputs of its own to compare."""
        return self.grades_cells or (case.output_of is None and (self.turns or not case.previous_turn))


def _pairs_of_runs(samples: Sequence[int]) -> int:
    return sum(map(min, combinations(samples, 2)))


def _pairs_of_samples(samples: Sequence[int]) -> int:
    return sum(comb(number, 2) for number in samples)


CELL = GraderKind("cell")
QUESTIONS = GraderKind("questions")
"""A cell, by questions about its prompt, which may be pinned or generated in advance; records have them."""
PAIR = GraderKind("pair", file=PREFERENCES, compares="pairs", shown=2, turns=False, comparisons=_pairs_of_runs)
"""The outputs of two model runs, between which judges choose."""
SAMPLES = GraderKind("samples", file=DIVERSITY, compares="the samples of a case", comparisons=_pairs_of_samples)
"""The outputs of a case on one model run, compared on this machine."""
CASES = GraderKind("cases", file=DUPLICATES, compares="the outputs of different cases", comparisons=sum)
"""The outputs of different cases on one model run, compared on this machine: each is measured once, and pairs of those
that are alike."""
KINDS = (CELL, QUESTIONS, PAIR, SAMPLES, CASES)


class _OfKind(Protocol):
    @property
    def kind(self) -> GraderKind: ...


GraderT = TypeVar("GraderT", bound=_OfKind)


def of_kind(graders: Iterable[GraderT], kind: GraderKind) -> list[GraderT]:
    """The graders of a kind."""
    return [grader for grader in graders if grader.kind is kind]


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


def video_problems(
    cases: Sequence[TestCase], graders: Sequence[tuple[int, BaseGrader]], expects: Callable[[TestCase], Any], what: str
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yields graders of images that are for a case about a video with something that they ``expect``.

    ``what`` begins the message, such as ``codes are read``.
    """
    for index, grader in graders:
        case = next((case for case in cases if expects(case) and is_video(case) and grader.is_for(case)), None)
        if case is not None:
            yield (
                ("graders", index, "type"),
                f"{what} in images only, but the case {case.id!r} is about a video: restrict 'when'",
            )


class BaseGrader(Frozen):
    """Options that all graders share."""

    runs_code: ClassVar[bool] = False
    """Whether code that is not visioneval's grades."""
    kind: ClassVar[GraderKind] = CELL
    """What it looks at."""
    grades_records: ClassVar[bool] = False
    """Whether it can grade a cell without an image from recorded answers."""
    scores_match: ClassVar[bool] = False
    """Whether its scores say how well an image matches its prompt, which a counter-example's does not. A text, a rubric
    or pixels are measured against what the case expects, which is right for a counter-example too."""
    votes_in_own_words: ClassVar[bool] = False
    """Whether the votes in its details that are no numbers are words of lists in the suite, so that no vote says what
    an image shows."""
    case_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields of a case that its grade depends on, in addition to those that every grade depends on."""

    needs: ClassVar[Mapping[str, str]] = {}
    """What a case must contain for a metric, by the metric's name without the grader's key."""
    meanings: ClassVar[Mapping[str, str]] = {}
    """What each of its metrics says, by the same names, for the reference. Empty if the suite names its metrics."""

    key: Name = Field(
        description="Its unique name. Its metrics begin with it, except those of a rubric and of a class of your own."
    )
    when: When | None = Field(default=None, description="The only cases that it grades. Default: all.")
    optional: bool | None = Field(
        default=None,
        description="Whether a cell can pass if this grader failed. "
        "Default: true for cells in which no gate and only rules with `level: warn` read its metrics.",
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
        """Whether it applies to a case."""
        return self.kind.is_for(case) and (self.when is None or self.when.fits(case.id, case.task_type, case.tags))

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
        return False

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
        self, case: TestCase, prompt: str, *, variables: Mapping[str, Any]
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Each template that it renders for a case, with the template's variables, for checking them.

        ``variables`` are the suite's ``vars``.
        """
        yield from ()

    def judge_calls(self, times: int, cases: Sequence[TestCase], variables: Mapping[str, Any]) -> int | None:
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
        """The labels of the model runs whose outputs it compares."""
        return list(labels)

    def narrowed(self, labels: Iterable[str]) -> Self | None:
        """The grader restricted to these model runs; ``None`` if nothing is left to grade."""
        return self


class ShowingGrader(BaseGrader, PanelOptions, ShowOptions):
    """Options of graders whose judge sees what ``show`` names, by one template."""

    judge: JudgeNames = Field(default="default", description="A key of `judges`, or a list of keys for a panel.")
    template: Text
    frames: FrameCount = 8

    @property
    def needs_no_bytes(self) -> bool:
        return True

    def template_of(self, case: TestCase, variables: Mapping[str, Any]) -> str:
        """The name of a case's template; ``variables`` are the suite's ``vars``. Raises ``TemplateError``."""
        return template_name(self.template, case, variables)

    def judge_templates(self, case: TestCase, variables: Mapping[str, Any]) -> tuple[JudgeTemplate, ...]:
        shown = tuple(part for part in ASKED if part in self.parts)
        name, can_hide_all = self.template_of(case, variables), not self.needs_request
        return (
            JudgeTemplate(name, "template", shown, hidden=self.withheld, show=self.parts, can_hide_all=can_hide_all),
        )

    def prompt_variables(
        self,
        case: TestCase,
        prompt: str,
        *,
        images: Sequence[Mapping[str, str]],
        variables: Mapping[str, Any],
        **own: Any,
    ) -> dict[str, Any]:
        """The variables of the template: those of every grader, and its ``own``. They never depend on rules."""
        shared = {
            **context(case, variables),
            "task_type": str(case.task_type),
            "media": media_of(case),
            "prompt": prompt,
            "criteria": case.criteria,
            "images": list(images),
            "show": list(self.parts),
        }
        return self.visible({**shared, **own})

    def template_contexts(
        self, case: TestCase, prompt: str, *, variables: Mapping[str, Any]
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        yield self.template_of(case, variables), self.prompt_variables(case, prompt, images=SHOWN, variables=variables)


class CustomGrader(CustomEntry, BaseGrader, PanelOptions):
    """What your own class measures: ``my_package.module:Class``, or one of an installed plug-in."""

    group: ClassVar[str] = "visioneval.graders"
    name_key: ClassVar[str] = "type"
    type: ClassName = Field(description=CLASS)
    judge: JudgeNames | None = Field(
        default=None,
        description="A key of `judges`, for a class that asks one, or a list of keys for a panel. Default: none.",
    )
    writes: Annotated[dict[str, Metric], Field(min_length=1)] | None = Field(
        default=None,
        description="Its metrics, by the name that rules use. A class with `metrics(case)` declares them itself: "
        "leave the key out, or give the same values.",
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


def options_of_type(name: str) -> type[BaseGrader]:
    """The options of graders of a type that a record names: ``BaseGrader`` if visioneval has no such type."""
    options: type[BaseGrader] = config_of(GRADERS, name) if name in GRADERS else BaseGrader
    return options


def rubric_scale(metric: str, graders: Iterable[BaseGrader]) -> tuple[float, float] | None:
    """The scale of a rubric score; ``None`` for any other metric."""
    questions = (grader.label_questions.get(metric) for grader in graders)
    return next((question.scale for question in questions if question is not None), None)
