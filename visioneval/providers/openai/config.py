"""The configuration of OpenAI and compatible models and judges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field, field_validator

from visioneval.suite.cases.case import Text
from visioneval.suite.entries.judges import BaseJudge, check_params
from visioneval.suite.entries.providers import GeneratingProvider, model_and_n
from visioneval.suite.remote import DeclaredHosts, MaskMode, OpenAIOptions


class OpenAIProvider(GeneratingProvider, OpenAIOptions, DeclaredHosts):
    """OpenAI's Images API, or a compatible server. Parameters are passed through as written."""

    provider: Literal["openai"]
    mask_mode: MaskMode = Field(
        default="send",
        description="send: send the mask as the mask argument; as_image: send it as an additional image; ignore:"
        " send no mask.",
    )

    @property
    def needs_keys(self) -> tuple[str, ...]:
        return (self.key_variable,)

    def outputs_per_call(self, params: dict[str, Any]) -> int:
        return int(params.get("n") or 1)

    def param_problems(self, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        yield from model_and_n(params)


class OpenAIJudge(BaseJudge, OpenAIOptions):
    """A vision model with the Responses API, or with chat completions (``api: chat``)."""

    provider: Literal["openai"]
    model: Text
    api: Literal["responses", "chat"] = "responses"
    params: dict[str, Any] = Field(
        default_factory=dict, description="Parameters that are sent as written, such as reasoning."
    )

    @field_validator("params")
    @classmethod
    def _asks_nothing(cls, params: dict[str, Any]) -> dict[str, Any]:
        return check_params(params, {"input", "messages", "model", "stream", "tools"})

    @property
    def needs_keys(self) -> tuple[str, ...]:
        return (self.key_variable,)
