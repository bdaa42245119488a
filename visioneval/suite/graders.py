"""The options of every grader, and the metrics that it writes, without any grader's code."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from visioneval.graders.alignment.config import AlignmentOptions
from visioneval.graders.gecko.config import GeckoOptions
from visioneval.graders.pairwise.config import PairwiseOptions
from visioneval.graders.rubric.config import RubricOptions
from visioneval.suite.case import Name, TestCase
from visioneval.suite.filters import When
from visioneval.suite.judge_prompt import CHECK, DESCRIBE, LIST
from visioneval.types import Frozen, Metric, TaskType

Share = Annotated[float, Field(ge=0, le=1)]
ModuleClass = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", max_length=200)]

_YES = Metric(type="bool", better="higher")
_SHARE_UP = Metric(type="number", range=(0, 1), better="higher")
_SHARE_DOWN = Metric(type="number", range=(0, 1), better="lower")
_SSIM = Metric(type="number", range=(-1, 1), better="higher")


def is_video(case: TestCase) -> bool:
    """Whether a case is about a video."""
    return case.task_type is TaskType.VIDEO_GENERATION


class BaseGrader(Frozen):
    """What all graders share."""

    runs_code: ClassVar[bool] = False
    sees_videos: ClassVar[bool] = False
    """Whether it can grade a video."""
    after_run: ClassVar[bool] = False
    """Whether it grades no cell, and looks at pairs of pictures once all are there."""

    needs: ClassVar[Mapping[str, str]] = {}
    """What a case must hold for a metric, by the metric's name after the key."""

    key: Name
    when: When | None = None

    def is_for(self, case: TestCase) -> bool:
        """Whether it looks at a case; one that looks at pairs leaves those out that draw nothing."""
        fits = self.when is None or self.when.fits(case.id, case.task_type, case.tags)
        return fits and not (self.after_run and case.picture_of is not None)

    @abstractmethod
    def metrics(self, case: TestCase) -> dict[str, Metric]:
        """What this grader writes for ``case``; empty where the case holds nothing for it to measure."""

    def optional(self, case: TestCase) -> frozenset[str]:  # noqa: ARG002 - most write all that they declare
        """Those of its metrics that a picture may turn out to have nothing for: such a score is left out, not null."""
        return frozenset()

    @property
    def needs_no_bytes(self) -> bool:
        """Whether a judge that reads addresses is all that it takes."""
        return self.sees_videos

    @property
    def judge_name(self) -> str | None:
        """The key of the judge that it asks, under ``judges:``; ``None`` where it asks nobody."""
        return None

    @property
    def templates(self) -> tuple[str, ...]:
        """The templates that its questions are made from."""
        return ()


class TextGrader(BaseGrader):
    """Exact copy, case included: the lines that the picture must and must not show."""

    needs: ClassVar[Mapping[str, str]] = {
        "": "expect.text",
        ".recall": "expect.text.required",
        ".cer": "expect.text.required",
    }

    type: Literal["text"]
    extract: Literal["ocr", "judge"] | Annotated[tuple[Literal["ocr"], Literal["judge"]], Field()] = Field(
        default="ocr", description="ocr, judge, or [ocr, judge]: OCR first, and the judge where OCR finds a miss."
    )
    judge: Name = "default"
    describe: bool = Field(
        default=False,
        description="The judge first describes the picture; a second call, which sees no picture, lists the text.",
    )
    min_confidence: Share = Field(default=0.5, description="OCR readings below this confidence (0 to 1) are not text.")

    @model_validator(mode="after")
    def _who_describes(self) -> Self:
        if self.describe and self.extract == "ocr":
            raise ValueError("describe is for a judge: it needs extract: judge, or [ocr, judge]")
        return self

    @property
    def judge_name(self) -> str | None:
        return None if self.extract == "ocr" else self.judge

    @property
    def templates(self) -> tuple[str, ...]:
        return (DESCRIBE, CHECK) if self.describe else (LIST,)

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        expected = case.expect.text
        if expected is None or is_video(case):
            return {}
        found = {self.key: _YES}
        if expected.required:
            found[f"{self.key}.recall"] = _SHARE_UP
            found[f"{self.key}.cer"] = _SHARE_DOWN
        return found


class RubricGrader(BaseGrader, RubricOptions):
    """A judge's scores against a rubric."""

    sees_videos: ClassVar[bool] = True

    type: Literal["rubric"]

    @property
    def needs_no_bytes(self) -> bool:
        return self.zoom is None

    def metrics(self, case: TestCase) -> dict[str, Metric]:  # noqa: ARG002 - a rubric is for every case
        return {name: asked.metric for name, asked in self.asked.items()}

    @property
    def judge_name(self) -> str | None:
        return self.judge

    @property
    def templates(self) -> tuple[str, ...]:
        return (self.template,)


