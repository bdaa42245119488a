"""The graders that compare pixels: the options of locality, reference and diversity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from visioneval.suite.case import TestCase
from visioneval.suite.entries.graders import (
    AMOUNT_DOWN,
    SAMPLES,
    SHARE_DOWN,
    SSIM,
    YES,
    BaseGrader,
    GraderKind,
    Share,
    is_video,
)
from visioneval.types import Metric

_OF_OTHERS = ("max_changed_outside", "max_worst_window", "max_isolated_change")
_OF_REDRAWN = ("max_content_change", "max_redraw")
_FACTOR = Metric(type="number", range=(1, None), better="lower")
_SHARE = Metric(type="number", range=(0, 1), better="none")
_DETAIL = Metric(type="number", range=(0, None), better="higher")


class RegisteringGrader(BaseGrader):
    """A grader that undoes a small shift and zoom of the whole image, and limits both."""

    max_shift: Share = Field(
        default=0.02, description="The largest shift of the whole image, as a share of its shorter side."
    )
    max_magnification: Annotated[float, Field(ge=1)] = Field(
        default=1.02,
        description="The largest factor by which the whole image may be enlarged or reduced; 1 is unchanged. "
        "Larger factors than 1.02 are measured but not corrected, so that they also count as changes.",
    )

    @property
    def moves(self) -> dict[str, Metric]:
        """The metrics of the shift and the zoom that were undone."""
        return {
            f"{self.key}.shift": AMOUNT_DOWN,
            f"{self.key}.magnification": _FACTOR,
        }


class LocalityGrader(RegisteringGrader):
    """An edit that stays inside its mask."""

    needs: ClassVar[Mapping[str, str]] = (
        dict.fromkeys(
            ("", ".changed_outside", ".worst_window", ".ssim_outside", ".changed_inside", ".sharpness_outside"),
            "images and an editable mask",
        )
        | dict.fromkeys(
            (".shift", ".magnification", ".isolated_change"),
            "images and an editable mask, and not with tolerance: exact",
        )
        | dict.fromkeys(
            (".content_change", ".redraw", ".tone", ".displacement"),
            "images and an editable mask, and only with tolerance: redrawn",
        )
    )

    type: Literal["locality"]
    tolerance: Literal["reencode", "exact", "redrawn"] = Field(
        default="reencode",
        description="reencode ignores lossy encoding, another size, sharpening, and a small shift of the whole image. "
        "exact ignores nothing: every pixel with a different RGB or alpha value counts, and max_changed_outside,"
        " max_worst_window "
        "and dilate are 0 by default. redrawn also ignores what a model that paints every pixel again changes "
        "everywhere: a smooth displacement, tone, sharpness, grain and texture. It has limits of its own.",
    )
    max_changed_outside: Share = Field(
        default=0.01, description="The largest share of pixels outside the mask that may visibly change."
    )
    max_worst_window: Share = Field(
        default=0.15,
        description="The largest share that may change in any window of 24 x 24 pixels outside the mask; "
        "a 12 x 12 patch is a quarter of a window.",
    )
    max_isolated_change: Annotated[int, Field(ge=0)] = Field(
        default=5,
        description="The most visibly changed pixels that a change may have that stands alone outside the mask, in an"
        " output that is otherwise identical to the input. A digit 12 pixels high changes 6 or more. Not checked in"
        " outputs that were encoded again.",
    )
    min_changed_inside: Share = Field(
        default=0.002,
        description="The smallest share of pixels inside the mask that must change; less counts as no edit.",
    )
    min_sharpness_outside: Share = Field(
        default=0.4,
        description="The smallest share of the fine detail outside the mask that must be left: JPEG, WebP and resizing "
        "leave 0.6 or more, a blur of 2 pixels 0.3 or less.",
    )
    max_content_change: Annotated[float, Field(ge=0)] = Field(
        default=5.0,
        description="With tolerance: redrawn, the largest color difference (CIE76) of a window beyond 2.5 times that "
        "of nine of ten windows, after displacement, tone and sharpness were undone. A window has 1/40 of the shorter"
        " side, and up to twice that where most of the image was painted again.",
    )
    max_redraw: Annotated[float, Field(ge=0)] = Field(
        default=8.0,
        description="With tolerance: redrawn, the largest color difference (CIE76) that nine of ten windows may have: "
        "more is another image.",
    )
    dilate: Annotated[int, Field(ge=0, le=512)] = Field(
        default=8, description="Width in pixels of the border around the mask that may also change."
    )

    @property
    def version(self) -> str:
        return "6"

    @property
    def redraws(self) -> dict[str, Metric]:
        """The metrics of ``tolerance: redrawn``."""
        names = ("content_change", "redraw", "tone", "displacement")
        return {f"{self.key}.{name}": AMOUNT_DOWN for name in names}

    @model_validator(mode="before")
    @classmethod
    def _exact_is_zero(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("tolerance") == "exact":
            return {"max_changed_outside": 0, "max_worst_window": 0, "dilate": 0, **value}
        return value

    @model_validator(mode="after")
    def _limits_are_read(self) -> LocalityGrader:
        unread = _OF_OTHERS if self.tolerance == "redrawn" else _OF_REDRAWN
        for name in unread:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(
                    f"'{name}' is no limit of 'tolerance: {self.tolerance}', whose limits are "
                    + " and ".join(_OF_REDRAWN if self.tolerance == "redrawn" else _OF_OTHERS)
                )
        return self

    @property
    def measures_locally(self) -> bool:
        return True

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        if not case.edits_image or case.masks is None or case.masks.editable is None:
            return {}
        return {
            self.key: YES,
            f"{self.key}.changed_outside": SHARE_DOWN,
            f"{self.key}.worst_window": SHARE_DOWN,
            f"{self.key}.ssim_outside": SSIM,
            f"{self.key}.changed_inside": _SHARE,
            f"{self.key}.sharpness_outside": _DETAIL,
            **(self.moves if self.tolerance != "exact" else {}),
            **(self.redraws if self.tolerance == "redrawn" else {}),
            **({f"{self.key}.isolated_change": AMOUNT_DOWN} if self.tolerance == "reencode" else {}),
        }

    def omissible(self, case: TestCase) -> frozenset[str]:
        return frozenset({*self.moves, f"{self.key}.sharpness_outside", f"{self.key}.isolated_change"})


class ReferenceGrader(RegisteringGrader):
    """Similarity to a reference image."""

    needs: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("", ".ssim", ".delta_e", ".worst_window", ".shift", ".magnification"), "a reference"
    )

    type: Literal["reference"]
    min_ssim: Annotated[float, Field(ge=-1, le=1)] = Field(
        default=0.85,
        description="The smallest structural similarity. In 14 real images of at most 448 pixels, JPEG of quality 75"
        " left 0.93 or more, of quality 60 0.9 or more, and another image had 0.46 or less.",
    )
    max_delta_e: Annotated[float, Field(ge=0, le=200)] = Field(
        default=3.0,
        description="The largest mean color difference (CIEDE2000). JPEG of quality 75 gave more than 3 in one of 14 "
        "real images of at most 448 pixels (3.2), brightening by 12 of 255 levels gives 3.5.",
    )
    max_worst_window: Share = Field(
        default=0.15,
        description="The largest share that may visibly change in any window of 24 x 24 pixels; a 12 x 12 patch is a "
        "quarter of a window.",
    )

    @property
    def version(self) -> str:
        return "5"

    @property
    def measures_locally(self) -> bool:
        return True

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        if case.reference is None or is_video(case):
            return {}
        return {
            self.key: YES,
            f"{self.key}.ssim": SSIM,
            f"{self.key}.delta_e": AMOUNT_DOWN,
            f"{self.key}.worst_window": SHARE_DOWN,
            **self.moves,
        }

    def omissible(self, case: TestCase) -> frozenset[str]:
        return frozenset(self.moves)


class DiversityGrader(BaseGrader):
    """How much the samples of one case on one model run differ, measured after all cells are done."""

    kind: ClassVar[GraderKind] = SAMPLES

    type: Literal["diversity"]

    @property
    def version(self) -> str:
        return "2"

    @property
    def measures_locally(self) -> bool:
        return True

    def is_for(self, case: TestCase) -> bool:
        return super().is_for(case) and not is_video(case)

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        return {}
