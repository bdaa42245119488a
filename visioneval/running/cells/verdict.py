"""From the grades of a cell to all of its scores, its verdict and its record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from visioneval.expressions.tree import DIGITS, NotForCellError, NoValueError, evaluate
from visioneval.records.model import CellError, Record
from visioneval.rules import CellVerdict, judge_cell
from visioneval.running.cells.grading import CellGrades
from visioneval.running.plan import Call
from visioneval.suite.filters import BUILT_IN
from visioneval.suite.metrics import Formula
from visioneval.types import Score, Verdict


@dataclass(frozen=True, slots=True)
class CellScores:
    """All scores of a cell. ``reasons`` names what a computed metric was computed from, or why it is null.

    ``optional`` are the metrics that may be null, and ``unmeasured`` the other computed metrics that are null.
    """

    scores: dict[str, Score]
    reasons: dict[str, str]
    optional: frozenset[str]
    unmeasured: tuple[str, ...]


def cell_scores(call: Call, grades: CellGrades, built_in: Mapping[str, Score]) -> CellScores:
    """Adds the built-in and computed metrics of a cell to its graders' scores.

    ``built_in`` are those that are known of the generation.
    """
    scores = grades.scores | {name: built_in[name] for name in call.grading.metrics.built_in if name in built_in}
    graders = (grader for grader in call.grading.graders if grader.key in call.grading.optional_graders)
    optional = {metric for grader in graders for metric in grader.metrics(call.case)} | call.grading.optional_metrics
    reasons: dict[str, str] = {}
    unmeasured: list[str] = []
    for formula in call.grading.metrics.formulas:
        try:
            scores[formula.name] = _value(formula, scores)
            reasons[formula.name] = ", ".join(
                f"{name} {_shown(scores[name])}" for name in formula.reads if scores.get(name) is not None
            )
        except NotForCellError:
            continue
        except NoValueError as error:
            scores[formula.name], reasons[formula.name] = None, str(error)
            if error.sources and error.sources <= optional:
                optional.add(formula.name)
            elif formula.name not in optional:
                unmeasured.append(formula.name)
    return CellScores(scores, reasons, frozenset(optional), tuple(unmeasured))


def _shown(score: Score) -> str:
    return ("no", "yes")[score] if isinstance(score, bool) else f"{score:.6g}"


def _value(formula: Formula, scores: Mapping[str, Score]) -> Score:
    """The value of a computed metric, of its type. Raises what ``evaluate`` raises."""
    value = evaluate(formula.tree, scores)
    if formula.metric.type == "bool":
        return bool(value)
    number = round(float(value), DIGITS) + 0.0  # without a negative zero
    low, high = formula.metric.range or (None, None)
    if (low is not None and number < low) or (high is not None and number > high):
        raise NoValueError(f"{number:g} is outside the range {low:g} to {'any' if high is None else f'{high:g}'}")
    return number


def built_in_scores(call: Call, generation: Mapping[str, Any], scores: Mapping[str, Score]) -> dict[str, Score]:
    """The built-in metrics of the generation of a cell's output, from the fields of its record.

    Empty if nothing was generated, as the output comes from a cache or a file. If it was graded again, only ``scores``,
    those of the record of its generation, may still contain them.
    """
    if call.run.config.reads_outputs:
        return {}
    if generation["attempts"] == 0:
        return {name: scores[name] for name in BUILT_IN if name in scores}
    free = {"cost_usd": 0.0} if call.run.config.is_free and generation["cost_usd"] is None else {}
    return {name: generation[name] for name in BUILT_IN} | free


def judged_record(
    call: Call, graded: CellGrades, cell: CellScores, make_record: partial[Record], *, is_ungraded: bool
) -> Record:
    """Applies the rules to all scores of a cell and completes its record."""
    verdict = judge_cell(
        call.grading.rules,
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
    message = f"none of the {len(call.grading.rules)} rules of this cell could be evaluated"
    return CellError(stage="verdict", kind="no_rule", message=message)


def _with_hint(error: CellError, failed: Sequence[str], call: Call) -> CellError:
    """Says how a cell can do without a grader, if no rule reads the scores of the one that failed."""
    key = error.message.partition(":")[0]
    metrics = next((grader.metrics(call.case) for grader in call.grading.graders if grader.key == key), {})
    read = {rule.metric for rule, _ in call.grading.rules}.union(
        *(formula.reads for formula in call.grading.metrics.formulas)
    )
    if key not in failed or not read.isdisjoint(metrics):
        return error
    hint = f"no rule reads its scores: with 'optional: true' on the grader {key!r}, a cell can pass without them"
    return error.model_copy(update={"message": f"{error.message} ({hint})"})