class AlignmentGrader(BaseGrader, AlignmentOptions):
    """The share of a prompt's requirements that a picture meets, as a judge answers them one by one."""

    sees_videos: ClassVar[bool] = True

    type: Literal["alignment"]

    def metrics(self, case: TestCase) -> dict[str, Metric]:  # noqa: ARG002 - every case has a prompt
        return {self.key: Metric(type="number", range=(0, 100), better="higher")}

    @property
    def judge_name(self) -> str | None:
        return self.judge

    @property
    def templates(self) -> tuple[str, ...]:
        return (self.template,)


class GeckoGrader(BaseGrader, GeckoOptions):
    """The share of a prompt's claims that a picture or a video shows, asked one by one."""

    sees_videos: ClassVar[bool] = True

    type: Literal["gecko"]

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        if (case.task_type is TaskType.VIDEO_GENERATION) != (self.media == "video"):
            return {}
        return {self.key: _SHARE_UP, **{f"{self.key}.{kind}": _SHARE_UP for kind in self.types_of(case)}}

    def optional(self, case: TestCase) -> frozenset[str]:
        if case.questions is not None:
            return frozenset()
        sure = {question.type for question in case.add_questions}
        return frozenset(f"{self.key}.{kind}" for kind in self.types_of(case) if kind not in sure)

    @property
    def judge_name(self) -> str | None:
        return self.judge

    @property
    def templates(self) -> tuple[str, ...]:
        return self.all_templates


class LocalityGrader(BaseGrader):
    """An edit that stays inside its mask."""

    needs: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("", ".changed_outside", ".worst_window", ".ssim_outside", ".changed_inside"), "images and an editable mask"
    )

    type: Literal["locality"]
    tolerance: Literal["reencode", "exact"] = Field(
        default="reencode",
        description="reencode forgives what lossy encoding, another size and a small shift of the whole picture do. "
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
            self.key: _YES,
            f"{self.key}.changed_outside": _SHARE_DOWN,
            f"{self.key}.worst_window": _SHARE_DOWN,
            f"{self.key}.ssim_outside": _SSIM,
            f"{self.key}.changed_inside": Metric(type="number", range=(0, 1), better="none"),
        }


class ReferenceGrader(BaseGrader):
    """Likeness to a picture of the right answer."""

    needs: ClassVar[Mapping[str, str]] = dict.fromkeys(("", ".ssim", ".delta_e"), "a reference")

    type: Literal["reference"]
    min_ssim: Annotated[float, Field(ge=-1, le=1)] = Field(
        default=0.9,
        description="The least structural similarity: re-encoding keeps 0.95 and more, another picture 0.4 or less.",
    )
    max_delta_e: Annotated[float, Field(ge=0, le=200)] = Field(
        default=3.0,
        description="The largest mean colour difference (CIEDE2000): re-encoding stays below 2.5, "
        "12 of 255 brighter is 3.5, another picture 20 and more.",
    )

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        if case.reference is None or is_video(case):
            return {}
        return {
            self.key: _YES,
            f"{self.key}.ssim": _SSIM,
            f"{self.key}.delta_e": Metric(type="number", range=(0, None), better="lower"),
        }


class ImageGrader(BaseGrader):
    """The file itself: it decodes, is not blank, and is what ``expect`` says."""

    needs: ClassVar[Mapping[str, str]] = {
        ".size": "expect.size or expect.aspect_ratio",
        ".format": "expect.format",
        ".alpha": "expect.alpha",
    }

    type: Literal["image"]

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        expect = case.expect
        if is_video(case):
            return {}
        found = {self.key: _YES}
        if expect.size is not None or expect.aspect_ratio is not None:
            found[f"{self.key}.size"] = _YES
        if expect.format is not None:
            found[f"{self.key}.format"] = _YES
        if expect.alpha is not None:
            found[f"{self.key}.alpha"] = _YES
        found[f"{self.key}.blank"] = Metric(type="bool", better="lower")
        return found


class PairwiseGrader(BaseGrader, PairwiseOptions):
    """A judge's preference between the pictures of two model runs, asked for after all cells are done."""

    after_run: ClassVar[bool] = True
    sees_videos: ClassVar[bool] = True

    type: Literal["pairwise"]

    def metrics(self, case: TestCase) -> dict[str, Metric]:  # noqa: ARG002 - a pair is no cell, and has no scores
        return {}

    @property
    def judge_name(self) -> str | None:
        return self.judge

    @property
    def templates(self) -> tuple[str, ...]:
        return (self.template,)


class CustomGrader(BaseGrader):
    """A grader of the user's own, ``my_package.module:Class``; it says here what it writes."""

    runs_code: ClassVar[bool] = True
    type: ModuleClass
    writes: dict[str, Metric] = Field(min_length=1, description="Its metrics, by the name that rules use.")
    options: dict[str, Any] = Field(default_factory=dict)

    def metrics(self, case: TestCase) -> dict[str, Metric]:  # noqa: ARG002 - a class of the user's own may always apply
        return dict(self.writes)


GRADERS: dict[str, type[BaseGrader]] = {
    "rubric": RubricGrader,
    "alignment": AlignmentGrader,
    "gecko": GeckoGrader,
    "text": TextGrader,
    "locality": LocalityGrader,
    "reference": ReferenceGrader,
    "image": ImageGrader,
    "pairwise": PairwiseGrader,
}
