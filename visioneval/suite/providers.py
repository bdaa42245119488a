"""The options of every provider, and the tasks that it can do, without any provider's code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from string import Formatter
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, StringConstraints, ValidationError, model_validator

from visioneval.providers.mock.config import SketchParams
from visioneval.suite.case import PRINTABLE
from visioneval.suite.graders import ModuleClass
from visioneval.suite.loading.messages import explain
from visioneval.suite.outputs import FilePath
from visioneval.suite.remote import EnvName, GeminiOptions, MaskMode, OpenAIOptions
from visioneval.types import Frozen, TaskType

Label = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=200, strip_whitespace=True)]
Argument = Annotated[str, StringConstraints(pattern=PRINTABLE)]
DRAWING = frozenset({TaskType.IMAGE_GENERATION, TaskType.IMAGE_EDITING})


SECRET_NAME = re.compile(r"(?:.*_)?(?:api_?key|token|secret|password)", re.IGNORECASE)
"""How a parameter, or a variable of a suite, is called that holds a secret."""


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
    def has_pictures(self) -> bool:
        """Whether its cells have pictures at all."""
        return True

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

    def param_problems(self, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:  # noqa: ARG002 - takes anything
        """Each parameter that this provider does not take, and why."""
        yield from ()


class DrawingProvider(BaseProvider):
    """An entry that draws, and so has parameters and may sweep them."""

    params: dict[str, Any] = Field(default_factory=dict)
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(
        default_factory=dict, description="Parameter: values. Every combination is one model run."
    )

    @model_validator(mode="after")
    def _no_secrets(self) -> Self:
        for name in (*self.params, *self.grid):
            if SECRET_NAME.fullmatch(name):
                raise ValueError(f"{name!r} looks like a secret: a suite holds none; keys come from the environment")
        return self

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

    def calls_per_sample(self, params: dict[str, Any]) -> int:  # noqa: ARG002 - for providers without an n of their own
        """How many calls each of the suite's ``samples`` stands for."""
        return 1


class PictureDataset(Frozen):
    """Finished pictures in a file of rows; rows meet cases by id, or by prompt where they have no id."""

    path: FilePath
    fields: dict[str, str] = Field(description="image, and id or prompt, and optionally model: the column of each.")

    @model_validator(mode="after")
    def _enough(self) -> Self:
        known = {"image", "id", "prompt", "model"}
        if unknown := sorted(self.fields.keys() - known):
            raise ValueError(f"fields: unknown {', '.join(unknown)} (known: {', '.join(sorted(known))})")
        if "image" not in self.fields or not self.fields.keys() & {"id", "prompt"}:
            raise ValueError("fields must map image, and id or prompt")
        return self


class OpenAIProvider(DrawingProvider, OpenAIOptions):
    """OpenAI's Images API, or a server that speaks it. Parameters are passed through as written."""

    provider: Literal["openai"]
    mask_mode: MaskMode = Field(default="send", description="send: as the mask; as_image: as one more picture; ignore.")

    @property
    def needs_key(self) -> str | None:
        return self.key_variable

    def pictures_per_call(self, params: dict[str, Any]) -> int:
        return int(params.get("n") or 1)

    def param_problems(self, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        yield from _drawing_params(params)


class GeminiProvider(DrawingProvider, GeminiOptions):
    """A Gemini model that answers with pictures; ``params`` holds ``model`` and the generation config, as written."""

    provider: Literal["gemini"]
    mask_mode: Literal["as_image", "ignore"] = Field(
        default="as_image", description="as_image: the mask is one more picture, as there is no mask argument; ignore."
    )

    @property
    def needs_key(self) -> str | None:
        return None if self.google else self.key_variable

    def calls_per_sample(self, params: dict[str, Any]) -> int:
        return int(params.get("n") or 1)

    def param_problems(self, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        yield from _drawing_params(params)


def _drawing_params(params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if not isinstance(params.get("model"), str):
        yield "model", "params.model is missing: name the model"
    n = params.get("n", 1)
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= 100:
        yield "n", "n is a whole number from 1 to 100"
    if params.get("stream"):
        yield "stream", "stream is not for a run: pictures are taken whole"


class FilesProvider(BaseProvider):
    """Pictures and videos that exist already: a path pattern, another run, or rows of a dataset."""

    can_do: ClassVar[frozenset[TaskType]] = frozenset(TaskType)
    is_free: ClassVar[bool] = True

    provider: Literal["files"]
    path: FilePath | None = Field(default=None, description="A pattern with {case}, {model} (the label) and {sample}.")
    run: FilePath | None = Field(default=None, description="RUN or RUN@label: another run's pictures.")
    dataset: PictureDataset | None = None
    pictures: Literal["none"] | None = Field(
        default=None, description="none: cells without a picture, about which there are recorded answers only."
    )

    @property
    def has_pictures(self) -> bool:
        return self.pictures is None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [name for name in ("path", "run", "dataset", "pictures") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"files takes one source of pictures, not {' and '.join(given)}")
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

    def param_problems(self, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        try:
            SketchParams.model_validate(params)
        except ValidationError as error:
            for part in error.errors(include_url=False):
                yield str(part["loc"][0]), explain(part, SketchParams.model_json_schema())


class CommandProvider(DrawingProvider):
    """A program of the user's own, called once per picture. Needs ``--trust-suite``."""

    runs_code: ClassVar[bool] = True

    provider: Literal["command"]
    argv: Annotated[list[Argument], Field(min_length=1)] = Field(description="The program and its arguments; no shell.")
    timeout_s: Annotated[float, Field(gt=0, le=86_400, strict=True)] = 600.0


class CustomProvider(DrawingProvider):
    """A provider class of the user's own, ``my_package.module:Class``. Needs ``--trust-suite``."""

    runs_code: ClassVar[bool] = True

    provider: ModuleClass
    options: dict[str, Any] = Field(default_factory=dict)
    api_key_env: EnvName | None = Field(default=None, description="The environment variable that it needs.")

    @property
    def needs_key(self) -> str | None:
        return self.api_key_env


PROVIDERS: dict[str, type[BaseProvider]] = {
    "openai": OpenAIProvider,
    "gemini": GeminiProvider,
    "files": FilesProvider,
    "sketch": SketchProvider,
    "command": CommandProvider,
}
