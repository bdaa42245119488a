"""The parameters of Google's video models, by the way in which they are called."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from visioneval.providers.video_inputs import VideoInputs
from visioneval.suite.cases.case import AspectRatio, Text, YesNo
from visioneval.types import Frozen

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

    model: Text
    duration_seconds: Duration | None = None
    aspect_ratio: AspectRatio | None = None
    resolution: Resolution | None = None
    generate_audio: YesNo | None = None
    seed: Seed | None = None
    fps: Annotated[int, Field(ge=1, le=120, strict=True)] | None = None
    negative_prompt: Text | None = None
    enhance_prompt: YesNo | None = None
    person_generation: Text | None = None
    compression_quality: Literal["optimized", "lossless"] | None = None
    resize_mode: Literal["crop", "pad"] | None = None
    output_gcs_uri: BucketUri | None = None


class OmniParams(Frozen):
    """Parameters of Gemini Omni, which generates by interactions."""

    model: Text
    duration_seconds: Duration | None = None
    aspect_ratio: AspectRatio | None = None
    resolution: Resolution | None = None
    seed: Seed | None = None
    max_output_tokens: Annotated[int, Field(ge=1, strict=True)] | None = None
    system_instruction: Text | None = None
    delivery: Literal["inline", "uri"] | None = None
    output_gcs_uri: BucketUri | None = None
    background: YesNo = True


def is_veo(model: object) -> bool:
    """Whether a model is called by operations."""
    return isinstance(model, str) and _VEO.search(model) is not None


def is_video_model(model: object) -> bool:
    """Whether a model of Google generates videos."""
    return isinstance(model, str) and (is_veo(model) or _OMNI.search(model) is not None)


def longest_video_s(model: object) -> float:
    """The length of the longest video of a model, in seconds."""
    if is_veo(model):
        return _LONGEST_VEO_S
    name = str(model).rpartition("/")[2]
    return next((seconds for start, seconds in _LONGEST_OMNI_S.items() if name.startswith(start)), _LONGEST_UNKNOWN_S)


def veo_inputs_problem(inputs: VideoInputs) -> str | None:
    """Why Veo cannot take the images of a case."""
    if inputs.first_frame is None or not (inputs.references or inputs.styles):
        return None
    return "Veo takes a first frame or reference images, not both: give each image of the case its role"
