"""The options of every judge: a model that looks at pictures and answers questions for a grader."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from visioneval.suite.case import Text
from visioneval.suite.graders import ModuleClass
from visioneval.suite.remote import EnvName, GeminiOptions, OpenAIOptions
from visioneval.types import Frozen


class BaseJudge(Frozen):
    """What all entries of ``judges:`` share."""

    runs_code: ClassVar[bool] = False
    is_free: ClassVar[bool] = False
    watches: ClassVar[bool] = False
    """Whether it takes videos, and addresses of Google Cloud Storage, as they are; no frames are made for it."""

    @property
    def needs_key(self) -> str | None:
        """The environment variable without which nothing can be asked."""
        return None

    @property
    def title(self) -> str:
        """``provider:model``."""
        return ":".join(str(own) for name in ("provider", "model") if (own := getattr(self, name, None)))


def _only_settings(params: dict[str, Any], question: set[str]) -> dict[str, Any]:
    """Refuses parameters that would replace the question itself, or how its answer comes."""
    taken = sorted(params.keys() & question)
    if taken:
        raise ValueError(f"params: {taken[0]!r} is set by the grader: leave it out")
    return params


class OpenAIJudge(BaseJudge, OpenAIOptions):
    """A vision model behind the Responses API, or behind chat completions (``api: chat``)."""

    provider: Literal["openai"]
    model: Text
    api: Literal["responses", "chat"] = "responses"
    params: dict[str, Any] = Field(default_factory=dict, description="Sent as written, such as reasoning.")

    @field_validator("params")
    @classmethod
    def _asks_nothing(cls, params: dict[str, Any]) -> dict[str, Any]:
        return _only_settings(params, {"input", "messages", "model", "stream", "tools"})

    @property
    def needs_key(self) -> str | None:
        return self.key_variable


class GeminiJudge(BaseJudge, GeminiOptions):
    """A Gemini model."""

    watches: ClassVar[bool] = True

    provider: Literal["gemini"]
    model: Text
    params: dict[str, Any] = Field(default_factory=dict, description="The generation config, as written.")

    @field_validator("params")
    @classmethod
    def _asks_nothing(cls, params: dict[str, Any]) -> dict[str, Any]:
        return _only_settings(params, {"contents", "http_options", "model", "tools"})

    @property
    def needs_key(self) -> str | None:
        return None if self.google else self.key_variable


class RecordedFields(Frozen):
    """The column of each fact in a file of recorded answers."""

    case: Text = "case"
    model: Text | None = Field(default=None, description="Without it, an answer is for every model run.")
    sample: Text | None = Field(default=None, description="Without it, an answer is for every sample.")
    question: Text = Field(default="question", description="A question's id or text, or a metric's name.")
    answer: Text = "answer"


class RecordedJudge(BaseJudge):
    """Answers that somebody recorded, in a JSONL, CSV or TSV file. Nothing is called, and the record says so."""

    is_free: ClassVar[bool] = True
    watches: ClassVar[bool] = True

    provider: Literal["recorded"]
    path: Text
    fields: RecordedFields = RecordedFields()


class CustomJudge(BaseJudge):
    """A judge class of the user's own, ``my_package.module:Class``. Needs ``--trust-suite``."""

    runs_code: ClassVar[bool] = True

    provider: ModuleClass
    model: str | None = None
    params: dict[str, Any] = Field(default_factory=dict)
    api_key_env: EnvName | None = None

    @property
    def needs_key(self) -> str | None:
        return self.api_key_env


JUDGES: dict[str, type[BaseJudge]] = {"openai": OpenAIJudge, "gemini": GeminiJudge, "recorded": RecordedJudge}
