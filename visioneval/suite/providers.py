"""What the options of every provider share, and those of a provider of the user's own. No provider's work is here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, StringConstraints, model_validator
from pydantic.json_schema import SkipJsonSchema

from visioneval.suite.case import TestCase
from visioneval.suite.graders import Declared, ModuleClass
from visioneval.suite.outputs import Finished, RunLabels
from visioneval.suite.remote import EnvName
from visioneval.suite.sweep import grid_sweep
from visioneval.types import Frozen, TaskType

Label = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=200, strip_whitespace=True)]
GENERATION = frozenset({TaskType.IMAGE_GENERATION, TaskType.IMAGE_EDITING})


SECRET_NAME = re.compile(r"(?:.*_)?(?:api_?key|token|secret|password)", re.IGNORECASE)
"""How a parameter, or a variable of a suite, is called that holds a secret."""


class BaseProvider(Frozen):
    """What all entries of ``models:`` share."""

    can_do: ClassVar[frozenset[TaskType]] = GENERATION
    runs_code: ClassVar[bool] = False
    stand_in: ClassVar[bool] = False
    is_free: ClassVar[bool] = False

    reads_outputs: ClassVar[bool] = False
    """Whether its images exist already: it generates nothing, and its cells name what they read."""

    label: Label | None = None
    tasks: tuple[TaskType, ...] = Field(default=(), description="Only cases of these tasks.")

    @property
    def has_outputs(self) -> bool:
        """Whether its cells have images at all."""
        return True

    @property
    def provider_name(self) -> str:
        """Its ``provider``, as the suite writes it."""
        return str(getattr(self, "provider", ""))

    @property
    def base_label(self) -> str:
        """The label before the sweep adds to it."""
        return self.label or self.provider_name

    @property
    def needs_key(self) -> str | None:
        """The environment variable without which nothing can be called."""
        return None

    def does(self, task: TaskType) -> bool:
        """Whether this entry takes cases of a task: able to, and not restricted to others."""
        return task in self.can_do and (not self.tasks or task in self.tasks)

    def param_problems(self, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Each parameter that this provider does not take, and why."""
        yield from ()

    def model_runs(
        self, cases: Sequence[TestCase], folder: Path, run_labels: RunLabels
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Label and changed fields of each model run that it stands for, in order.

        Raises ``VisionEvalError`` where another run or a dataset cannot be read.
        """
        yield self.base_label, {}

    def source_problem(self, message: str) -> tuple[tuple[str, ...], str]:
        """Where to say, in its entry, that what its model runs come from cannot be read, and what."""
        return ("run",), message

    def outputs_per_call(self, params: dict[str, Any]) -> int:
        """How many samples one call generates."""
        return 1

    def calls_per_sample(self, params: dict[str, Any]) -> int:
        """How many calls each of the suite's ``samples`` stands for."""
        return 1

    @property
    def source_run(self) -> str | None:
        """The other run that its images come from, as ``RUN`` or ``RUN@label``."""
        return None

    def from_run(self, source: str) -> Self:
        """The same, from another run."""
        return self

    def path_of(self, case_id: str, label: str, sample: int) -> str | None:
        """The path of a cell's image, where a pattern says it."""
        return None

    def existing_outputs(
        self, label: str, cases: Sequence[TestCase], variables: Mapping[str, Any], folder: Path
    ) -> Finished:
        """The images of a model run that a dataset or the suite's cases name."""
        return {}


class GeneratingProvider(BaseProvider):
    """An entry that generates, and so has parameters and may sweep them."""

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

    def model_runs(
        self, cases: Sequence[TestCase], folder: Path, run_labels: RunLabels
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        for label, params in grid_sweep(self.base_label, self.params, self.grid):
            yield label, {"params": params, "grid": {}}


class CustomProvider(GeneratingProvider):
    """A provider class of the user's own, ``my_package.module:Class``. Needs ``--trust-suite``."""

    runs_code: ClassVar[bool] = True

    provider: ModuleClass
    options: dict[str, Any] = Field(default_factory=dict)
    declared: SkipJsonSchema[Declared | None] = None
    api_key_env: EnvName | None = Field(default=None, description="The environment variable that it needs.")

    @property
    def needs_key(self) -> str | None:
        return self.api_key_env


def model_and_n(params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is wrong with the parameters of a provider that takes a model and a number of images."""
    if not isinstance(params.get("model"), str):
        yield "model", "params.model is missing: name the model"
    n = params.get("n", 1)
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= 100:
        yield "n", "n is a whole number from 1 to 100"
    if params.get("stream"):
        yield "stream", "stream is not for a run: images are taken whole"
