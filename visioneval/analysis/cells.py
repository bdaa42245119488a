"""What a comparison keeps of a run: its cells, without what only a reader of one cell needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from visioneval.records import GraderRecord, Record, RunInfo, RunState
from visioneval.types import Metric, Score, Verdict

MUST_PASS = "must_pass"  # noqa: S105 - a tag, not a password


class Mark(NamedTuple):
    """A grader of a cell and what its scores depend on beside the picture. Cells share equal ones."""

    key: str
    type: str
    judge_model: str | None
    template: str | None
    schema: str | None
    config: str
    tools: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, grader: GraderRecord) -> Mark:
        """The mark that a grader left in a record."""
        own = grader.fingerprint
        tools = tuple(sorted(own.tool_versions.items()))
        return cls(
            grader.key,
            grader.type,
            own.judge_model,
            own.template_sha256,
            own.schema_sha256,
            own.config_sha256,
            tools,
        )


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of one side. ``artifact_path`` is from the run's folder; costs are in USD, of drawing and grading."""

    test_id: str
    model_label: str
    sample_index: int
    verdict: Verdict
    scores: Mapping[str, Score] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    prompt: str = ""
    tags: tuple[str, ...] = ()
    flaky: bool = False
    failed_rules: tuple[str, ...] = ()
    failure_tags: tuple[str, ...] = ()
    error: str | None = None
    artifact_path: str | None = None
    artifact_sha256: str | None = None
    cost_usd: float | None = None
    seconds: float | None = None
    grade_key: str = ""
    marks: tuple[Mark, ...] = ()

    @classmethod
    def of(cls, record: Record) -> Cell:
        """What is kept of a record."""
        known = [cost for cost in (record.cost_usd, *(one.cost_usd for one in record.graders)) if cost is not None]
        error = record.error
        return cls(
            test_id=record.test_id,
            model_label=record.model_label,
            sample_index=record.sample_index,
            verdict=record.verdict,
            scores=record.scores,
            reasons=record.reasons,
            prompt=record.prompt,
            tags=record.tags,
            flaky=record.flaky,
            failed_rules=record.failed_rules,
            failure_tags=record.failure_tags,
            error=f"{error.stage}, {error.kind}: {error.message}" if error else None,
            artifact_path=record.artifact_path,
            artifact_sha256=record.artifact_sha256,
            cost_usd=sum(known) if known else None,
            seconds=record.seconds,
            grade_key=record.grade_key,
            marks=tuple(map(Mark.of, record.graders)),
        )


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs that are compared.

    ``writers`` names the grader of each metric, by key. ``suite``, ``source_sha256`` and ``state`` are ``None`` where
    there is only a file of records; ``folder``, which holds the pictures, is ``None`` for that and for a baseline.
    """

    name: str
    cells: Sequence[Cell]
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    writers: Mapping[str, str] = field(default_factory=dict)
    suite: str | None = None
    source_sha256: str | None = None
    state: RunState | None = None
    planned_cells: int | None = None
    folder: Path | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """The model runs of its cells, in order."""
        return tuple(dict.fromkeys(cell.model_label for cell in self.cells))


def writers_of(info: RunInfo) -> dict[str, str]:
    """The key of the grader that writes each metric of a run."""
    found: dict[str, str] = {}
    for case in info.suite.cases:
        for grader in info.suite.graders:
            found.update(dict.fromkeys(grader.metrics(case), grader.key))
    return found


def guessed_metrics(cells: Sequence[Cell]) -> dict[str, Metric]:
    """The metrics of cells of which no ``run.json`` tells: their types by their scores, their direction not known."""
    found: dict[str, Metric] = {}
    for cell in cells:
        for name, score in cell.scores.items():
            if score is not None and name not in found:
                kind = "bool" if isinstance(score, bool) else "number"
                found[name] = Metric.model_validate({"type": kind, "better": "none"})
    return found
