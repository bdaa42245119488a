"""The answers of a panel: what each judge of a grader answered about one output."""

from __future__ import annotations

from pydantic import Field

from visioneval.records import fields
from visioneval.types import Frozen, Score


class JudgeAnswer(Frozen):
    """The answer of one judge of a panel, after its votes were combined. A score is ``None`` if it was not measured."""

    judge: str
    """Its key under ``judges``."""
    model: str | None = None
    """The model that answered."""
    scores: dict[str, Score] = Field(default_factory=dict)
    reasons: dict[str, str] = Field(default_factory=dict)
    failure_tags: tuple[str, ...] = ()
    error: str | None = None
    never_asked: bool = False
    """Whether a question was not asked at all: offline, or beyond the budget. All its scores are then ``None``."""
    details: fields.JsonObject = Field(default_factory=dict)
    usage: dict[str, fields.Amount] | None = None
    cost_usd: fields.Usd | None = None
    cached: bool = False
    refused: int = Field(default=0, ge=0)
    """How many of its questions it refused."""

    @property
    def is_unmeasured(self) -> bool:
        """Whether it failed to measure a metric."""
        return self.error is not None or not self.is_complete

    @property
    def is_complete(self) -> bool:
        """Whether it measured every metric."""
        return bool(self.scores) and None not in self.scores.values()
