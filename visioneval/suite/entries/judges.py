"""The options that all judges share, and what graders that ask judges do: panels, parts of messages, recorded answers.

A judge is a model that looks at images and answers a grader's questions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import Discriminator, Field, Tag, field_validator

from visioneval.errors import did_you_mean
from visioneval.suite.case import Name, TestCase, context
from visioneval.suite.entries import CLASS, ClassName, CustomEntry
from visioneval.suite.remote import EnvName
from visioneval.templates.render import render
from visioneval.types import Frozen, Metric, TaskType, text_or_list

Combine = Literal["majority", "median", "mean"]
_Panel = Annotated[tuple[Name, ...], Field(min_length=1)]


JudgeNames = Annotated[
    Annotated[Name, Tag("constrained-str")] | Annotated[_Panel, Tag("list")], Discriminator(text_or_list)
]
"""The key of a judge, or the keys of a panel."""


class PanelOptions(Frozen):
    """How the answers of a panel become one. Without a panel, both must be unset."""

    combine: Combine | None = Field(
        default=None,
        description="How a panel's scores become one: `majority` for yes or no and for words; `median`, the "
        "default, or `mean` for numbers.",
    )
    quorum: Annotated[int, Field(ge=1, strict=True)] | None = Field(
        default=None,
        description="How many judges of a panel must answer. Default: all. If fewer do, because one is down, refuses, "
        "or gives no usable reply, the grader fails.",
    )


def names_of(judge: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """The judges that an option names: none, one, or those of a panel."""
    if judge is None:
        return ()
    return (judge,) if isinstance(judge, str) else judge


def combinations_of(metric: Metric) -> tuple[Combine, ...]:
    """How a panel's scores of a metric can be combined; the first is the default."""
    return ("median", "mean") if metric.type == "number" else ("majority",)


ShownPart = Literal["prompt", "criteria", "inputs", "masks", "reference", "output"]
"""What a judge can get, in the order of its message:

- ``prompt``: The prompt that graders see, and the region, as variables of the template.
- ``criteria``: The criteria, as a variable of the template.
- ``inputs``: The case's input images, with their roles.
- ``masks``: Its masks, in black and white.
- ``reference``: The image of the correct result; not by default.
- ``output``: The output, or both of a pair; required.
"""
ASKED = ("prompt", "criteria")
"""What was asked for, and what makes it good."""
DEFAULT_PARTS: tuple[ShownPart, ...] = ("prompt", "criteria", "inputs", "masks", "output")

REASON = "reason"
LOOKED_UP = (
    "The judge's instructions; looked up in `templates_dir`, next to the suite, then among the built-in templates."
)
"""What is said about a template."""
SHOWN: Sequence[Mapping[str, str]] = ({"id": "output", "description": "the image to judge"},)
"""Placeholder for the attached images when a template is checked."""


@dataclass(frozen=True, slots=True)
class JudgeTemplate:
    """A template of a grader, and what it must show so that the judge knows what was asked."""

    name: str
    option: str
    """The grader's option that names it."""
    must_show: tuple[str, ...]
    """Variables: a template that shows none of them is an error, and one that leaves some out gets a warning."""
    instead: tuple[str, ...] = ()
    """Variables of which one is enough, with a warning."""
    ids: tuple[str, ...] = ()
    """What names the questions in the judge's reply, such as ``questions.id``: without it, no answer can be read."""
    without_ids: tuple[str, ...] = ()
    """What a template contains whose replies repeat the questions, so that it need not show ``ids``."""
    hidden: tuple[str, ...] = ()
    """Variables that this grader withholds."""
    show: tuple[str, ...] = ()
    """What the judge sees, if the grader has the option ``show``."""
    can_hide_all: bool = False
    """Whether ``show: [output]`` makes sense for this grader."""


