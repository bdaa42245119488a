"""The options that all providers share, those of a custom one, sweeps, limits and prices. Generates nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, StringConstraints, model_validator

from visioneval.suite.case import Name, TestCase
from visioneval.suite.entries import CLASS, ClassName, CustomEntry
from visioneval.suite.files import Finished, RunLabels
from visioneval.suite.messages import as_written
from visioneval.suite.remote import SECRET_NAME, EnvName
from visioneval.types import Frozen, TaskType


def grid_sweep(
    base: str, params: Mapping[str, Any], grid: Mapping[str, Sequence[Any]]
) -> list[tuple[str, dict[str, Any]]]:
    """The Cartesian product of ``grid`` over ``params``, as ``(label, params)`` in the grid's order.

    The last key varies fastest. A label is ``base,key=value,...`` with values as written in the suite; without a
    grid, it is ``base``.
    """
    runs = []
    for values in product(*grid.values()):
        chosen = dict(zip(grid, values, strict=True))
        label = ",".join([base, *(f"{key}={as_written(value)}" for key, value in chosen.items())])
        runs.append((label, {**params, **chosen}))
    return runs


Seconds = Annotated[float, Field(gt=0, le=86_400, strict=True)]
Usd = Annotated[float, Field(ge=0, le=1_000_000, strict=True)]
LimitName = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=300)]

MAX_ATTEMPTS = 6
TIMEOUT_S = 300.0
OPERATION_TIMEOUT_S = 1800.0
"""How long a run waits for the end of a video's generation."""
CELL_TIMEOUT_S = 3600.0


class Limits(Frozen):
    """Limits of one ``provider:model``, or of all calls of a provider together.

    ``timeout_s`` and ``max_attempts`` of a provider are the defaults for its models.
    """

    max_concurrency: Annotated[int, Field(ge=1, le=4096, strict=True)] | None = Field(
        default=None, description="Concurrent calls. Default: `--max-concurrency` (64)."
    )
    requests_per_minute: Annotated[float, Field(gt=0, strict=True)] | None = Field(
        default=None, description="Calls of either kind per minute."
    )
    images_per_minute: Annotated[float, Field(gt=0, strict=True)] | None = Field(
        default=None, description="Images or videos generated per minute."
    )
    max_attempts: Annotated[int, Field(ge=1, le=100, strict=True)] | None = Field(
        default=None,
        description=f"Attempts per call with the first, before its cell is an ERROR. Default: {MAX_ATTEMPTS}.",
    )
    timeout_s: Seconds | None = Field(
        default=None,
        description="Seconds for one attempt, also of a custom class, and of `command` without a time limit of its "
        f"own. Default: {TIMEOUT_S:.0f}, and {OPERATION_TIMEOUT_S:.0f} for a generated video. "
        "Gemini's SDK gives up after 600 s.",
    )


class Price(Frozen):
    """The price of a call in US dollars. Keys that it leaves out count as zero."""

    per_image: Usd | None = Field(
        default=None,
        description="US dollars for each generated image or video. A judge generates none: as its only price, this is "
        "an error, or a warning if a model run has the same price.",
    )
    per_second: Usd | None = Field(
        default=None,
        description="US dollars for each second of generated video: those that the provider states, else those of the "
        "video. Records have them as `video_milliseconds` in `usage`.",
    )
    per_call: Usd | None = Field(default=None, description="US dollars for each call.")
    input_per_million: Usd | None = Field(default=None, description="US dollars for a million input tokens.")
    output_per_million: Usd | None = Field(default=None, description="US dollars for a million output tokens.")

    @model_validator(mode="after")
    def _check_not_empty(self) -> Self:
        if all(value is None for value in self.model_dump().values()):
            raise ValueError(
                "the price is empty: set per_image, per_second, per_call, input_per_million or output_per_million"
            )
        return self


Label = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=200, strip_whitespace=True)]
LAST_FRAME, REFERENCE, STYLE = "last_frame", "reference", "style"
"""The roles of images that are not the first frame of a video."""
GENERATION = frozenset({TaskType.IMAGE_GENERATION, TaskType.IMAGE_EDITING})

