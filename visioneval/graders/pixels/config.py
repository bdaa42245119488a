"""The graders that compare pixels: how far an edit keeps to its mask, and how like a reference an image is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from visioneval.suite.case import TestCase
from visioneval.suite.graders import SHARE_DOWN, SSIM, YES, BaseGrader, Share, is_video
from visioneval.types import Metric


class LocalityGrader(BaseGrader):
    """An edit that stays inside its mask."""

    needs: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("", ".changed_outside", ".worst_window", ".ssim_outside", ".changed_inside"), "images and an editable mask"
    )

    type: Literal["locality"]
    tolerance: Literal["reencode", "exact"] = Field(
        default="reencode",
        description="reencode forgives what lossy encoding, another size and a small shift of the whole image do. "
        "exact forgives nothing: every pixel whose RGB differs counts, and max_changed_outside, max_worst_window and "
        "dilate are 0 unless stated.",
    )
    max_changed_outside: Share = Field(
        default=0.01, description="The share of the pixels outside the mask that may visibly change."
    )
    max_worst_window: Share = Field(
        default=0.15,
        description="The share that may change in any one window of 24 x 24 pixels outside the mask; "
        "a 12 x 12 patch is a quarter.",
    )
    min_changed_inside: Share = Field(
        default=0.01, description="The share of the pixels inside the mask that must change: less is no edit."
    )
    dilate: Annotated[int, Field(ge=0, le=512)] = Field(
        default=8, description="Pixels around the mask that may change too."
    )

    @model_validator(mode="before")
    @classmethod
    def _exact_is_zero(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("tolerance") == "exact":
            return {"max_changed_outside": 0, "max_worst_window": 0, "dilate": 0, **value}
        return value

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        if not case.images or case.masks is None or case.masks.editable is None:
            return {}
        return {
            self.key: YES,
            f"{self.key}.changed_outside": SHARE_DOWN,
            f"{self.key}.worst_window": SHARE_DOWN,
            f"{self.key}.ssim_outside": SSIM,
            f"{self.key}.changed_inside": Metric(type="number", range=(0, 1), better="none"),
        }


class ReferenceGrader(BaseGrader):
    """Likeness to an image of the right answer."""

    needs: ClassVar[Mapping[str, str]] = dict.fromkeys(("", ".ssim", ".delta_e"), "a reference")

    type: Literal["reference"]
    min_ssim: Annotated[float, Field(ge=-1, le=1)] = Field(
        default=0.9,
        description="The least structural similarity: re-encoding keeps 0.95 and more, another image 0.4 or less.",
    )
    max_delta_e: Annotated[float, Field(ge=0, le=200)] = Field(
        default=3.0,
        description="The largest mean colour difference (CIEDE2000): re-encoding stays below 2.5, "
        "12 of 255 brighter is 3.5, another image 20 and more.",
    )

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        if case.reference is None or is_video(case):
            return {}
        return {
            self.key: YES,
            f"{self.key}.ssim": SSIM,
            f"{self.key}.delta_e": Metric(type="number", range=(0, None), better="lower"),
        }
