"""The verdict of a graded cell, and its record."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from visioneval.engine.cells.grading import CellGrades
from visioneval.engine.cells.suite_metrics import CellScores
from visioneval.expansion.plan import Call
from visioneval.records.model import CellError, Record
from visioneval.rules import CellVerdict, judge_cell
from visioneval.types import Verdict


def judged_record(
    call: Call, graded: CellGrades, cell: CellScores, make_record: partial[Record], *, is_ungraded: bool
) -> Record:
    """Applies the rules to all scores of a cell and completes its record."""
    verdict = judge_cell(
        call.rules,
        cell.scores,
        failed_graders=(*graded.failed_graders, *cell.unmeasured),
        optional_metrics=cell.optional,
        is_ungraded=is_ungraded,
    )
    return make_record(
        verdict=verdict.verdict,
        failed_rules=verdict.failed,
        warned_rules=verdict.warned,
        skipped_rules=verdict.skipped,
        scores=cell.scores,
        unmeasured_metrics=cell.unmeasured,
        reasons=graded.reasons | cell.reasons,
        failure_tags=graded.failure_tags,
        graders=graded.graders,
        error=_cell_error(graded, cell, verdict, call),
    )


def _cell_error(graded: CellGrades, cell: CellScores, verdict: CellVerdict, call: Call) -> CellError | None:
    """Why the cell has no verdict, or else the error of its first failed grader."""
    if graded.error is not None:
        return _with_hint(graded.error, graded.failed_graders, call)
    if verdict.verdict is not Verdict.ERROR:
        return None
    nulls = (f"{name} ({cell.reasons[name]})" for name in cell.unmeasured)
    if missing := (*verdict.unmeasured, *graded.failed_graders, *nulls):
        return CellError(stage="verdict", kind="unmeasured", message=f"not measured: {', '.join(missing)}")
    message = f"none of the {len(call.rules)} rules of this cell could be evaluated"
    return CellError(stage="verdict", kind="no_rule", message=message)


def _with_hint(error: CellError, failed: Sequence[str], call: Call) -> CellError:
    """Says how a cell can do without a grader, if no rule reads the scores of the one that failed."""
    key = error.message.partition(":")[0]
    metrics = next((grader.metrics(call.case) for grader in call.graders if grader.key == key), {})
    read = {rule.metric for rule, _ in call.rules}.union(*(formula.reads for formula in call.metrics.formulas))
    if key not in failed or not read.isdisjoint(metrics):
        return error
    hint = f"no rule reads its scores: with 'optional: true' on the grader {key!r}, a cell can pass without them"
    return error.model_copy(update={"message": f"{error.message} ({hint})"})
