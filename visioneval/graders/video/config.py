"""The configuration of the video grader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from visioneval.suite.case import TestCase, YesNo
from visioneval.suite.entries.graders import AMOUNT_DOWN, SHARE_DOWN, YES, BaseGrader, Share, is_video
from visioneval.types import Metric


def _ordered(limits: tuple[float, float]) -> tuple[float, float]:
    if limits[0] > limits[1]:
        raise ValueError(f"the minimum {limits[0]:g} is above the maximum {limits[1]:g}")
    return limits


Amount = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Limits = Annotated[tuple[Amount, Amount], AfterValidator(_ordered)]
_NEUTRAL = Metric(type="number", range=(0, None), better="none")


class VideoGrader(BaseGrader):
    """Properties of a video: it has the expected duration, size, frame rate and sound, and does not stand still, turn
    black or flicker."""

    needs: ClassVar[Mapping[str, str]] = {
        "": "task: video_generation",
        ".size": "expect.size or expect.aspect_ratio",
    }

    type: Literal["video"]
    duration: Limits | None = Field(default=None, description="The minimum and maximum duration in seconds.")
    frame_rate: Limits | None = Field(default=None, description="The minimum and maximum of frames per second.")
    audio: YesNo | None = Field(default=None, description="Whether it must have a soundtrack, or must have none.")
    max_frozen_s: Amount | None = Field(
        default=0.5, description="The longest time, in seconds, for which the image may stand still; null: any."
    )
    max_black_share: Share | None = Field(
        default=0.1, description="The largest share of the duration that may be black; null: any."
    )
    max_flicker: Share | None = Field(default=0.01, description="The largest flicker; null: any.")

    def extra_for(self, case: TestCase) -> str | None:
        return "video" if is_video(case) else None

    @property
    def measures_locally(self) -> bool:
        return True

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        if not is_video(case):
            return {}
        key, expect = self.key, case.expect
        has_size = expect.size is not None or expect.aspect_ratio is not None
        return {
            key: YES,
            **({f"{key}.size": YES} if has_size else {}),
            f"{key}.duration_s": _NEUTRAL,
            f"{key}.width": _NEUTRAL,
            f"{key}.height": _NEUTRAL,
            f"{key}.frame_rate": _NEUTRAL,
            f"{key}.has_audio": Metric(type="bool", better="none"),
            f"{key}.frozen_s": AMOUNT_DOWN,
            f"{key}.frozen_share": SHARE_DOWN,
            f"{key}.black_share": SHARE_DOWN,
            f"{key}.flicker": SHARE_DOWN,
        }

    @property
    def version(self) -> str:
        return "1"
