"""The options of Gemini models and judges, the parameters of Google's video models, and checks of their names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, field_validator

from visioneval.providers.ended_models import end_warnings, named_models
from visioneval.suite.case import AspectRatio, TestCase, Text, YesNo
from visioneval.suite.entries.judges import BaseJudge, check_params
from visioneval.suite.entries.providers import GeneratingProvider, VideoInputs, model_and_n
from visioneval.suite.files import Trust
from visioneval.suite.messages import Loc, model_problems
from visioneval.suite.remote import GeminiOptions, is_vertex_host
from visioneval.types import Frozen, TaskType


class GeminiProvider(GeneratingProvider, GeminiOptions):
    """A Gemini model that answers with images; ``params`` holds ``model`` and the generation config, as written.

    Veo and Gemini Omni answer with videos.
    """

    can_do: ClassVar[frozenset[TaskType]] = frozenset(TaskType)

    provider: Literal["gemini"]
    mask_mode: Literal["as_image", "ignore"] = Field(
        default="as_image",
        description="`as_image`: the mask is an additional image, as Gemini has no mask argument; `ignore`: it is not "
        "sent.",
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
        stated, model = params.get("duration_seconds"), params.get("model")
        if isinstance(stated, int):
            return float(stated)
        if is_veo(model):
            return _LONGEST_VEO_S
        name = str(model).rpartition("/")[2]
        known = (seconds for start, seconds in _LONGEST_OMNI_S.items() if name.startswith(start))
        return next(known, _LONGEST_UNKNOWN_S)

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


_VEO = re.compile(r"(^|/)veo-")
_OMNI = re.compile(r"(^|/)gemini-omni")
_LONGEST_VEO_S = 8.0
_LONGEST_OMNI_S = {"gemini-omni-flash": 10.0, "gemini-omni-1.1": 10.0}
_LONGEST_UNKNOWN_S = 15.0

DELIVERY = frozenset({"background", "delivery", "output_gcs_uri"})
"""Parameters that decide how a video arrives, and nothing of the video."""

Duration = Annotated[int, Field(ge=1, le=600, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**32, strict=True)]
Resolution = Annotated[str, StringConstraints(pattern=r"^([1-9][0-9]{2,3}p|[1-9]k)$")]
BucketUri = Annotated[str, StringConstraints(pattern=r"^gs://[^\s/]+(/\S*)?$", max_length=500)]


class VeoParams(Frozen):
    """Parameters of Veo, which generates by operations on Vertex AI."""

    model: Text = Field(description="The model.")
    duration_seconds: Duration | None = Field(
        default=None, description="Length of the video. Without it, a budget counts 8 s."
    )
    aspect_ratio: AspectRatio | None = Field(default=None, description="Width to height, such as `16:9`.")
    resolution: Resolution | None = Field(default=None, description="Such as `720p`, `1080p` or `4k`.")
    generate_audio: YesNo | None = Field(default=None, description="Whether the video has sound.")
    seed: Seed | None = Field(default=None, description="The seed of the generation.")
    fps: Annotated[int, Field(ge=1, le=120, strict=True)] | None = Field(default=None, description="Frames per second.")
    negative_prompt: Text | None = Field(default=None, description="What the video must not show.")
    enhance_prompt: YesNo | None = Field(default=None, description="Whether the provider rewrites the prompt.")
    person_generation: Text | None = Field(default=None, description="Which people may be shown.")
    compression_quality: Literal["optimized", "lossless"] | None = Field(
        default=None, description="How the video is compressed."
    )
    resize_mode: Literal["crop", "pad"] | None = Field(default=None, description="How an input image is fitted.")
    output_gcs_uri: BucketUri | None = Field(
        default=None,
        description="A bucket's folder for the video. Needs `--trust-suite`. Not part of the cache's key.",
    )


class OmniParams(Frozen):
    """Parameters of Gemini Omni, which generates by interactions."""

    model: Text = Field(description="The model.")
    duration_seconds: Duration | None = Field(
        default=None,
        description="Length of the video. Without it, a budget counts 10 s up to version 1.1, and 15 s for later ones.",
    )
    aspect_ratio: AspectRatio | None = Field(default=None, description="Width to height, such as `16:9`.")
    resolution: Resolution | None = Field(default=None, description="Such as `720p`, `1080p` or `4k`.")
    seed: Seed | None = Field(default=None, description="The seed of the generation.")
    max_output_tokens: Annotated[int, Field(ge=1, strict=True)] | None = Field(
        default=None, description="The most tokens of an answer."
    )
    system_instruction: Text | None = Field(default=None, description="An instruction besides the prompt.")
    delivery: Literal["inline", "uri"] | None = Field(
        default=None,
        description="`uri`: the answer names a file of the Gemini API, or an object below `output_gcs_uri`. Not part "
        "of the cache's key.",
    )
    output_gcs_uri: BucketUri | None = Field(
        default=None,
        description="A bucket's folder for the video. Needs `--trust-suite`. Not part of the cache's key.",
    )
    background: YesNo = Field(
        default=True,
        description="`false`: the call itself answers, and a killed call is paid again. Not part of the cache's key.",
    )


def is_veo(model: object) -> bool:
    """Whether a model is called by operations."""
    return isinstance(model, str) and _VEO.search(model) is not None


def is_video_model(model: object) -> bool:
    """Whether a model of Google generates videos."""
    return isinstance(model, str) and (is_veo(model) or _OMNI.search(model) is not None)


def veo_inputs_problem(inputs: VideoInputs) -> str | None:
    """Why Veo cannot take the images of a case."""
    if inputs.first_frame is None or not (inputs.references or inputs.styles):
        return None
    return "Veo takes a first frame or reference images, not both: give each image of the case its role"


_IMAGEN = re.compile(r"(^|/)imagen-")
_WHERE_IT_WENT = (
    "Imagen was shut down on the Gemini API on 2026-08-17, and this provider does not call it on Vertex AI: use"
    " 'gemini-nano-banana-2.1'"
)


def problems(entry: GeminiProvider | GeminiJudge, folder: Path, trust: Trust) -> Iterator[tuple[Loc, str]]:  # noqa: ARG001
    """Yields Imagen, which answers no call of this provider. Another server has models of its own."""
    if _service(entry) is not None:
        imagen = ((loc, model) for loc, model in named_models(entry) if _IMAGEN.search(model))
        yield from ((loc, f"{model!r}: {_WHERE_IT_WENT}") for loc, model in imagen)


def warnings(entry: GeminiProvider | GeminiJudge) -> Iterator[tuple[Loc, str]]:
    """Yields models that Google has ended or will end on the service that is called."""
    if service := _service(entry):
        yield from end_warnings(entry, service)


def _service(entry: GeminiProvider | GeminiJudge) -> str | None:
    """The service that answers; ``None`` for another server."""
    if entry.google is not None or is_vertex_host(urlsplit(entry.base_url or "").hostname or ""):
        return "Vertex AI"
    return "Gemini API" if entry.is_own_host else None
