"""The graders of a file's properties, as an image and as a video: their options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from visioneval.suite.case import TestCase, YesNo
from visioneval.suite.entries.graders import AMOUNT_DOWN, SHARE_DOWN, YES, BaseGrader, Share, is_video
from visioneval.types import Metric, TaskType

_BLANK = Metric(type="bool", better="lower")


class PropertiesGrader(BaseGrader):
    """Whether the file decodes, is not blank, and has the size, format and transparency of ``expect``."""

    needs: ClassVar[Mapping[str, str]] = {
        ".size": "expect.size or expect.aspect_ratio",
        ".format": "expect.format",
        ".alpha": "expect.alpha or an image to edit",
    }
    meanings: ClassVar[Mapping[str, str]] = {
        "": "all that the case asks for is right, and the image is not blank",
        ".size": "with `expect.size` or `expect.aspect_ratio`: whether it is right",
        ".format": "with `expect.format`: whether it is right",
        ".alpha": "with `expect.alpha: true` or `false`, and for edits of an image that has transparent pixels: "
        "whether the output has some as asked. A pixel is transparent if its alpha is below 250 of 255, as lossy "
        "encoders turn 255 into 254. Palettes, 16 bits per channel and gray with alpha count like any other alpha "
        "channel",
        ".blank": "whether it is one flat color on white and on black",
    }

    type: Literal["properties"]

    @property
    def measures_locally(self) -> bool:
        return True

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        expect = case.expect
        if is_video(case):
            return {}
        metrics = {self.key: YES}
        if expect.size is not None or expect.aspect_ratio is not None:
            metrics[f"{self.key}.size"] = YES
        if expect.format is not None:
            metrics[f"{self.key}.format"] = YES
        if isinstance(expect.alpha, bool) or keeps_alpha(case):
            metrics[f"{self.key}.alpha"] = YES
        metrics[f"{self.key}.blank"] = _BLANK
        return metrics

    def omissible(self, case: TestCase) -> frozenset[str]:
        return frozenset({f"{self.key}.alpha"} if keeps_alpha(case) else ())

    @property
    def version(self) -> str:
        return "3"


def keeps_alpha(case: TestCase) -> bool:
    """Whether the output must have transparent pixels if the image to edit has some."""
    is_edit = case.task_type is TaskType.IMAGE_EDITING and case.edits_image
    return is_edit and case.expect.alpha is None and case.expect.format != "jpeg"


def _ordered(limits: tuple[float, float]) -> tuple[float, float]:
    if limits[0] > limits[1]:
        raise ValueError(f"the minimum {limits[0]:g} is above the maximum {limits[1]:g}")
    return limits


Amount = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Limits = Annotated[tuple[Amount, Amount], AfterValidator(_ordered)]
_NEUTRAL = Metric(type="number", range=(0, None), better="none")


class VideoGrader(BaseGrader):
    """Whether a video has the expected duration, size, frame rate and sound, and does not stand still, turn black or
    flicker."""

    needs: ClassVar[Mapping[str, str]] = {
        "": "task: video_generation",
        ".size": "expect.size or expect.aspect_ratio",
    }
    meanings: ClassVar[Mapping[str, str]] = {
        "": "size, duration, frame rate and sound are as expected, and no limit is exceeded",
        ".size": "with `expect.size` or `expect.aspect_ratio`, which is compared within 1 %: whether it is right",
        ".duration_s": "seconds from the first frame to the end of the last, without longer sound",
        ".width": "pixels, as players turn the video",
        ".height": "pixels, as players turn the video",
        ".frame_rate": "frames per second on average",
        ".has_audio": "whether it has a soundtrack, also a silent one",
        ".frozen_s": "seconds of the longest time in which the image stands still. In each of 16 x 9 tiles, the mean "
        "absolute difference of luma to the first frame of that time is then at most 1 of 255 levels, as in FFmpeg's "
        "`freezedetect`: an image that changes slowly does not stand still",
        ".frozen_share": "the share of the duration in such times of at least 0.2 s",
        ".black_share": "the share of the duration with 98 % of the pixels at or below 10 % of white's luma, as "
        "in `blackdetect`",
        ".flicker": "how much the luminance of a quarter of the image jumps and jumps back within 0.1 s, 0 to 1, as "
        "the mean over the worst half second. 0.01 is every second frame darker by 1 % of white. WCAG 2.2 and Rec. "
        "ITU-R BT.1702 count flashes from 10 %",
    }

    type: Literal["video"]
    duration: Limits | None = Field(default=None, description="`[min, max]` in seconds.")
    frame_rate: Limits | None = Field(
        default=None, description="`[min, max]` in frames per second. If the rate varies, both ends must be inside."
    )
    audio: YesNo | None = Field(
        default=None, description="`true`: it must have a soundtrack; `false`: it must have none."
    )
    max_frozen_s: Amount | None = Field(
        default=0.5, description="The longest time in seconds for which the image may stand still; `null`: any."
    )
    max_black_share: Share | None = Field(
        default=0.1, description="The largest share of the duration that may be black; `null`: any."
    )
    max_flicker: Share | None = Field(default=0.01, description="The largest `flicker`; `null`: any.")

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
