"""The graders that compare pixels: the options of locality, reference and diversity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from visioneval.suite.case import TestCase, YesNo
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
        description="The largest factor by which the whole image may be enlarged or reduced. Up to 1.02 is undone "
        "before the comparison.",
    )

    @property
    def moves(self) -> dict[str, Metric]:
        """The metrics of the shift and the zoom that were undone."""
        return {
            f"{self.key}.shift": AMOUNT_DOWN,
            f"{self.key}.magnification": _FACTOR,
        }


class LocalityGrader(RegisteringGrader):
    """Whether an edit stays inside its mask."""

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
    meanings: ClassVar[Mapping[str, str]] = {
        "": "everything is within the limits",
        ".changed_outside": "the share of the pixels outside the mask that changed visibly",
        ".worst_window": "the largest share of a window of 24 x 24 pixels outside in which a change is seen",
        ".ssim_outside": "the structural similarity outside; without a limit",
        ".changed_inside": "the share of the pixels inside the mask that changed",
        ".sharpness_outside": "the fine detail that is left outside, if there was any: 1 is as sharp as the input",
        ".shift": "how far the whole image moved, as a share of its shorter side; not with another aspect ratio",
        ".magnification": "the factor by which it was enlarged or reduced, 1 or more; not with another aspect ratio",
        ".content_change": "with `redrawn`: the difference of the worst window beyond 2.5 times most others' (CIE76)",
        ".redraw": "with `redrawn`: the difference (CIE76) that nine of ten windows do not exceed",
        ".tone": "with `redrawn`: the mean change of tone that was undone, in levels of 255",
        ".displacement": "with `redrawn`: the largest displacement that was undone, as a share of the shorter side",
        ".isolated_change": "with `reencode`: the pixels of the largest change that stands alone. Missing if the "
        "output was encoded again (`details.encoded_again` says why); `compare` may then need `--allow "
        "missing-metrics`",
    }

    type: Literal["locality"]
    tolerance: Literal["reencode", "exact", "redrawn"] = Field(
        default="reencode",
        description="`reencode` ignores lossy encoding, resizing, mild sharpening and a small shift of the whole "
        "image. `exact` ignores nothing: each pixel with another RGB or alpha value counts. `redrawn` "
        "ignores what a model that paints the whole image again changes everywhere.",
    )
    max_changed_outside: Share = Field(
        default=0.01,
        description="The largest share of the pixels outside the mask that may visibly change; 0 by default with "
        "`exact`. Not with `redrawn`.",
    )
    max_worst_window: Share = Field(
        default=0.15,
        description="The largest share that may change in any window of 24 x 24 pixels outside the mask, of which a "
        "patch of 12 x 12 is a quarter; 0 by default with `exact`. Not with `redrawn`.",
    )
    max_isolated_change: Annotated[int, Field(ge=0)] = Field(
        default=5,
        description="With `reencode`: the most pixels of a change that stands alone, in an output that is otherwise "
        "the input, pixel for pixel. A digit 12 pixels high changes 6 or more.",
    )
    min_changed_inside: Share = Field(
        default=0.002,
        description="The smallest share of the pixels inside the mask that must change: less is no edit.",
    )
    min_sharpness_outside: Share = Field(
        default=0.4,
        description="The smallest share of fine detail that must be left outside the mask. JPEG and WebP of quality "
        "60, half a pixel of shift and resizing leave about 0.6 or more, a blur of 2 pixels 0.3 or "
        "less.",
    )
    max_content_change: Annotated[float, Field(ge=0)] = Field(
        default=5.0,
        description="With `redrawn`: the largest `content_change`, the most that one window may stand out (CIE76).",
    )
    max_redraw: Annotated[float, Field(ge=0)] = Field(
        default=8.0,
        description="With `redrawn`: the largest `redraw`, the difference (CIE76) that nine of ten windows may have. "
        "More is another image.",
    )
    dilate: Annotated[int, Field(ge=0, le=512)] = Field(
        default=8,
        description="The width in pixels of a margin around the mask that may change too; 0 by default with `exact`.",
    )

    except_marks: YesNo = Field(
        default=False,
        exclude_if=lambda is_excepted: not is_excepted,  # the default: its hash stays the same
        description="`true`: the corner mark that Gemini sets in its outputs may be there. The reason names the box "
        "that is left out.",
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
    """How similar an image is to a reference image."""

    needs: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("", ".ssim", ".delta_e", ".worst_window", ".shift", ".magnification"), "a reference"
    )
    meanings: ClassVar[Mapping[str, str]] = {
        "": "everything is within the limits",
        ".ssim": "the structural similarity, -1 to 1; 1 is identical",
        ".delta_e": "the mean color difference (CIEDE2000)",
        ".worst_window": "the largest share of a window of 24 x 24 pixels in which a change is seen",
        ".shift": "how far the whole image moved, as a share of its shorter side",
        ".magnification": "the factor by which it was enlarged or reduced, 1 or more",
    }

    type: Literal["reference"]
    min_ssim: Annotated[float, Field(ge=-1, le=1)] = Field(
        default=0.85,
        description="The smallest structural similarity, -1 to 1. Of 14 images, JPEG of quality 75 left 0.93 or "
        "more, and another image had 0.46 or less.",
    )
    max_delta_e: Annotated[float, Field(ge=0, le=200)] = Field(
        default=3.0,
        description="The largest mean color difference (CIEDE2000). 0 is the same color; about 2 is visible side by "
        "side.",
    )
    max_worst_window: Share = Field(
        default=0.15,
        description="The largest share that may visibly change in any window of 24 x 24 pixels: a small change "
        "hides in the averages.",
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
    """How much two or more samples of a case on one model run differ, measured after all cells are done."""

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
