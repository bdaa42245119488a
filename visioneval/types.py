"""The vocabulary: the words that every floor shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

MAX_NUMBER = 2.0**63
"""No score, cost or bound of a range is larger, or below its negative: sums and squares of such do not overflow."""
Score = (
    Annotated[bool, Field(strict=True)]
    | Annotated[int, Field(strict=True, ge=-(2**63), le=2**63)]
    | Annotated[float, Field(strict=True, ge=-MAX_NUMBER, le=MAX_NUMBER, allow_inf_nan=False)]
    | None
)
"""A measured value; ``None`` when it could not be measured."""
Bound = Annotated[float, Field(ge=-MAX_NUMBER, le=MAX_NUMBER)]


class TaskType(StrEnum):
    """What a case asks for."""

    IMAGE_GENERATION = "image_generation"
    IMAGE_EDITING = "image_editing"
    VIDEO_GENERATION = "video_generation"


class Status(StrEnum):
    """How the generation of a cell ended."""

    COMPLETED = "completed"
    REFUSED = "refused"
    ERROR = "error"


class Verdict(StrEnum):
    """What the suite's rules say of a cell."""

    PASS = "PASS"  # noqa: S105 - a verdict, not a password
    FAIL = "FAIL"
    ERROR = "ERROR"


class Frozen(BaseModel):
    """The base of everything that crosses a file border: frozen, and nothing unknown gets in."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Metric(Frozen):
    """What a score means: its type, its inclusive range, and which way is better."""

    type: Literal["bool", "number"] = "bool"
    range: tuple[Bound, Bound | None] | None = None
    better: Literal["higher", "lower", "none"] = "higher"


@dataclass(frozen=True, slots=True)
class Output:
    """An image or a video on disk that decodes. ``width`` and ``height`` are pixels, as stored in the file.

    One that is only known by its ``uri``, as nobody here needs its bytes, has no file, digest and size.
    """

    path: Path
    sha256: str
    mime: str
    width: int
    height: int
    uri: str | None = None
    """Where Gemini can read it itself."""

    @property
    def is_video(self) -> bool:
        """Whether it moves."""
        return self.mime.startswith("video/")


@dataclass(frozen=True, slots=True)
class CaseFiles:
    """The files of a case, as absolute paths. The first image is the base of an edit."""

    images: tuple[tuple[str, Path], ...] = ()
    masks: Mapping[str, Path] = field(default_factory=dict)
    reference: Path | None = None

    @property
    def base(self) -> Path | None:
        """The image that an edit starts from."""
        return self.images[0][1] if self.images else None


@dataclass(frozen=True, slots=True)
class ModelRun:
    """One expanded model configuration. ``config`` is its provider's config model."""

    label: str
    provider: str
    params: Mapping[str, Any]
    config: Any

    @property
    def stand_in(self) -> bool:
        """Whether its images come from no model at all."""
        return bool(self.config.stand_in)
