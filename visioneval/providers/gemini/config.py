"""The configuration of Gemini models and judges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from visioneval.suite.cases.case import Text
from visioneval.suite.entries.judges import BaseJudge, check_params
from visioneval.suite.entries.providers import GeneratingProvider, model_and_n
from visioneval.suite.remote import GeminiOptions


class GeminiProvider(GeneratingProvider, GeminiOptions):
    """A Gemini model that answers with images; ``params`` holds ``model`` and the generation config, as written."""

    provider: Literal["gemini"]
    mask_mode: Literal["as_image", "ignore"] = Field(
        default="as_image",
        description="as_image: send the mask as an additional image, since there is no mask argument; ignore:"
        " send no mask.",
    )

    @property
    def needs_keys(self) -> tuple[str, ...]:
        return () if self.google else (self.key_variable,)

    def calls_per_sample(self, params: dict[str, Any]) -> int:
        return int(params.get("n") or 1)

    def param_problems(self, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        yield from model_and_n(params)


class GeminiJudge(BaseJudge, GeminiOptions):
    """A Gemini model."""

    watches: ClassVar[bool] = True

    provider: Literal["gemini"]
    model: Text
    params: dict[str, Any] = Field(default_factory=dict, description="The generation config, sent as written.")

    @field_validator("params")
    @classmethod
    def _asks_nothing(cls, params: dict[str, Any]) -> dict[str, Any]:
        return check_params(params, {"contents", "http_options", "model", "tools"})

    @property
    def needs_keys(self) -> tuple[str, ...]:
        return () if self.google else (self.key_variable,)
