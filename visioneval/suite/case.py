"""The model of a test case, and its rendered prompt."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    StringConstraints,
    TypeAdapter,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from visioneval.suite.files import FilePath, OutputEntry
from visioneval.suite.filters import CASE_ID, MAX_TURNS, TURN, chain_of, previous_turn
from visioneval.suite.questions import Questions, question_list
from visioneval.suite.relations import MAX_RELATIONS, Region, Relation
from visioneval.suite.rules import RuleEntry
from visioneval.templates.render import render
from visioneval.types import Frozen, TaskType

CaseId = Annotated[str, StringConstraints(pattern=rf"^{CASE_ID}({TURN})?$", max_length=120, strict=True)]
"""The id of a case, or that of a turn (see ``turns``), which a suite cannot write as an ``id``."""
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=60)]
TAG = r"^[^\s\x00-\x1f\x7f-\x9f,;|](?:[^\x00-\x1f\x7f-\x9f,;|]*[^\s\x00-\x1f\x7f-\x9f,;|])?$"
"""One line without what separates tags where several are written as one text, and without spaces around it."""
PRINTABLE = r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*$"
Text = Annotated[str, StringConstraints(min_length=1, pattern=PRINTABLE)]
Prompt = Annotated[str, StringConstraints(pattern=PRINTABLE)]
YesNo = Annotated[bool, Field(strict=True)]
SIZE = re.compile(r"[0-9]+x[0-9]+")
Size = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,4}x[1-9][0-9]{0,4}$")]
ExpectedSize = Annotated[str, StringConstraints(pattern=r"^(requested|[1-9][0-9]{0,4}x[1-9][0-9]{0,4})$")]
AspectRatio = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,3}:[1-9][0-9]{0,3}$")]


BASE_ROLE = "base"
"""The role of an input image that has none."""


class InputImage(Frozen):
    """An input image of a case. YAML also accepts a plain path."""

    path: FilePath = Field(description="The image file, relative to the file that names it.")
    role: Name = Field(
        default=BASE_ROLE,
        description="What the image is for, such as garment. People and judges see further images with the role base "
        "as `image 2`, `image 3`. For a video, the first image is the first frame, and one with the role `last_frame` "
        "the last (Veo and Gemini Omni); further images, and the roles `reference` and `style`, show what is to appear "
        "or how it looks.",
    )


def shown_role(index: int, role: str) -> str:
    """The role of an input image, counted from 0, to people and judges: only the first one without a role is a base."""
    return f"image {index + 1}" if index and role == BASE_ROLE else role


ImageEntry = Annotated[
    InputImage,
    BeforeValidator(
        lambda value: {"path": value} if isinstance(value, str) else value,
        json_schema_input_type=FilePath | InputImage,
    ),
]


ImageFormat = Annotated[
    Literal["png", "jpeg", "webp", "gif", "bmp", "tiff", "svg"],
    BeforeValidator(
        lambda value: "jpeg" if value == "jpg" else value,
        json_schema_input_type=Literal["png", "jpeg", "jpg", "webp", "gif", "bmp", "tiff", "svg"],
    ),
]


def _check_alpha(value: Any) -> Any:
    if value == "any" or value is None or isinstance(value, bool):  # to a Literal, 1 is True
        return value
    raise ValueError("write true, false or any")


Alpha = Annotated[
    Literal[True, False, "any"], BeforeValidator(_check_alpha, json_schema_input_type=Literal[True, False, "any"])
]


class Masks(Frozen):
    """Mask files, as large as the base image. Pixels with an alpha below 250 are inside: a soft edge is too."""

    editable: FilePath | None = Field(
        default=None,
        description="What may change: pixels with an alpha below 250, in a file as large as the base image. `validate` "
        "warns if 75 % of the image or more is inside, as in an inverted mask.",
    )
    clothing: FilePath | None = Field(default=None, description="The clothing of a person.")
    occluders: FilePath | None = Field(default=None, description="What lies in front of the clothing.")


COLOR = re.compile(r"#(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})")


def _long_color(value: Any) -> Any:
    """``#RRGGBB`` in capitals of ``#RGB`` or ``#RRGGBB``."""
    if value is None:
        raise ValueError("a color is missing: put it in quotes, as YAML reads # as the start of a comment")
    if not isinstance(value, str) or not COLOR.fullmatch(value):
        raise ValueError('write a color as "#RRGGBB" or "#RGB", in quotes')
    digits = value[1:] if len(value) == 7 else "".join(2 * digit for digit in value[1:])
    return f"#{digits.upper()}"


