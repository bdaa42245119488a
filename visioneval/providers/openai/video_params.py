"""The parameters of ``/v1/videos``, of OpenAI's document and of servers that speak it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from visioneval.providers.video_inputs import VideoInputs
from visioneval.suite.cases.case import Size, Text
from visioneval.types import Frozen

LONGEST_S = 20.0
"""The length that a budget counts if no parameter says how long a video may be, in seconds."""
_DEFAULT_FPS = 16

Count = Annotated[int, Field(ge=1, le=100_000, strict=True)]
Number = Annotated[float, Field(ge=0, le=10_000)]
_Seconds = Annotated[int, Field(ge=1, le=600, strict=True)]
_SecondsText = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,2}$")]


class OpenAIVideoParams(Frozen):
    """Each is sent under its name; ``extra`` holds what only one server knows."""

    model: Text
    seconds: _Seconds | _SecondsText | None = None
    size: Size | None = None
    width: Count | None = None
    height: Count | None = None
    fps: Count | None = None
    num_frames: Count | None = None
    num_inference_steps: Count | None = None
    guidance_scale: Number | None = None
    guidance_scale_2: Number | None = None
    true_cfg_scale: Number | None = None
    flow_shift: Number | None = None
    boundary_ratio: Number | None = None
    negative_prompt: Text | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63, strict=True)] | None = None
    user: Text | None = None
    extra: dict[Text, str | int | float | bool] = Field(default_factory=dict)


def longest_video_s(params: Mapping[str, Any]) -> float:
    """The length of a video by its parameters, in seconds."""
    seconds = params.get("seconds")
    if isinstance(seconds, (int, str)) and str(seconds).isdecimal():
        return float(seconds)
    frames, fps = params.get("num_frames"), params.get("fps", _DEFAULT_FPS)
    if isinstance(frames, int) and isinstance(fps, int) and fps > 0:
        return frames / fps
    return LONGEST_S


def inputs_problem(inputs: VideoInputs) -> str | None:
    """Why a server cannot take the images of a case."""
    if inputs.last_frame is None and not inputs.references and not inputs.styles:
        return None
    return "/v1/videos takes one image, the first frame: remove the others"
