"""Decides which cells of a run to generate or grade again on resume, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from visioneval.engine.cells.cell import Job, StoredOutput
from visioneval.engine.run import Jobs, hashes
from visioneval.expansion import Call, HashOf, Plan, generation_key, grade_key
from visioneval.records.links import file_inside
from visioneval.records.model import CellKey, Record, RunInfo, read_records
from visioneval.records.preferences import forget_preferences
from visioneval.types import Status, Verdict

ResumeAction = Literal["generate", "grade", "keep"]


@dataclass(frozen=True, slots=True)
class ResumeStep:
    """The action for one cell, and the reason for it."""

    action: ResumeAction
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ResumePlan:
    """The remaining work of a run. ``stale`` cells are no longer in the plan."""

    jobs: Jobs
    counts: Mapping[ResumeAction, int]
    reasons: Mapping[tuple[ResumeAction, str], int]
    stale: frozenset[CellKey]
    touched: frozenset[CellKey]
    """Cells that will be generated or graded again."""

    @property
    def cells(self) -> int:
        """The number of cells to generate or grade again."""
        return self.counts.get("generate", 0) + self.counts.get("grade", 0)

    def __str__(self) -> str:
        def describe_action(action_name: ResumeAction) -> str:
            counted = self.reasons.items()
            reasons = ", ".join(f"{count} {reason}" for (action, reason), count in counted if action == action_name)
            return f"{self.counts.get(action_name, 0)} ({reasons})" if reasons else "0"

        generate, grade = describe_action("generate"), describe_action("grade")
        return f"to generate: {generate}; to grade again: {grade}; unchanged: {self.counts.get('keep', 0)}"


def plan_resume(plan: Plan, records: Iterable[Record], folder: Path, *, keep_errors: bool) -> ResumePlan:
    """Compares the records of the run in ``folder`` with a plan. Reads no images, only the hashes of input files."""
    by_cell = {record.cell: record for record in records}
    hash_of = hashes(plan.folder)
    steps: dict[CellKey, ResumeStep] = {}
    for call in plan.calls():
        for sample in call.samples:
            cell = _cell(call, sample)
            step = steps[cell] = _step(call, sample, by_cell.get(cell), folder, hash_of, keep_errors=keep_errors)
            for dependent in call.dependents:
                cell = _cell(dependent, sample)
                if step.action == "generate":
                    steps[cell] = ResumeStep("generate", "use an image that is generated again")
                else:
                    steps[cell] = _dependent_step(dependent, by_cell.get(cell), hash_of, keep_errors=keep_errors)
    return ResumePlan(
        jobs=lambda part: _resume_jobs(part, steps, by_cell, folder),
        counts=Counter(step.action for step in steps.values()),
        reasons=Counter((step.action, step.reason) for step in steps.values() if step.action != "keep"),
        stale=frozenset(by_cell.keys() - steps.keys()),
        touched=frozenset(cell for cell, step in steps.items() if step.action != "keep"),
    )


def forget_changed_pairs(rest: ResumePlan, stored: RunInfo, plan: Plan, folder: Path) -> None:
    """Deletes preferences of pairs whose cells change, or all of them if the pairwise graders or judges changed."""
    suites = stored.suite, plan.whole_suite
    before, after = ([grader for grader in suite.graders if grader.after_run] for suite in suites)
    judges = [[suite.judges.get(grader.judge_name or "") for grader in before] for suite in suites]
    cells = rest.touched | rest.stale
    if before != after or judges[0] != judges[1]:
        cells |= {record.cell for record in read_records(folder)}
    forget_preferences(folder, stored.run_id, cells)


def _step(
    call: Call, sample: int, record: Record | None, folder: Path, hash_of: HashOf, *, keep_errors: bool
) -> ResumeStep:
    if record is None:
        return ResumeStep("generate", "not done yet")
    changed = changes(record.generation_key, generation_key(call, sample, hash_of))
    if changed:
        return ResumeStep("generate", f"{changed} changed")
    if record.status is Status.ERROR:
        return ResumeStep("keep") if keep_errors else ResumeStep("generate", "ended in an error")
    if record.artifact_path and file_inside(folder, record.artifact_path) is None:
        return ResumeStep("generate", "without an image file")
    changed = changes(record.grade_key, grade_key(call, hash_of))
    if changed:
        return ResumeStep("grade", f"{changed} changed")
    if (record.verdict is Verdict.ERROR or record.is_unmeasured) and not keep_errors:
        return ResumeStep("grade", "ended in an error")
    return ResumeStep("keep")


def _dependent_step(dependent: Call, record: Record | None, hash_of: HashOf, *, keep_errors: bool) -> ResumeStep:
    """The step for a cell that uses the unchanged image of another cell."""
    if record is None:
        return ResumeStep("grade", "not done yet")
    changed = changes(record.grade_key, grade_key(dependent, hash_of))
    if changed:
        return ResumeStep("grade", f"{changed} changed")
    return (
        ResumeStep("grade", "ended in an error")
        if (record.verdict is Verdict.ERROR or record.is_unmeasured) and not keep_errors
        else ResumeStep("keep")
    )


def _cell(call: Call, sample: int) -> CellKey:
    return call.case.id, call.run.label, sample


def changes(old: str, new: str) -> str:
    """The names of the parts in which two keys differ; empty if the keys are equal."""
    before, after = (dict(word.rpartition(":")[::2] for word in key.split()) for key in (old, new))
    return " and ".join(sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)))


def _resume_jobs(
    plan: Plan, steps: Mapping[CellKey, ResumeStep], by_cell: Mapping[CellKey, Record], folder: Path
) -> Iterator[Job]:
    for call in plan.calls():
        generate = tuple(sample for sample in call.samples if steps[_cell(call, sample)].action == "generate")
        regrade = []
        for sample in call.samples:
            record = by_cell.get(_cell(call, sample))
            calls = (
                cell_call for cell_call in (call, *call.dependents) if steps[_cell(cell_call, sample)].action == "grade"
            )
            if record is not None:
                regrade += [StoredOutput(cell_call, record, folder) for cell_call in calls]
        if generate or regrade:
            yield Job(call, generate, tuple(regrade))