Color = Annotated[
    str,
    BeforeValidator(_long_color, json_schema_input_type=Annotated[str, Field(pattern=f"^{COLOR.pattern}$")]),
]


def _listed_codes(value: Any) -> Any:
    """A list of contents; empty for ``none``."""
    if value == "none":
        return ()
    if isinstance(value, str) or (isinstance(value, (list, tuple)) and not value):
        raise ValueError('write none, or a list of contents such as ["https://example.com"]')
    if isinstance(value, (list, tuple)) and any(type(content) is int for content in value):
        raise ValueError("put the digits of a code in quotes: YAML reads them as a number, without leading zeros")
    return value


Codes = Annotated[
    tuple[Annotated[str, StringConstraints(min_length=1, max_length=4300)], ...],
    Field(max_length=20),
    BeforeValidator(_listed_codes, json_schema_input_type=Literal["none"] | list[str]),
    PlainSerializer(lambda codes: list(codes) or "none", return_type=list[str] | Literal["none"]),
]
"""Contents; empty for ``none``, which it is written as."""


class ExpectText(Frozen):
    """The text that an image must and must not contain, line by line."""

    required: tuple[Text, ...] = Field(default=(), description="Lines that must be in the output, letter by letter.")
    forbidden: tuple[Text, ...] = Field(default=(), description="Texts that must not be in the output.")
    allowed: tuple[Text, ...] = Field(
        default=(), description="Lines that are neither required nor extra, such as a brand name."
    )
    extra: Literal["allow", "forbid"] = Field(
        default="allow",
        description="`forbid`: other text fails. A lone sign that may be a shape is only counted, in `doubtful_extra`.",
    )

    @model_validator(mode="after")
    def _check_not_empty(self) -> Self:
        if not self.required and not self.forbidden and self.extra == "allow":
            raise ValueError("expect.text is empty: add 'required' or 'forbidden' lines, or set 'extra: forbid'")
        return self


class Expect(Frozen):
    """Expected properties of the image, for graders that measure."""

    text: ExpectText | None = Field(default=None, description="The copy that the grader `text` checks.")
    layout: Annotated[tuple[Relation, ...], Field(min_length=1, max_length=MAX_RELATIONS)] | None = Field(
        default=None,
        exclude_if=lambda layout: layout is None,  # so that the keys of a case without it stay the same
        description="The relations between required lines and regions that the grader `layout` checks.",
    )
    regions: dict[Text, Region] = Field(
        default_factory=dict,
        exclude_if=lambda regions: not regions,
        description="Names for parts of the image, for `layout`: `[left, top, right, bottom]` in shares of its width "
        "and height, 0 to 1.",
    )
    size: ExpectedSize | None = Field(
        default=None,
        description="`WIDTHxHEIGHT`, or `requested`: the size in the `params.size` of each model run. A model run "
        "without one is then an error.",
    )
    aspect_ratio: AspectRatio | None = Field(default=None, description="Width to height, such as `2:3`.")
    format: ImageFormat | None = Field(default=None, description="The file format of the output.")
    alpha: Alpha | None = Field(
        default=None,
        description="`true`: the output must have transparent pixels; `false`: it must have none; `any`: it may. "
        "Default: the edit of an image with transparent pixels must have some, unless `format` is `jpeg`. Write `any` "
        "for edits that fill the background, or use the transparency of the image as a mask.",
    )
    palette: Annotated[tuple[Color, ...], Field(min_length=1, max_length=16)] | None = Field(
        default=None,
        exclude_if=lambda palette: palette is None,  # so that the hash of a case without it stays the same
        description='The colors that the grader `palette` looks for, 1 to 16, such as `["#F5E6CC", "#3B2A1E"]`.',
    )
    codes: Codes | None = Field(
        default=None,
        exclude_if=lambda codes: codes is None,
        description="The QR codes and bar codes that the grader `codes` reads: `none`, or a list of exact contents, "
        "each as often as it must be there.",
    )
    aligned: YesNo = Field(
        default=True, description="`false` marks a counter-example: a prompt that the image does not match."
    )
    refusal: YesNo = Field(
        default=False,
        description="`true`: the case passes only if the model refuses. An output is then a FAIL and is not graded.",
    )

    @model_validator(mode="after")
    def _check_format(self) -> Self:
        if self.alpha is True and self.format == "jpeg":
            raise ValueError("expect.alpha is true, but a jpeg has no transparency: remove one of the two")
        return self