_MOST_BY_QUALITY = {"low": 512, "medium": 2_048}
_USUAL_BY_QUALITY = {"low": 400, "medium": 1_600, "high": 6_200}
"""Of OpenAI's image models, for an image of 1024 x 1536 pixels; a square one takes a third less."""
_HOST_FIELDS = ("base_url", "api_key_env", "google", "output_hosts", "env", "machine_credentials")
_NOT_GENERATED = {"label", "tasks", "params", "grid", "prompts", "path", "run", "dataset", "timeout_s", *_HOST_FIELDS}


@dataclass(frozen=True, slots=True)
class VideoInputs:
    """The images of a case by what they are for a video."""

    first_frame: Path | None
    last_frame: Path | None
    references: tuple[Path, ...]
    styles: tuple[Path, ...]

    @classmethod
    def of(cls, images: Iterable[tuple[str, Path]]) -> VideoInputs:
        """Of images and roles: the first image without such a role is the first frame; the others are references."""
        by_role: dict[str, list[Path]] = {LAST_FRAME: [], REFERENCE: [], STYLE: []}
        others: list[Path] = []
        for role, path in images:
            by_role.get(role, others).append(path)
        references = (*others[1:], *by_role[REFERENCE])
        last_frame = next(iter(by_role[LAST_FRAME]), None)
        return cls(others[0] if others else None, last_frame, references, tuple(by_role[STYLE]))

    @classmethod
    def of_case(cls, case: TestCase) -> VideoInputs:
        """Of the images that a case names, whose files need not exist."""
        return cls.of((image.role, Path(image.path)) for image in case.images)