class ShowOptions(Frozen):
    """Which parts of a case the judge's message has, and in what order."""

    needs_request: ClassVar[bool] = True
    """Whether the judge must see the prompt or the criteria."""

    show: tuple[ShownPart, ...] | None = Field(
        default=None,
        description="What the judge sees, in this order. Default: `[prompt, criteria, inputs, masks, output]`.",
    )

    @field_validator("show", mode="before")
    @classmethod
    def _shows_the_output(cls, value: Any) -> Any:
        if not isinstance(value, (list, tuple)) or not all(isinstance(part, str) for part in value):
            return value
        parts = get_args(ShownPart)
        for index, part in enumerate(value):
            if part not in parts:
                raise ValueError(f"show: there is no part {part!r}{did_you_mean(part, parts)}")
            if part in value[:index]:
                raise ValueError(f"show: {part!r} is listed twice")
        if "output" not in value:
            raise ValueError("show: add 'output', which is what the judge grades")
        if cls.needs_request and not {*ASKED} & {*value}:
            raise ValueError("show: add 'prompt' or 'criteria', which this grader compares the output with")
        return value

    @property
    def parts(self) -> tuple[ShownPart, ...]:
        """The parts that the judge sees, in order."""
        return DEFAULT_PARTS if self.show is None else self.show

    @property
    def withheld(self) -> tuple[str, ...]:
        """The template variables that the judge does not see."""
        parts = self.parts
        return tuple(name for name in ASKED if name not in parts)

    def visible(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """A template's variables without those that the judge does not see. Without the prompt, it has no region."""
        withheld = self.withheld
        rest = {name: value for name, value in variables.items() if name not in withheld}
        if "prompt" in withheld:
            rest |= {"region": None, "case": {**rest["case"], "region": None}}
        return rest


def template_name(name: str, case: TestCase, variables: Mapping[str, Any]) -> str:
    """The name of a case's template: ``name`` may have expressions, such as ``{{ case.metadata.kind }}.md.j2``.

    ``variables`` are the suite's ``vars``. Raises ``TemplateError``.
    """
    return render(name, context(case, variables)) if "{" in name else name


def media_of(case: TestCase) -> str:
    """``"video"`` or ``"image"``, by the case's task."""
    return "video" if case.task_type is TaskType.VIDEO_GENERATION else "image"


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """What a recorded answer to one question of a grader must be."""

    expected: str
    """In words, for a message."""
    fits: Callable[[Any], bool]
    """Whether an answer can be used, after it was read by ``schema``."""
    schema: Mapping[str, Any] | None = None
    """How the text of a cell is read; ``None`` for a question in words, whose answer is used as it is."""
    text: str | None = None
    """The question in words, under which its answer may be recorded too."""
    is_required: bool = True
    """Whether the grader has no score without it."""


def is_text(value: Any) -> bool:
    """Whether an answer is text."""
    return isinstance(value, str)


def is_texts(value: Any) -> bool:
    """Whether an answer is a list of texts."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


class BaseJudge(Frozen):
    """Options that all entries of ``judges`` share."""

    runs_code: ClassVar[bool] = False
    """Whether code that is not visioneval's answers."""
    is_free: ClassVar[bool] = False
    watches: ClassVar[bool] = False
    """Whether it accepts videos and Google Cloud Storage URIs directly, without extracted frames."""
    is_recorded: ClassVar[bool] = False
    """Whether it looks up recorded answers about single images; it cannot generate questions or compare images."""

    def located(self, folder: Path) -> Self:
        """The same judge with its paths resolved from ``folder``."""
        return self

    @property
    def needs_trust(self) -> bool:
        """Whether only a trusted suite may use it."""
        return self.runs_code

    @property
    def version(self) -> str | None:
        """The version of its code, if it is not visioneval's."""
        return None

    @property
    def needs_keys(self) -> tuple[str, ...]:
        """The environment variables that must be set to use the judge."""
        return ()

    @property
    def answering_options(self) -> dict[str, Any]:
        """The options that its answers depend on: without its host and credentials."""
        return self.model_dump(exclude={"base_url", "api_key_env", "google", "env", "machine_credentials"})

    def grading_options(self, folder: Path) -> dict[str, Any]:
        """What the scores of its graders depend on: its options, and the content of a file that it reads answers from.

        ``folder`` is the suite's.
        """
        return self.answering_options

    @property
    def provider_name(self) -> str:
        """Its ``provider``, as the suite writes it."""
        return str(getattr(self, "provider", ""))

    @property
    def title(self) -> str:
        """``provider:model``."""
        return ":".join(str(value) for name in ("provider", "model") if (value := getattr(self, name, None)))


def check_params(params: dict[str, Any], reserved_names: set[str]) -> dict[str, Any]:
    """Refuses parameters that the grader sets itself, such as the messages or the response format."""
    reserved = sorted(params.keys() & reserved_names)
    if reserved:
        raise ValueError(f"params: {reserved[0]!r} is set by the grader: remove it")
    return params


class CustomJudge(CustomEntry, BaseJudge):
    """A judge class of an installed plug-in, or ``my_package.module:Class``."""

    group: ClassVar[str] = "visioneval.judges"
    provider: ClassName = Field(description=CLASS)
    model: str | None = Field(default=None, description="Any value for the class.")
    params: dict[str, Any] = Field(default_factory=dict, description="Any values for the class.")
    api_key_env: EnvName | None = Field(
        default=None, description="The environment variable with the key that the class requires."
    )

    @property
    def needs_keys(self) -> tuple[str, ...]:
        return () if self.api_key_env is None else (self.api_key_env,)
