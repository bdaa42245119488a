"""The options of OpenAI and compatible models and judges, their video parameters, and checks of their models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from visioneval.providers.ended_models import end_warnings
from visioneval.suite.case import Size, TestCase, Text
from visioneval.suite.entries.judges import BaseJudge, check_params
from visioneval.suite.entries.providers import GeneratingProvider, VideoInputs, model_and_n
from visioneval.suite.messages import Loc, model_problems
from visioneval.suite.remote import DeclaredHosts, MaskMode, OpenAIOptions
from visioneval.types import Frozen, TaskType


class ImagesOrVideos(GeneratingProvider):
    """An entry that generates images, or videos in the form of ``/v1/videos`` with ``api: videos``."""

    can_do: ClassVar[frozenset[TaskType]] = frozenset(TaskType)

    provider: Literal["openai", "litellm"]
    api: Literal["images", "videos"] = "images"
    mask_mode: MaskMode = Field(
        default="send",
        description="`send`: the mask is the mask argument; `as_image`: an additional image in black and white, whose"
        " soft edge is white; `ignore`: it is not sent.",
    )

    def does(self, task: TaskType) -> bool:
        """Images, or videos with ``api: videos``."""
        return super().does(task) and (task is TaskType.VIDEO_GENERATION) == (self.api == "videos")

    def longest_video_s(self, params: Mapping[str, Any]) -> float:
        seconds = params.get("seconds")
        if isinstance(seconds, (int, str)) and str(seconds).isdecimal():
            return float(seconds)
        frames, fps = params.get("num_frames"), params.get("fps", _DEFAULT_FPS)
        if isinstance(frames, int) and isinstance(fps, int) and fps > 0:
            return frames / fps
        return LONGEST_S

    def inputs_problem(self, params: Mapping[str, Any], case: TestCase) -> str | None:
        return inputs_problem(VideoInputs.of_case(case)) if self.api == "videos" else None


class OpenAIProvider(ImagesOrVideos, OpenAIOptions, DeclaredHosts):
    """OpenAI's Images API, or a compatible server. Parameters are passed through as written.

    With ``api: videos``, a server that has ``/v1/videos``.
    """

    usual_tokens: ClassVar[int] = 6_200

    provider: Literal["openai"]
    api: Literal["images", "videos"] = Field(
        default="images", description="`videos`: generates videos with `/v1/videos` of the server at `base_url`."
    )
    edit_body: Literal["form", "json"] = Field(
        default="form",
        description="`form`: the images of an edit are sent as files, as OpenAI takes them; `json`: as data URLs in "
        "JSON, as xAI takes them. Answers to one form are not reused for the other.",
    )

    @property
    def needs_keys(self) -> tuple[str, ...]:
        return (self.key_variable,)

    @property
    def key_options(self) -> dict[str, Any]:
        """Without ``api``, which follows from the task, and without the usual ``edit_body``.

        A server may read a part of an edit, such as its mask, from one form of the body only.
        """
        usual = {"api"} if self.edit_body == "json" else {"api", "edit_body"}
        return {name: value for name, value in super().key_options.items() if name not in usual}

    @model_validator(mode="after")
    def _check_videos(self) -> Self:
        if self.api == "videos" and (self.base_url is None or self.is_own_host):
            raise ValueError("api: videos needs base_url: OpenAI's own video service ended on 2026-09-24")
        return self

    def outputs_per_call(self, params: dict[str, Any]) -> int:
        return 1 if self.api == "videos" else int(params.get("n") or 1)

    def param_problems(self, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        yield from model_problems(OpenAIVideoParams, params) if self.api == "videos" else model_and_n(params)


class OpenAIJudge(BaseJudge, OpenAIOptions):
    """A vision model with the Responses API, or with chat completions (``api: chat``)."""

    provider: Literal["openai"]
    model: Text = Field(description="The model's name.")
    api: Literal["responses", "chat"] = Field(
        default="responses",
        description="`responses`: the Responses API; `chat`: chat completions, for servers that have only these.",
    )
    params: dict[str, Any] = Field(
        default_factory=dict, description="Parameters that are sent as written, such as `reasoning`."
    )

    @field_validator("params")
    @classmethod
    def _asks_nothing(cls, params: dict[str, Any]) -> dict[str, Any]:
        return check_params(params, {"input", "messages", "model", "stream", "tools"})

    @property
    def needs_keys(self) -> tuple[str, ...]:
        return (self.key_variable,)


LONGEST_S = 20.0
"""The length that a budget counts if no parameter says how long a video may be, in seconds."""
_DEFAULT_FPS = 16

Count = Annotated[int, Field(ge=1, le=100_000, strict=True)]
Number = Annotated[float, Field(ge=0, le=10_000)]
_Seconds = Annotated[int, Field(ge=1, le=600, strict=True)]
_SecondsText = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,2}$")]


class OpenAIVideoParams(Frozen):
    """Each is sent under its name; ``extra`` holds what only one server knows."""

    model: Text = Field(description="The model.")
    seconds: _Seconds | _SecondsText | None = Field(
        default=None, description="Length of the video. If no parameter says it, a budget counts 20 s."
    )
    size: Size | None = Field(default=None, description="`WIDTHxHEIGHT`.")
    width: Count | None = Field(default=None, description="Width in pixels.")
    height: Count | None = Field(default=None, description="Height in pixels.")
    fps: Count | None = Field(default=None, description="Frames per second.")
    num_frames: Count | None = Field(default=None, description="Number of frames.")
    num_inference_steps: Count | None = Field(default=None, description="Steps of the model.")
    guidance_scale: Number | None = Field(default=None, description="How closely the video follows the prompt.")
    guidance_scale_2: Number | None = Field(default=None, description="The same, in the second stage.")
    true_cfg_scale: Number | None = Field(default=None, description="The same, with classifier-free guidance.")
    flow_shift: Number | None = Field(default=None, description="Shift of the scheduler.")
    boundary_ratio: Number | None = Field(default=None, description="Where the second stage begins.")
    negative_prompt: Text | None = Field(default=None, description="What the video must not show.")
    seed: Annotated[int, Field(ge=0, lt=2**63, strict=True)] | None = Field(
        default=None, description="The seed of the generation."
    )
    user: Text | None = Field(default=None, description="A name of the user.")
    extra: dict[Text, str | int | float | bool] = Field(
        default_factory=dict, description="Parameters that only this server knows."
    )


def inputs_problem(inputs: VideoInputs) -> str | None:
    """Why a server cannot take the images of a case."""
    if inputs.last_frame is None and not inputs.references and not inputs.styles:
        return None
    return "/v1/videos takes one image, the first frame: remove the others"


def warnings(entry: OpenAIProvider | OpenAIJudge) -> Iterator[tuple[Loc, str]]:
    """Yields models that OpenAI has ended or will end. Another server has models of its own."""
    if entry.is_own_host:
        yield from end_warnings(entry, "OpenAI")
