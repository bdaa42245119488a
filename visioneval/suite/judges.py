"""What the options of every judge share: a model that looks at images and answers questions for a grader."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from visioneval.suite.graders import Declared, ModuleClass
from visioneval.suite.remote import EnvName
from visioneval.types import Frozen


class BaseJudge(Frozen):
    """What all entries of ``judges:`` share."""

    runs_code: ClassVar[bool] = False
    is_free: ClassVar[bool] = False
    watches: ClassVar[bool] = False
    """Whether it takes videos, and addresses of Google Cloud Storage, as they are; no frames are made for it."""
    is_recorded: ClassVar[bool] = False
    """Whether it looks up what somebody answered about single images, and so can neither make questions nor compare."""

    def located(self, folder: Path) -> Self:
        """The same judge, what its paths are relative to being ``folder``."""
        return self

    @property
    def needs_key(self) -> str | None:
        """The environment variable without which nothing can be asked."""
        return None

    @property
    def provider_name(self) -> str:
        """Its ``provider``, as the suite writes it."""
        return str(getattr(self, "provider", ""))

    @property
    def title(self) -> str:
        """``provider:model``."""
        return ":".join(str(own) for name in ("provider", "model") if (own := getattr(self, name, None)))


def only_settings(params: dict[str, Any], question: set[str]) -> dict[str, Any]:
    """Refuses parameters that would replace the question itself, or how its answer comes."""
    taken = sorted(params.keys() & question)
    if taken:
        raise ValueError(f"params: {taken[0]!r} is set by the grader: leave it out")
    return params


class CustomJudge(BaseJudge):
    """A judge class of the user's own, ``my_package.module:Class``. Needs ``--trust-suite``."""

    runs_code: ClassVar[bool] = True

    provider: ModuleClass
    model: str | None = None
    params: dict[str, Any] = Field(default_factory=dict)
    options: dict[str, Any] = Field(default_factory=dict)
    declared: SkipJsonSchema[Declared | None] = None
    api_key_env: EnvName | None = None

    @property
    def needs_key(self) -> str | None:
        return self.api_key_env
