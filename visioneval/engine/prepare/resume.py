"""Decides which cells of a run to generate or grade again on resume, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from visioneval.engine.cells.cell import Job, StoredOutput
from visioneval.engine.cells.turns import call_on_records, is_edit_of
from visioneval.engine.prepare.reusable_grades import has_valid_grades
from visioneval.engine.run import Jobs
from visioneval.expansion.file_hashes import FileHashes
from visioneval.expansion.keys import HashOf, generation_key, grade_key
from visioneval.expansion.plan import Call, Plan
from visioneval.records.cells.changed_outputs import changed_outputs
from visioneval.records.files.links import file_inside
from visioneval.records.keys import VERDICT_PARTS, changed_parts, describe_parts
from visioneval.records.model import CellKey, Record, RunInfo, read_records
from visioneval.records.preferences import forget_preferences
from visioneval.types import Status, Verdict

ResumeAction = Literal["generate", "grade", "evaluate", "keep"]


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
    changed: Mapping[CellKey, str]
    """Cells that are generated again because their output was changed, each with its path."""
    outdated: frozenset[CellKey]
    """Later turns, and cells that use their outputs, whose input will be replaced by another image."""

    @property
    def cells(self) -> int:
        """The number of cells whose record changes."""
        return sum(count for action, count in self.counts.items() if action != "keep")

    def __str__(self) -> str:
        def describe_action(action_name: ResumeAction) -> str:
            counted = self.reasons.items()
            reasons = ", ".join(f"{count} {reason}" for (action, reason), count in counted if action == action_name)
            return f"{self.counts.get(action_name, 0)} ({reasons})" if reasons else "0"

        generate, grade = describe_action("generate"), describe_action("grade")
        evaluate = f"; re-evaluated: {describe_action('evaluate')}" if self.counts.get("evaluate") else ""
        return f"to generate: {generate}; to grade again: {grade}{evaluate}; unchanged: {self.counts.get('keep', 0)}"


def plan_resume(
    plan: Plan,
    records: Iterable[Record],
    folder: Path,
    *,
    keep_errors: bool,
    retry_unusable: bool = False,
    since: float = 0.0,
) -> ResumePlan:
    """Compares the records of the run in ``folder`` with a plan, its input files and its outputs.

    Cells whose generation was answered, and is paid for, without a usable image stay unless ``retry_unusable``.
    Reads only outputs whose files were changed after the POSIX time ``since``.
    """
    by_cell = {record.cell: record for record in records}
    outputs = changed_outputs(by_cell.values(), folder, since)
    changed: dict[CellKey, str] = {}
    outdated: set[CellKey] = set()
    hash_of = FileHashes(plan.folder)
    steps: dict[CellKey, ResumeStep] = {}
    for planned in plan.calls():
        for sample in planned.samples:
            cell = _cell(planned, sample)
            call = call_on_records(planned, sample, by_cell, folder)
            record = by_cell.get(cell)
            keeps_error = keep_errors or (not retry_unusable and record is not None and record.is_unusable)
            step = _step(call, sample, record, folder, hash_of, keep_errors=keeps_error)
            if call.previous is not None and call.run.config.has_outputs:
                is_replaced = steps[_cell(call.previous, sample)].action == "generate"
                outdated |= {_cell(cell_call, sample) for cell_call in (call, *call.dependents) if is_replaced}
                if step.action != "generate":
                    step = _turn_step(call, by_cell[cell], is_replaced=is_replaced) or step
            if cell in outputs and step.action != "generate":
                step, changed[cell] = ResumeStep("generate", "with a changed image file"), outputs[cell]
            steps[cell] = step
            for dependent in call.dependents:
                cell = _cell(dependent, sample)
                if step.action == "generate":
                    steps[cell] = ResumeStep("generate", "use an image that is generated again")
                else:
                    generated = by_cell[_cell(call, sample)]
                    steps[cell] = _grading_step(
                        dependent, generated, by_cell.get(cell), hash_of, folder, keep_errors=keeps_error
                    )
    return ResumePlan(
        jobs=lambda part: _resume_jobs(part, steps, by_cell, folder),
        counts=Counter(step.action for step in steps.values()),
        reasons=Counter((step.action, step.reason) for step in steps.values() if step.action != "keep"),
        stale=frozenset(by_cell.keys() - steps.keys()),
        touched=frozenset(cell for cell, step in steps.items() if step.action in ("generate", "grade")),
        changed=changed,
        outdated=frozenset(outdated & by_cell.keys()),
    )


def forget_changed_pairs(rest: ResumePlan, stored: RunInfo, plan: Plan, folder: Path) -> None:
    """Deletes preferences of pairs whose cells change, or all of them if the pairwise graders or judges changed."""
    suites = stored.suite, plan.whole_suite
    before, after = ([grader for grader in suite.graders if grader.judges_pairs] for suite in suites)
    judges = [[suite.judges.get(name) for grader in before for name in grader.judge_names] for suite in suites]
    cells = rest.touched | rest.stale
    if before != after or judges[0] != judges[1]:
        cells |= {record.cell for record in read_records(folder)}
    forget_preferences(folder, stored.run_id, cells)


def _step(
    call: Call, sample: int, record: Record | None, folder: Path, hash_of: HashOf, *, keep_errors: bool
) -> ResumeStep:
    if record is None:
        return ResumeStep("generate", "not done yet")
    changed = changed_parts(record.generation_key, generation_key(call, sample, hash_of))
    if changed:
        return ResumeStep("generate", f"{describe_parts(changed)} changed")
    if record.status is Status.ERROR:
        return ResumeStep("keep") if keep_errors else ResumeStep("generate", "ended in an error")
    if record.artifact_path and file_inside(folder, record.artifact_path) is None:
        return ResumeStep("generate", "without an image file")
    return _grading_step(call, record, record, hash_of, folder, keep_errors=keep_errors)


def _turn_step(call: Call, record: Record, *, is_replaced: bool) -> ResumeStep | None:
    """The step for a later turn if the image that it edits is, or will be, another one than it edited."""
    if is_replaced:
        return ResumeStep("generate", "edit an image that is generated again")
    if record.status is not Status.ERROR and not is_edit_of(call, record):
        return ResumeStep("generate", "edit an image that has changed")
    return None


def _grading_step(
    call: Call, generated: Record, record: Record | None, hash_of: HashOf, folder: Path, *, keep_errors: bool
) -> ResumeStep:
    """The step for the record of a cell whose output, of the record ``generated``, is unchanged."""
    if record is None:
        return ResumeStep("grade", "not done yet")
    key = grade_key(call, hash_of)
    changed = changed_parts(record.grade_key, key)
    if changed:
        is_graded = changed <= VERDICT_PARTS and has_valid_grades(call, generated, record, key, folder)
        return ResumeStep("evaluate" if is_graded else "grade", f"{describe_parts(changed)} changed")
    if (record.verdict is Verdict.ERROR or record.is_unmeasured) and not keep_errors:
        return ResumeStep("grade", "ended in an error")
    return ResumeStep("keep")


def _cell(call: Call, sample: int) -> CellKey:
    return call.case.id, call.run.label, sample


def _resume_jobs(
    plan: Plan, steps: Mapping[CellKey, ResumeStep], by_cell: Mapping[CellKey, Record], folder: Path
) -> Iterator[Job]:
    for turns in plan.chains():
        jobs = [_resume_job(call, steps, by_cell, folder) for call in turns]
        if any(job.generate or job.regrade for job in jobs):
            yield Job.of_turns(jobs)


def _resume_job(
    call: Call, steps: Mapping[CellKey, ResumeStep], by_cell: Mapping[CellKey, Record], folder: Path
) -> Job:
    generate = tuple(sample for sample in call.samples if steps[_cell(call, sample)].action == "generate")
    regrade = []
    for sample in call.samples:
        record = by_cell.get(_cell(call, sample))
        if record is None:
            continue
        for cell_call in (call, *call.dependents):
            cell = _cell(cell_call, sample)
            if (action := steps[cell].action) in ("grade", "evaluate"):
                graded = by_cell[cell] if action == "evaluate" else None
                regrade.append(StoredOutput(cell_call, record, folder, graded=graded))
    return Job(call, generate, tuple(regrade), unchanged=by_cell.get(_cell(call, call.samples[0])))
