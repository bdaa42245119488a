"""The cells of a run as a comparison needs them, without the fields that only show a single cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from dataclasses import fields as dataclass_fields
from math import fsum

from visioneval.records.model import CellError, CellKey, Fingerprint
from visioneval.records.reader import Records
from visioneval.records.untrusted import Duration, ModelLabel, PathInRun, RuleText, SampleIndex, Usd
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
    never_asked: bool = False
    judges: tuple[CellJudge, ...] = ()


MEASURED = (Verdict.PASS, Verdict.FAIL)
"""The verdicts of measured cells."""


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
    def key(self) -> CellKey:
        """The case, the model run and the sample."""
        return self.test_id, self.model_label, self.sample_index

    @property
    def is_unmeasured(self) -> bool:
        """Whether a grader failed that the cell needs, or a computed metric is null that it needs."""
        is_lost = any(grader.is_unmeasured and not grader.is_optional for grader in self.graders)
        return is_lost or bool(self.unmeasured_metrics)

    @property
    def total_cost_usd(self) -> float | None:
        """The known cost of generation and grading, or ``None`` if none is known."""
        total = self.cost_usd
        for grader in self.graders:
            if grader.cost_usd is not None:
                total = grader.cost_usd if total is None else total + grader.cost_usd
        return total


Cells = Records[Cell]
"""The cells of one side of a comparison."""


@dataclass(slots=True)
class PooledCell(Cell):
    """The same cell in the runs of a baseline, of which ``cells`` has the newest first and ``None`` where one lacks it.

    Its verdict is that of most runs that measured it. A score is the mean over the runs that have it, or their most
    frequent word. The rest is that of the newest run with this verdict.
    """

    cells: tuple[Cell | None, ...] = ()


def pooled_cell(cells: tuple[Cell | None, ...]) -> PooledCell:
    """Pools a cell that the first of some runs has."""
    present = [cell for cell in cells if cell is not None]
    verdicts = [cell.verdict for cell in present]
    passed, failed = verdicts.count(Verdict.PASS), verdicts.count(Verdict.FAIL)
    verdict = verdicts[0]
    if passed or failed:
        verdict = Verdict.PASS if passed > failed else Verdict.FAIL
    typical = next((cell for cell in present if cell.verdict is verdict), present[0])
    values = {
        name: [cell.scores.get(name) for cell in present]
        for name in dict.fromkeys(name for cell in present for name in cell.scores)
    }
    fields = {item.name: getattr(typical, item.name) for item in dataclass_fields(Cell)}
    fields |= {"verdict": verdict, "scores": {name: _mean(scores) for name, scores in values.items()}}
    return PooledCell(**fields, cells=cells)


def newest_cell(cell: Cell) -> Cell:
    """The cell in the newest run that has it."""
    return next(item for item in cell.cells if item is not None) if isinstance(cell, PooledCell) else cell


def _mean(scores: list[Score]) -> Score:
    """The mean; of words, the one of most runs, or else of the newest."""
    if words := [score for score in scores if isinstance(score, str)]:
        return Counter(words).most_common(1)[0][0]
    measured = [score for score in scores if score is not None and not isinstance(score, str)]
    if len(set(measured)) <= 1:
        return measured[0] if measured else None
    return fsum(measured) / len(measured)
