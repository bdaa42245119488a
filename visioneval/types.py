"""Types that all layers share."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

MUST_PASS = "must_pass"  # noqa: S105 - a tag, not a password
"""The tag of cases that may not break in a comparison."""
MAX_NUMBER = 2.0**63
"""The largest absolute value of a score, cost or range bound, so that sums and squares do not overflow."""
MOST_CHOICES = 100
"""The most choices of a metric of words: a table and a share of each must be readable."""
_Line = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]


def plain_word(text: str) -> str:
    """A word as it is stored: without outer spaces, and composed (NFC), so that equal words are equal texts."""
    return unicodedata.normalize("NFC", text.strip())


def repeated_word(words: Iterable[str]) -> str | None:
    """A word that an answer cannot tell from an earlier one, as answers are read in any case; ``None`` if none is."""
    seen: set[str] = set()
    for word in words:
        if word.casefold() in seen:
            return word
        seen.add(word.casefold())
    return None


def declared_word(answer: Any, words: Iterable[str]) -> Any:
    """The one of ``words`` that an answer names, in any case and with outer spaces; the answer itself if none is."""
    if not isinstance(answer, str):
        return answer
    text = plain_word(answer).casefold()
    same = [word for word in words if plain_word(word).casefold() == text]
    return same[0] if len(same) == 1 else answer


def _choice(text: str) -> str:
    word = plain_word(text)
    if not word:
        raise ValueError("choices: a word is empty")
    if "'" in word and '"' in word:
        raise ValueError(f"choices: {word} has both kinds of quotes, so no rule could name it")
    return word


Word = Annotated[_Line, AfterValidator(_choice)]
"""A choice of a metric that is one word of a list: one line of text."""
Score = (
    _Line
    | Annotated[bool, Field(strict=True)]
    | Annotated[int, Field(strict=True, ge=-(2**63), le=2**63)]
    | Annotated[float, Field(strict=True, ge=-MAX_NUMBER, le=MAX_NUMBER, allow_inf_nan=False)]
    | None
)
"""A measured value; ``None`` if it could not be measured."""
Bound = Annotated[float, Field(ge=-MAX_NUMBER, le=MAX_NUMBER)]


class TaskType(StrEnum):
    """The task of a case."""

    IMAGE_GENERATION = "image_generation"
    IMAGE_EDITING = "image_editing"
    VIDEO_GENERATION = "video_generation"


class Status(StrEnum):
    """How the generation of a cell ended."""

    COMPLETED = "completed"
    REFUSED = "refused"
    ERROR = "error"


class Verdict(StrEnum):
    """The result of the suite's rules for a cell; ``NONE`` for an output in a suite without rules."""

    PASS = "PASS"  # noqa: S105 - a verdict, not a password
    FAIL = "FAIL"
    ERROR = "ERROR"
    NONE = "NONE"

    @property
    def passed(self) -> bool | None:
        """Whether the cell passed; ``None`` if nothing was decided."""
        return None if self in (Verdict.ERROR, Verdict.NONE) else self is Verdict.PASS


class Frozen(BaseModel):
    """The base of all models in files: immutable, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def text_or_list(value: Any) -> str:
    """The tag of the alternative that a value is meant for, so that only its errors are reported.

    Locations of errors drop these tags (see ``document_path``).
    """
    return "list" if isinstance(value, (list, tuple)) else "constrained-str"


class Metric(Frozen):
    """The meaning of a score: its type, its inclusive range or its choices, and which direction is better."""

    type: Literal["bool", "number", "one_of"] = Field(
        default="bool", description="bool: yes or no; number: any number in range; one_of: one of the choices."
    )
    choices: tuple[Word, ...] = Field(
        default=(),
        max_length=MOST_CHOICES,
        exclude_if=lambda choices: not choices,  # so that the hash of a grader without them stays the same
        description="The words of a metric of type one_of, at most 100.",
    )
    range: tuple[Bound, Bound | None] | None = Field(
        default=None, description="The lowest and the highest value; null for none."
    )
    better: Literal["higher", "lower", "none"] = Field(
        default="higher", description="Which values are better; none for a value that is neither."
    )
    unit: Annotated[str, StringConstraints(min_length=1, max_length=40, pattern=r"^[^\x00-\x1f\x7f]*$")] | None = Field(
        default=None,
        exclude_if=lambda unit: unit is None,  # so that the hash of a grader without it stays the same
        description="The unit of a number, such as px: values in two units are not compared.",
    )

    @model_validator(mode="before")
    @classmethod
    def _words_have_no_better(cls, data: Any) -> Any:
        return {"better": "none", **data} if isinstance(data, dict) and data.get("type") == "one_of" else data

    @model_validator(mode="after")
    def _check_choices(self) -> Self:
        if self.type != "one_of":
            if self.choices:
                raise ValueError(f"'choices' needs the type one_of, not {self.type}")
            return self
        if not self.choices:
            raise ValueError("a metric of type one_of needs 'choices', a list of different words")
        if (duplicate := repeated_word(self.choices)) is not None:
            raise ValueError(f"choices: {duplicate!r} is listed twice: answers are read in any case")
        if self.better != "none" or self.range is not None or self.unit is not None:
            raise ValueError("a metric of type one_of has no 'better', 'range' or 'unit': rules say which words pass")
        return self

    def share_names(self, name: str) -> dict[str, str]:
        """The names of the shares of its words, by word, such as ``style: flat``; empty unless it is one of words."""
        return {word: f"{name}: {word}" for word in self.choices}


@dataclass(frozen=True, slots=True)
class Output:
    """A valid image or video on disk. ``width`` and ``height`` are in pixels, as stored in the file.

    An output that is known only by its ``uri`` has no file, digest or size.
    """

    path: Path
    sha256: str
    mime: str
    width: int
    height: int
    uri: str | None = None
    """A URI from which Gemini can read it directly."""

    @property
    def is_video(self) -> bool:
        """Whether it is a video."""
        return self.mime.startswith("video/")


@dataclass(frozen=True, slots=True)
class CaseFiles:
    """The files of a case, as absolute paths: ``images`` are pairs of a name and a path, ``masks`` paths by name.

    The first image is the ``base`` of an edit.
    """

    images: tuple[tuple[str, Path], ...] = ()
    masks: Mapping[str, Path] = field(default_factory=dict)
    reference: Path | None = None

    @property
    def base(self) -> Path | None:
        """The base image of an edit."""
        return self.images[0][1] if self.images else None


@dataclass(frozen=True)
class ModelRun:
    """One expanded model configuration. ``config`` is its provider's config model."""

    label: str
    provider: str
    params: Mapping[str, Any]
    config: Any

    @cached_property
    def key_options(self) -> dict[str, Any]:
        """The options of its provider that its generations depend on."""
        return dict(self.config.key_options)

    @property
    def stand_in(self) -> bool:
        """Whether its images come from a placeholder instead of a model."""
        return bool(self.config.stand_in)
