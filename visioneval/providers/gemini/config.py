"""The configuration of Gemini models and judges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from visioneval.providers.gemini.video_params import (
    DELIVERY,
    OmniParams,
    VeoParams,
    is_veo,
    is_video_model,
    longest_video_s,
    veo_inputs_problem,
)
from visioneval.providers.param_checks import model_problems
from visioneval.providers.video_inputs import VideoInputs
from visioneval.suite.cases.case import TestCase, Text
from visioneval.suite.entries.judges import BaseJudge, check_params
from visioneval.suite.entries.providers import GeneratingProvider, model_and_n
from visioneval.suite.remote import GeminiOptions
from visioneval.types import TaskType


class GeminiProvider(GeneratingProvider, GeminiOptions):
    """A Gemini model that answers with images; ``params`` holds ``model`` and the generation config, as written.

    Veo and Gemini Omni answer with videos.
    """

    can_do: ClassVar[frozenset[TaskType]] = frozenset(TaskType)

    provider: Literal["gemini"]
    mask_mode: Literal["as_image", "ignore"] = Field(
        default="as_image",
        description="as_image: send the mask as an additional image, since there is no mask argument; ignore:"
        " send no mask.",
    )

    @property
    def needs_keys(self) -> tuple[str, ...]:
        return () if self.google else (self.key_variable,)

    def key_params(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Without the way in which a video is delivered: it is the same video."""
        is_video = is_video_model(params.get("model"))
        return {name: value for name, value in params.items() if not (is_video and name in DELIVERY)}

    def does(self, task: TaskType) -> bool:
        """A model generates either images or videos."""
        models = self.grid.get("model", [self.params.get("model")])
        is_video = task is TaskType.VIDEO_GENERATION
        return super().does(task) and any(is_video_model(model) == is_video for model in models)

    def calls_per_sample(self, params: dict[str, Any]) -> int:
        return 1 if is_video_model(params.get("model")) else int(params.get("n") or 1)

    def most_image_tokens(self, params: Mapping[str, Any]) -> int:
        return 4_096

    def longest_video_s(self, params: Mapping[str, Any]) -> float:
        stated = params.get("duration_seconds")
        return float(stated) if isinstance(stated, int) else longest_video_s(params.get("model"))

    def inputs_problem(self, params: Mapping[str, Any], case: TestCase) -> str | None:
        return veo_inputs_problem(VideoInputs.of_case(case)) if is_veo(params.get("model")) else None

    def param_problems(self, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        model = params.get("model")
        if not is_video_model(model):
            yield from model_and_n(params)
            return
        if is_veo(model) and self.google is None:
            yield "model", "Veo generates on Vertex AI only: set google: {project: ..., location: ...}"
        yield from model_problems(VeoParams if is_veo(model) else OmniParams, params)
        is_by_address = params.get("delivery") == "uri"
        if is_by_address and self.google is not None and "output_gcs_uri" not in params:
            yield "delivery", "on Vertex AI, delivery: uri needs output_gcs_uri: gs://BUCKET/FOLDER"

    def credentials_problem(self, *, trusted: bool) -> tuple[str, str] | None:
        """A bucket is written and read with this machine's credentials."""
        if not trusted and ("output_gcs_uri" in self.params or "output_gcs_uri" in self.grid):
            message = "output_gcs_uri needs this machine's credentials: pass --trust-suite if you trust this suite"
            return "params", message
        return super().credentials_problem(trusted=trusted)


class GeminiJudge(BaseJudge, GeminiOptions):
    """A Gemini model."""

    watches: ClassVar[bool] = True

    provider: Literal["gemini"]
    model: Text = Field(description="The model's name.")
    params: dict[str, Any] = Field(default_factory=dict, description="The generation config, sent as written.")

    @field_validator("params")
    @classmethod
    def _asks_nothing(cls, params: dict[str, Any]) -> dict[str, Any]:
        return check_params(params, {"contents", "http_options", "model", "tools"})

    @property
    def needs_keys(self) -> tuple[str, ...]:
        return () if self.google else (self.key_variable,)