class _CaseFields(Frozen):
    """What a case and a turn of a case have."""

    model_config = ConfigDict(
        json_schema_extra=lambda schema: schema["properties"].update(
            mask={"type": "string", "minLength": 1, "description": "Short for `masks: {editable: ...}`."}
        )
    )

    prompt: Prompt = Field(
        default="",
        json_schema_extra={"minLength": 1},
        description="What is asked for: a template. Quote it if it contains ` #` or `: `, which YAML reads as a "
        "comment or a key. Optional if the case has `turns`, or if nothing is generated or "
        "shown (`outputs: none`).",
    )
    criteria: str | None = Field(
        default=None, description="What makes the output good: a template, for judges and raters. Models do not see it."
    )
    images: tuple[ImageEntry, ...] = Field(
        default=(),
        description="Input images in the order in which models get them. The first one is the base of an edit.",
    )
    masks: Masks | None = Field(
        default=None, description="Masks by what they select. `validate` notes how it reads each one."
    )
    region: str | None = Field(default=None, description="Where the edit goes, in words.")
    reference: FilePath | None = Field(
        default=None, description="An image of the correct result, for the grader `reference` and for judges."
    )
    expect: Expect = Field(default=Expect(), description="Facts about the output for graders that measure.")
    outputs: dict[str, Annotated[tuple[OutputEntry, ...], Field(min_length=1)]] = Field(
        default_factory=dict,
        description="Existing outputs by the label of the model that generated them, one per sample. A model with "
        "`provider: files` and no source reads them.",
    )
    questions: Questions | None = Field(
        default=None,
        description="Pinned questions for `gecko`. Without them, a judge generates questions from the prompt.",
    )
    add_questions: Questions = Field(default=(), description="Questions in addition to the pinned or generated ones.")
    tags: tuple[Annotated[str, StringConstraints(pattern=TAG, max_length=120)], ...] = Field(
        default=(),
        description="For selections, scopes and rates: one line each without `,`, `;` and `|`, at most 120 "
        "characters. A case tagged `must_pass` fails a comparison when it breaks.",
    )
    flaky: YesNo = Field(
        default=False,
        description="`true`: later comparisons with this run report the case and never fail on it. If all compared "
        "cases are flaky, the comparison exits 3.",
    )
    metadata: dict[str, Any] = Field(default_factory=dict, description="Any values, for templates and custom classes.")
    verdict: Annotated[tuple[RuleEntry, ...], Field(min_length=1)] | None = Field(
        default=None, description="Replaces the suite's rules for this case."
    )

    @model_validator(mode="before")
    @classmethod
    def _expand_mask(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "mask" not in data:
            return data
        if "masks" in data:
            raise ValueError("'mask' and 'masks' are both set: use only one")
        rest = {key: value for key, value in data.items() if key != "mask"}
        return {**rest, "masks": {"editable": data["mask"]}}

    @model_validator(mode="before")
    @classmethod
    def _number_added_questions(cls, data: Any) -> Any:
        """Questions without an id are numbered on from the pinned ones."""
        if not isinstance(data, dict) or "questions" not in data or "add_questions" not in data:
            return data
        with suppress(ValueError):  # each field reports its own
            pinned = question_list(data["questions"])
            if isinstance(pinned, list):
                return {**data, "add_questions": question_list(data["add_questions"], pinned)}
        return data


class CaseTurn(_CaseFields):
    """One turn of an edit. Keys that it does not set come from its case."""

    prompt: Annotated[Prompt, StringConstraints(min_length=1)] = Field(
        description="What this turn asks for. A turn that is text alone is its prompt."
    )
    images: tuple[ImageEntry, ...] = Field(
        default=(), description="Further input images, sent after the image that the turn edits."
    )


TurnEntry = Annotated[
    CaseTurn,
    BeforeValidator(
        lambda value: {"prompt": value} if isinstance(value, str) else value,
        json_schema_input_type=Annotated[Prompt, Field(min_length=1)] | CaseTurn,
    ),
]
Turns = Annotated[tuple[TurnEntry, ...], Field(min_length=1, max_length=MAX_TURNS)]


class TestCase(_CaseFields):
    """One image or video to generate, or one image to edit."""

    __test__ = False  # pytest would collect a class of this name

    id: CaseId = Field(
        json_schema_extra={"pattern": f"^{CASE_ID}$"},
        description="Unique in the suite: letters, digits, `_`, `-` and `.` (not first).",
    )
    task: TaskType | None = Field(
        default=None,
        description="Default: the suite's `task`, else `image_editing` for a case with images and `image_generation` "
        "without.",
    )
    output_of: CaseId | None = Field(
        default=None,
        description="Another case, or one of its turns. This one generates nothing: the outputs of the other are "
        "graded against its prompt. It has the task, inputs and samples of the other, and is an ERROR or refused if "
        "that is. `--case` and `--tag` select both.",
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The schema of what a suite writes: also ``turns``, which the loader replaces by a case for each."""
        schema = handler(core)
        handler.resolve_ref_schema(schema)["properties"]["turns"] = {
            **handler(TypeAdapter(Turns).core_schema),
            "description": "Edits of an image, one after the other: each edits the output of the one before.",
        }
        return schema

    @property
    def previous_turn(self) -> str | None:
        """The id of the case whose output it edits: the turn before, if this is a later turn."""
        return previous_turn(self.id)

    @property
    def origins(self) -> frozenset[str]:
        """What its output may resemble those of other cases for: the case that it is a turn of, and its input files."""
        return frozenset({chain_of(self.id), *(f"/{image.path}" for image in self.images)})

    @property
    def shown_roles(self) -> list[str]:
        """The role of each of its images, to people. A later turn edits an image before them."""
        first = 0 if self.previous_turn is None else 1
        return [shown_role(index, image.role) for index, image in enumerate(self.images, first)]

    @property
    def edits_image(self) -> bool:
        """Whether it has an image to edit: its first input image, or the output of the turn before."""
        return bool(self.images) or self.previous_turn is not None

    @property
    def task_type(self) -> TaskType:
        """The case's ``task``; without one, editing if the case has images, else generation."""
        if self.task is not None:
            return self.task
        return TaskType.IMAGE_EDITING if self.images else TaskType.IMAGE_GENERATION


def pixel_size(text: str) -> tuple[int, int]:
    """Parses ``"1024x1536"`` into ``(width, height)``. Raises ``ValueError`` for any other form."""
    if SIZE.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a size such as 1024x1536")
    width, height = map(int, text.split("x"))
    return width, height


def with_inherited_tasks(cases: Sequence[Any]) -> list[Any]:
    """Raw cases, where a case with ``output_of`` and no task gets the task of its source case."""
    by_id = {case["id"]: case for case in cases if isinstance(case, dict) and isinstance(case.get("id"), str)}
    result: list[Any] = []
    for case in cases:
        used = case.get("output_of") if isinstance(case, dict) else None
        source = by_id.get(used) if isinstance(used, str) else None
        if source is None or "task" in case:
            result.append(case)
        else:
            of_source = TaskType.IMAGE_EDITING if source.get("images") else TaskType.IMAGE_GENERATION
            result.append({**case, "task": source.get("task") or of_source})
    return result


def dependents_by_case(cases: Sequence[TestCase]) -> dict[str, list[TestCase]]:
    """The cases that use another case's images, by that case's id."""
    dependents: dict[str, list[TestCase]] = {}
    for case in cases:
        if case.output_of is not None:
            dependents.setdefault(case.output_of, []).append(case)
    return dependents


def with_output_sources(chosen: Sequence[TestCase], cases: Sequence[TestCase]) -> tuple[TestCase, ...]:
    """The chosen cases and those whose images they use or edit, with all earlier turns, in the order of ``cases``."""
    ids: set[str] = set()
    for case in chosen:
        name: str | None = case.output_of or case.previous_turn
        while name is not None and name not in ids:
            ids.add(name)
            name = previous_turn(name)
        ids.add(case.id)
    return tuple(case for case in cases if case.id in ids)


RESERVED = ("case", "expect", "metadata")


def context(case: TestCase, variables: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of a case's templates: ``vars``, ``metadata``, ``expect`` and ``case``.

    ``expect.aligned`` is excluded: a judge must not know which cases are counter-examples.
    """
    return {
        **variables,
        "metadata": case.metadata,
        "expect": case.expect.model_dump(exclude_none=True, exclude={"aligned"}),
        "case": {
            "id": case.id,
            "tags": list(case.tags),
            "region": case.region,
            "metadata": case.metadata,
            "task": str(case.task_type),
        },
    }


def rendered(case: TestCase, variables: Mapping[str, Any]) -> tuple[str, str | None]:
    """Prompt and criteria as text. Raises ``TemplateError``."""
    if "{" not in case.prompt and "{" not in (case.criteria or ""):
        return case.prompt, case.criteria
    values = context(case, variables)
    return render(case.prompt, values), None if case.criteria is None else render(case.criteria, values)
