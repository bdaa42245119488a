"""Base class for the options of judges. A judge is a model that looks at images and answers a grader's questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import Field

from visioneval.suite.entries.custom import CLASS, ClassName, CustomEntry
from visioneval.suite.remote import EnvName
from visioneval.types import Frozen


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