class BaseProvider(Frozen):
    """Options that all entries of ``models`` share."""

    can_do: ClassVar[frozenset[TaskType]] = GENERATION
    runs_code: ClassVar[bool] = False
    """Whether code that is not visioneval's generates."""
    stand_in: ClassVar[bool] = False
    is_free: ClassVar[bool] = False
    usual_tokens: ClassVar[int] = 1_300
    """Output tokens of a generated image of unknown quality, for an estimate."""

    reads_outputs: ClassVar[bool] = False
    """Whether it reads existing outputs instead of generating; its cells name the files."""

    label: Label | None = Field(
        default=None, description="The label of its model runs. Default: `params.model`, else the provider's name."
    )
    tasks: tuple[TaskType, ...] = Field(default=(), description="Only cases of these tasks.")

    @property
    def has_outputs(self) -> bool:
        """Whether its cells have outputs."""
        return True

    @property
    def may_lack_outputs(self) -> bool:
        """Whether an output that does not exist is an error of its cell and not of the suite."""
        return False

    @property
    def provider_name(self) -> str:
        """The ``provider`` in the suite."""
        return str(getattr(self, "provider", ""))

    @property
    def needs_trust(self) -> bool:
        """Whether only a trusted suite may use it."""
        return self.runs_code

    @property
    def version(self) -> str | None:
        """The version of its code, if it is not visioneval's."""
        return None

    @property
    def key_options(self) -> dict[str, Any]:
        """The options beside ``params`` that its generations depend on."""
        return self.model_dump(exclude=_NOT_GENERATED)

    def key_params(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """The parameters that its generations depend on."""
        return {} if self.reads_outputs else params

    @property
    def base_label(self) -> str:
        """The label before the sweep adds to it."""
        return self.label or self.provider_name

    @property
    def needs_keys(self) -> tuple[str, ...]:
        """The environment variables that must be set to call the provider."""
        return ()

    def does(self, task: TaskType) -> bool:
        """Whether this entry supports a task and its ``tasks`` do not exclude it."""
        return task in self.can_do and (not self.tasks or task in self.tasks)

    def longest_video_s(self, params: Mapping[str, Any]) -> float:
        """The greatest length of a video that it generates with these parameters, in seconds."""
        return 0.0

    def most_image_tokens(self, params: Mapping[str, Any]) -> int:
        """Output tokens that a budget reserves for a generated image: the largest size uses fewer."""
        return _MOST_BY_QUALITY.get(str(params.get("quality")), 8_192)

    def usual_image_tokens(self, params: Mapping[str, Any]) -> int:
        """Output tokens of a generated image, for an estimate."""
        return _USUAL_BY_QUALITY.get(str(params.get("quality")), self.usual_tokens)

    def param_problems(self, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Each parameter that this provider does not accept, with the reason."""
        yield from ()

    def unused_params(self, params: Mapping[str, Any], tasks: Set[TaskType]) -> Iterator[tuple[str, str]]:
        """Each parameter that does nothing for cases of these tasks, with the reason."""
        yield from ()

    def inputs_problem(self, params: Mapping[str, Any], case: TestCase) -> str | None:
        """Why a video cannot be generated from the images of a case with these parameters."""
        return None

    def model_runs(
        self, cases: Sequence[TestCase], folder: Path, run_labels: RunLabels
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Label and changed fields of each of its model runs, in order.

        Raises ``VisionEvalError`` if another run or a dataset cannot be read.
        """
        yield self.base_label, {}

    @property
    def outputs_option(self) -> tuple[str, ...]:
        """The path in its entry of the option that names existing outputs; empty if cases name them."""
        return ()

    def source_problem(self, message: str) -> tuple[tuple[str, ...], str]:
        """The path in its entry and the message for a source of model runs that cannot be read."""
        return self.outputs_option, message

    def prompt_labels(self, available: Sequence[str]) -> Sequence[str]:
        """The labels of the suite's ``prompts`` with which it generates; none if it reads existing outputs."""
        return ()

    def outputs_per_call(self, params: dict[str, Any]) -> int:
        """How many samples one call generates."""
        return 1

    def calls_per_sample(self, params: dict[str, Any]) -> int:
        """How many calls each of the suite's ``samples`` needs."""
        return 1

    @property
    def source_run(self) -> str | None:
        """The other run that its images come from, as ``RUN`` or ``RUN@label``."""
        return None

    def from_run(self, source: str) -> Self:
        """A copy with another source run."""
        return self

    def path_of(self, case_id: str, label: str, sample: int) -> str | None:
        """The path of a cell's image, if a pattern defines it."""
        return None

    def existing_outputs(
        self, label: str, cases: Sequence[TestCase], variables: Mapping[str, Any], folder: Path
    ) -> Finished:
        """The existing outputs of a model run in a dataset or in the suite's cases."""
        return {}


class GeneratingProvider(BaseProvider):
    """An entry that generates, with parameters and an optional sweep over them."""

    params: dict[str, Any] = Field(
        default_factory=dict, description="Parameters of each call, as the provider documents them."
    )
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(
        default_factory=dict,
        description="Values by parameter. Each combination is one model run, labeled `label,key=value,...`.",
    )
    prompts: Annotated[tuple[Name, ...], Field(min_length=1)] | None = Field(
        default=None, description="Labels of the suite's `prompts` that this entry has. Default: all."
    )

    @model_validator(mode="after")
    def _check_secrets(self) -> Self:
        for name in (*self.params, *self.grid):
            if SECRET_NAME.fullmatch(name):
                raise ValueError(
                    f"{name!r} looks like a secret: remove it; API keys are read from environment variables"
                )
        return self

    @model_validator(mode="after")
    def _check_duplicates(self) -> Self:
        duplicates = sorted(self.params.keys() & self.grid.keys())
        if duplicates:
            raise ValueError(f"params and grid both set {', '.join(duplicates)}: remove one of them")
        return self

    @property
    def base_label(self) -> str:
        return self.label or str(self.params.get("model") or super().base_label)

    def prompt_labels(self, available: Sequence[str]) -> Sequence[str]:
        return available if self.prompts is None else self.prompts

    def model_runs(
        self, cases: Sequence[TestCase], folder: Path, run_labels: RunLabels
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        for label, params in grid_sweep(self.base_label, self.params, self.grid):
            yield label, {"params": params, "grid": {}}


class CustomProvider(CustomEntry, GeneratingProvider):
    """A provider class of an installed plug-in, or ``my_package.module:Class``."""

    group: ClassVar[str] = "visioneval.providers"
    provider: ClassName = Field(description=CLASS)
    api_key_env: EnvName | None = Field(
        default=None, description="The environment variable with the key that the class requires."
    )

    @property
    def needs_keys(self) -> tuple[str, ...]:
        return () if self.api_key_env is None else (self.api_key_env,)


def model_and_n(params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Problems with the parameters ``model``, ``n`` and ``stream``."""
    if not isinstance(params.get("model"), str):
        yield "model", "params.model is missing: set the model's name"
    n = params.get("n", 1)
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= 100:
        yield "n", "n must be a whole number from 1 to 100"
    if params.get("stream"):
        yield "stream", "stream is not supported: remove it"
