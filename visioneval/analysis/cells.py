"""The cells of a run as a comparison needs them, without the fields that only show a single cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from visioneval.records.fields import Duration, ModelLabel, PathInRun, RuleText, SampleIndex, Usd
from visioneval.records.model import CellError, Fingerprint
from visioneval.suite.cases.case import CaseId
from visioneval.types import Score, Verdict


@dataclass(slots=True)
class CellJudge:
    """A judge of a panel that answered about a cell."""

    judge: str
    model: str | None = None


@dataclass(slots=True)
class CellGrader:
    """A grader of a cell, with the fingerprint of everything but the image that its scores depend on."""

    key: str
    type: str
    fingerprint: Fingerprint
    cost_usd: Usd | None = None
    is_unmeasured: bool = False
    is_optional: bool = False
    judges: tuple[CellJudge, ...] = ()


@dataclass(slots=True)
class Cell:
    """One cell of one side. Field names are those of its record.

    Nothing changes it, but it is not frozen, as that doubles the time to create it.
    """

    test_id: CaseId
    model_label: ModelLabel
    sample_index: SampleIndex
    verdict: Verdict
    scores: Mapping[str, Score] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    prompt: str = ""
    sent_prompt: str | None = None
    tags: tuple[str, ...] = ()
    flaky: bool = False
    unmeasured_metrics: tuple[str, ...] = ()
    failed_rules: tuple[RuleText, ...] = ()
    failure_tags: tuple[str, ...] = ()
    error: CellError | None = None
    artifact_path: PathInRun | None = None
    artifact_sha256: str | None = None
    provider: str = ""
    cost_usd: Usd | None = None
    seconds: Duration | None = None
    attempts: int | None = None
    grade_key: str = ""
    graders: tuple[CellGrader, ...] = ()

    @property
    def is_unmeasured(self) -> bool:
        """Whether a grader failed that the cell needs, or a computed metric is null that it needs."""
        for grader in self.graders:  # a loop, which is faster than any()
            if grader.is_unmeasured and not grader.is_optional:
                return True
        return bool(self.unmeasured_metrics)

    @property
    def total_cost_usd(self) -> float | None:
        """The known cost of generation and grading, or ``None`` if none is known."""
        total = self.cost_usd
        for grader in self.graders:
            if grader.cost_usd is not None:
                total = grader.cost_usd if total is None else total + grader.cost_usd
        return total
