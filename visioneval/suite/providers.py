"""The options of every provider, and the tasks that it can do, without any provider's code."""

from __future__ import annotations

import json
from string import Formatter
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, StringConstraints, ValidationError, model_validator

from visioneval.suite.case import Name, Text
from visioneval.suite.graders import ModuleClass
from visioneval.suite.sketch import SketchParams
from visioneval.types import Frozen, TaskType

Label = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=200, strip_whitespace=True)]
DRAWING = frozenset({TaskType.IMAGE_GENERATION, TaskType.IMAGE_EDITING})


class WrittenFloat(float):
    """A number that remembers how the suite wrote it, so that labels say ``1.10`` where the suite does."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Self:
        number = super().__new__(cls, text)
        number.text = text
        return number


def as_written(value: object) -> str:
    """A parameter's value as it stands in a label."""
    if isinstance(value, WrittenFloat):
        return value.text
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


class BaseProvider(Frozen):
    """What all entries of ``models:`` share."""

    can_do: ClassVar[frozenset[TaskType]] = DRAWING
    runs_code: ClassVar[bool] = False
    stand_in: ClassVar[bool] = False
    is_free: ClassVar[bool] = False

    label: Label | None = None
    tasks: tuple[TaskType, ...] = Field(default=(), description="Only cases of these tasks.")

    @property
    def base_label(self) -> str:
        """The label before the sweep adds to it."""
        return self.label or str(getattr(self, "provider", ""))

    @property
    def needs_key(self) -> str | None:
        """The environment variable without which nothing can be called."""
        return None

    def does(self, task: TaskType) -> bool:
        """Whether this entry takes cases of a task: able to, and not restricted to others."""
        return task in self.can_do and (not self.tasks or task in self.tasks)

    def check_params(self, params: dict[str, Any]) -> None:
        """Raises ``ValueError`` for parameters that this provider does not take."""


class DrawingProvider(BaseProvider):
    """An entry that draws, and so has parameters and may sweep them."""

    params: dict[str, Any] = Field(default_factory=dict)
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(
        default_factory=dict, description="Parameter: values. Every combination is one model run."
    )

    @model_validator(mode="after")
    def _one_value_each(self) -> Self:
        twice = sorted(self.params.keys() & self.grid.keys())
        if twice:
            raise ValueError(f"params and grid both set {', '.join(twice)}")
        return self

    @property
    def base_label(self) -> str:
        return self.label or str(self.params.get("model") or super().base_label)

    def pictures_per_call(self, params: dict[str, Any]) -> int:  # noqa: ARG002 - for providers with an n
        """How many samples one call draws."""
        return 1


class PictureDataset(Frozen):
    """Finished pictures in a file of rows; rows meet cases by id, or by prompt where they have no id."""

    path: Text
    fields: dict[str, str] = Field(description="image, and id or prompt, and optionally model: the column of each.")

    @model_validator(mode="after")
    def _enough(self) -> Self:
        known = {"image", "id", "prompt", "model"}
        if unknown := sorted(self.fields.keys() - known):
            raise ValueError(f"fields: unknown {', '.join(unknown)} (known: {', '.join(sorted(known))})")
        if "image" not in self.fields or not self.fields.keys() & {"id", "prompt"}:
            raise ValueError("fields must map image, and id or prompt")
        return self


class FilesProvider(BaseProvider):
    """Pictures that exist already: a path pattern, another run, or rows of a dataset."""

    is_free: ClassVar[bool] = True

    provider: Literal["files"]
    path: Text | None = Field(default=None, description="A pattern with {case}, {model} (the label) and {sample}.")
    run: Text | None = Field(default=None, description="RUN or RUN@label: another run's pictures.")
    dataset: PictureDataset | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [name for name in ("path", "run", "dataset") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"takes one source of pictures, not {' and '.join(given)}")
        if self.path is not None:
            _only_known_fields(self.path)
        return self


def _only_known_fields(pattern: str) -> None:
    try:
        parts = list(Formatter().parse(pattern))
    except ValueError:
        parts = [("", "?", "", None)]
    if any(name not in (None, "case", "model", "sample") or spec or how for _, name, spec, how in parts):
        raise ValueError("path may hold {case}, {model} and {sample}, and no other braces")


class SketchProvider(DrawingProvider):
    """A stand-in that draws plain layouts. It is no model; it shows that graders and rules work."""

    stand_in: ClassVar[bool] = True
    is_free: ClassVar[bool] = True

    provider: Literal["sketch"]

    def check_params(self, params: dict[str, Any]) -> None:
        try:
            SketchParams.model_validate(params)
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(f"sketch: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


class CommandProvider(DrawingProvider):
    """A program of the user's own, called once per picture. Needs ``--trust-suite``."""

    runs_code: ClassVar[bool] = True

    provider: Literal["command"]
    argv: Annotated[list[str], Field(min_length=1)] = Field(description="The program and its arguments; no shell.")
    timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 600.0


class CustomProvider(DrawingProvider):
    """A provider class of the user's own, ``my_package.module:Class``. Needs ``--trust-suite``."""

    runs_code: ClassVar[bool] = True

    provider: ModuleClass
    options: dict[str, Any] = Field(default_factory=dict)
    key_variable: Name | None = Field(default=None, description="The environment variable that it needs.")

    @property
    def needs_key(self) -> str | None:
        return self.key_variable


PROVIDERS: dict[str, type[BaseProvider]] = {
    "files": FilesProvider,
    "sketch": SketchProvider,
    "command": CommandProvider,
}
