"""A test case, as a suite or a dataset writes it."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from visioneval.suite.filters import RuleEntry
from visioneval.suite.outputs import FilePath, OutputEntry
from visioneval.suite.questions import Questions
from visioneval.types import Frozen, TaskType

CaseId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=120, strict=True)]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=60)]
PRINTABLE = r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*$"
Text = Annotated[str, StringConstraints(min_length=1, pattern=PRINTABLE)]
YesNo = Annotated[bool, Field(strict=True)]
Size = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,4}x[1-9][0-9]{0,4}$")]
WantedSize = Annotated[str, StringConstraints(pattern=r"^(requested|[1-9][0-9]{0,4}x[1-9][0-9]{0,4})$")]
AspectRatio = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,3}:[1-9][0-9]{0,3}$")]


class InputImage(Frozen):
    """An image that the case starts from. In YAML a plain path is allowed."""

    path: FilePath
    role: Name = "base"


def _plain_path(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


ImageEntry = Annotated[InputImage, BeforeValidator(_plain_path, json_schema_input_type=FilePath | InputImage)]


def _jpg_is_jpeg(value: Any) -> Any:
    return "jpeg" if value == "jpg" else value


ImageFormat = Annotated[
    Literal["png", "jpeg", "webp", "gif", "bmp", "tiff"],
    BeforeValidator(_jpg_is_jpeg, json_schema_input_type=Literal["png", "jpeg", "jpg", "webp", "gif", "bmp", "tiff"]),
]


class Masks(Frozen):
    """Mask files of the size of the base image, whose fully transparent pixels (alpha 0) are inside."""

    editable: FilePath | None = None
    clothing: FilePath | None = None
    occluders: FilePath | None = None


class ExpectText(Frozen):
    """The copy that an image must and must not show, line by line."""

    required: tuple[Text, ...] = ()
    forbidden: tuple[Text, ...] = ()
    allowed: tuple[Text, ...] = Field(
        default=(), description="Lines that are neither required nor extra, such as a brand name."
    )
    extra: Literal["allow", "forbid"] = "allow"

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.required and not self.forbidden and self.extra == "allow":
            raise ValueError("expect.text says nothing to check: give required or forbidden lines, or 'extra: forbid'")
        return self


class Expect(Frozen):
    """Facts about the image for the graders that measure."""

    text: ExpectText | None = None
    size: WantedSize | None = Field(
        default=None, description="WIDTHxHEIGHT, or 'requested': the size that the model was asked for."
    )
    aspect_ratio: AspectRatio | None = None
    format: ImageFormat | None = None
    alpha: YesNo | None = Field(
        default=None, description="Whether the image must have pixels that are not fully opaque."
    )
    aligned: YesNo = Field(default=True, description="false: a counter-example, whose prompt the image does not show.")
    refusal: YesNo = Field(default=False, description="The case passes only if the model refuses.")


class TestCase(Frozen):
    """One thing to generate or to edit."""

    __test__ = False  # pytest would collect a class of this name
    model_config = ConfigDict(
        json_schema_extra=lambda schema: schema["properties"].update(
            mask={"type": "string", "minLength": 1, "description": "Short for masks.editable."}
        )
    )

    id: CaseId
    task: TaskType | None = None
    prompt: Annotated[str, StringConstraints(pattern=PRINTABLE)] = Field(
        default="",
        json_schema_extra={"minLength": 1},
        description="Only a case without any image (outputs: none) goes without.",
    )
    criteria: str | None = None
    images: tuple[ImageEntry, ...] = ()
    masks: Masks | None = None
    region: str | None = None
    reference: FilePath | None = None
    expect: Expect = Expect()
    outputs: dict[str, Annotated[tuple[OutputEntry, ...], Field(min_length=1)]] = Field(
        default_factory=dict,
        description="Finished images, one path a sample, by the label of what drew them; a dataset's image "
        "column fills this in, and a {provider: files} model without a source reads it.",
    )
    output_of: CaseId | None = Field(
        default=None, description="Generates nothing: that case's images are graded against this prompt."
    )
    questions: Questions | None = Field(
        default=None, description="Pinned Gecko questions; without them a judge makes them from the prompt."
    )
    add_questions: Questions = Field(default=(), description="Asked beside the pinned or the made ones.")
    tags: tuple[Name, ...] = ()
    flaky: YesNo = Field(default=False, description="Comparisons report the case and never fail on it.")
    metadata: dict[str, Any] = Field(default_factory=dict)

    verdict: Annotated[tuple[RuleEntry, ...], Field(min_length=1)] | None = Field(
        default=None, description="Replaces the suite's rules for this case."
    )

    @model_validator(mode="before")
    @classmethod
    def _mask_is_short_for_editable(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "mask" not in data:
            return data
        if "masks" in data:
            raise ValueError("give mask or masks, not both")
        rest = {key: value for key, value in data.items() if key != "mask"}
        return {**rest, "masks": {"editable": data["mask"]}}

    @property
    def task_type(self) -> TaskType:
        """The task as stated, else editing where the case has images, else generation."""
        if self.task is not None:
            return self.task
        return TaskType.IMAGE_EDITING if self.images else TaskType.IMAGE_GENERATION


def pixel_size(text: str) -> tuple[int, int]:
    """``"1024x1536"`` as ``(width, height)``. Raises ``ValueError`` for any other form."""
    match = re.fullmatch(r"([0-9]+)x([0-9]+)", text)
    if match is None:
        raise ValueError(f"{text!r} is not a size such as 1024x1536")
    return int(match[1]), int(match[2])
