"""Which cells of a plan are generated, graded or evaluated again: in a resumed run, and in a run that grades another.

Where only rules changed, the cells keep their scores and are evaluated again.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from visioneval.errors import StorageError
from visioneval.records.between_cells import forget_preferences
from visioneval.records.key_parts import VERDICT_PARTS, changed_parts, describe_parts
from visioneval.records.model import CellError, CellKey, Record, RunInfo
from visioneval.records.outputs import changed_outputs
from visioneval.records.questions import NAME as QUESTIONS
from visioneval.records.reader import read_records
from visioneval.records.untrusted import file_inside
from visioneval.running.cells.cell import Job, StoredOutput
from visioneval.running.cells.generation import call_on_records, is_edit_of
from visioneval.running.cells.record import saved_files
from visioneval.running.keys import FileHashes, HashOf, generation_key, grade_key
from visioneval.running.plan import Call, Plan
from visioneval.running.sanitize import sanitizer_for
from visioneval.suite.entries.graders import PAIR, of_kind
from visioneval.types import Status, Verdict

Jobs = Callable[[Plan], Iterator[Job]]
"""The jobs of a part of a plan, created on demand."""
ResumeAction = Literal["generate", "grade", "evaluate", "keep"]


def every_cell(plan: Plan) -> Iterator[Job]:
    """The jobs of a new run, which generates every cell."""
    return _jobs(plan, lambda call: Job(call, call.samples))


def _jobs(plan: Plan, job_of: Callable[[Call], Job]) -> Iterator[Job]:
    """The jobs of the calls of a plan, those of a case's turns as one; none where there is nothing to do."""
    for turns in plan.chains():
        jobs = [job_of(call) for call in turns]
        if any(job.generate or job.regrade for job in jobs):
            yield Job.of_turns(jobs)


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
            cell = planned.cell(sample)
            call = call_on_records(planned, sample, by_cell, folder)
            record = by_cell.get(cell)
            keeps_error = keep_errors or (not retry_unusable and record is not None and record.is_unusable)
            step = _step(call, sample, record, folder, hash_of, keep_errors=keeps_error)
            if call.previous is not None and call.run.config.has_outputs:
                is_replaced = steps[call.previous.cell(sample)].action == "generate"
                outdated |= {cell_call.cell(sample) for cell_call in call.with_dependents if is_replaced}
                if step.action == "generate":
                    pass
                elif is_replaced:
                    step = ResumeStep("generate", "edit an image that is generated again")
                elif by_cell[cell].status is not Status.ERROR and not is_edit_of(call, by_cell[cell]):
                    step = ResumeStep("generate", "edit an image that has changed")
            if cell in outputs and step.action != "generate":
                step, changed[cell] = ResumeStep("generate", "with a changed image file"), outputs[cell]
            steps[cell] = step
            for dependent in call.dependents:
                cell = dependent.cell(sample)
                if step.action == "generate":
                    steps[cell] = ResumeStep("generate", "use an image that is generated again")
                else:
                    generated = by_cell[call.cell(sample)]
                    steps[cell] = _grading_step(
                        dependent, generated, by_cell.get(cell), hash_of, folder, keep_errors=keeps_error
                    )
    return ResumePlan(
        jobs=lambda part: _jobs(part, lambda call: _resume_job(call, steps, by_cell, folder)),
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
    before, after = (of_kind(suite.graders, PAIR) for suite in suites)
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


def _resume_job(
    call: Call, steps: Mapping[CellKey, ResumeStep], by_cell: Mapping[CellKey, Record], folder: Path
) -> Job:
    generate = tuple(sample for sample in call.samples if steps[call.cell(sample)].action == "generate")
    regrade = []
    for sample in call.samples:
        record = by_cell.get(call.cell(sample))
        if record is None:
            continue
        for cell_call in call.with_dependents:
            cell = cell_call.cell(sample)
            if (action := steps[cell].action) in ("grade", "evaluate"):
                graded = by_cell[cell] if action == "evaluate" else None
                regrade.append(StoredOutput(cell_call, record, folder, graded=graded))
    return Job(call, generate, tuple(regrade), unchanged=by_cell.get(call.cell(call.samples[0])))


def has_valid_grades(call: Call, generated: Record, graded: Record | None, key: str, folder: Path) -> bool:
    """Whether the scores of ``graded`` are those that the plan's graders would give the output of ``generated``.

    ``key`` is the cell's grading key in the plan, and ``folder`` the run of both records. A cell with a failed grader
    that is or was needed is graded again, and so is a cell that lacks a file of a grader.
    """
    if graded is None or graded.status is not Status.COMPLETED or changed_parts(graded.grade_key, key) - VERDICT_PARTS:
        return False
    if (graded.generation_key, graded.artifact_sha256) != (generated.generation_key, generated.artifact_sha256):
        return False
    needed_failures = (
        grader.is_unmeasured and not (grader.is_optional and grader.key in call.grading.optional_graders)
        for grader in graded.graders
    )
    has_all_graders = {grader.key for grader in graded.graders} == {grader.key for grader in call.grading.graders}
    if not has_all_graders or any(needed_failures):
        return False
    return all(file_inside(folder, name) is not None for name in saved_files(graded))


_INPUT_FILES = frozenset({"images", "masks"})
"""The parts of a generation key that name the files of a case."""


@dataclass(frozen=True, slots=True)
class RegradePlan:
    """The cells to grade. ``missing`` counts cells of the plan that the run lacks, ``left_out`` cells of the run that
    the plan lacks, ``other_prompt`` cells that were generated from another prompt than the plan's, and ``other_files``
    those from other input images or masks. ``evaluated`` counts cells that keep their scores: only their rules are
    evaluated again."""

    jobs: Jobs
    missing: int
    left_out: int
    other_prompt: int
    other_files: int
    evaluated: int = 0
    graded: int = 0
    """Cells whose graders run."""

    def __str__(self) -> str:
        notes = (
            (self.missing, "cells are missing from the source run and become ERROR, because nothing is generated"),
            (self.left_out, "cells of the source run are skipped, because the suite or the flags exclude them"),
            (self.other_prompt, "images were generated from a prompt that has since changed"),
            (self.other_files, "images were generated from input images or masks that have since changed"),
            (self.evaluated, "cells are re-evaluated by the rules with their stored scores: no grader runs"),
        )
        return "; ".join(f"{count} {text}" for count, text in notes if count)


def plan_regrade(
    plan: Plan, records: Iterable[Record], folder: Path, name: str, *, reuse_scores: bool = True
) -> RegradePlan:
    """Compares the records of the run ``name`` in ``folder`` with a plan. Reads no outputs.

    Without ``reuse_scores``, every cell is graded again.
    """
    by_cell = {record.cell: record for record in records}
    as_recorded = sanitizer_for(plan).text
    hash_of = FileHashes(plan.folder)
    missing = other_prompt = other_files = generated = 0
    planned: set[CellKey] = set()
    for call in plan.calls():
        planned |= {cell_call.cell(sample) for cell_call in call.with_dependents for sample in call.samples}
        sample_records = [by_cell.get(call.cell(sample)) for sample in call.samples]
        missing += sample_records.count(None) * len(call.with_dependents)
        outputs = [record for record in sample_records if record is not None and record.mime]
        sent = as_recorded(call.sent_prompt)
        other_prompt += sum((record.sent_prompt or record.prompt) != sent for record in outputs)
        completed = [record for record in sample_records if record is not None and record.status is Status.COMPLETED]
        generated += len(completed) * len(call.with_dependents)
        keys = ((record.generation_key, generation_key(call, record.sample_index, hash_of)) for record in outputs)
        other_files += sum(not _INPUT_FILES.isdisjoint(changed_parts(*pair)) for pair in keys)
    evaluated = _cells_to_evaluate(plan, by_cell, folder, hash_of) if reuse_scores else frozenset()

    def job(call: Call) -> Job:
        regrade = []
        for sample in call.samples:
            record = by_cell.get(call.cell(sample)) or _missing_record(call, sample, name, hash_of)
            for cell_call in call.with_dependents:
                cell = cell_call.cell(sample)
                graded = by_cell[cell] if cell in evaluated else None
                regrade.append(StoredOutput(cell_call, record, folder, is_of_another_run=True, graded=graded))
        return Job(call, (), tuple(regrade))

    return RegradePlan(
        jobs=lambda part: _jobs(part, job),
        missing=missing,
        left_out=len(by_cell.keys() - planned),
        other_prompt=other_prompt,
        other_files=other_files,
        evaluated=len(evaluated),
        graded=generated - len(evaluated),
    )


def _cells_to_evaluate(
    plan: Plan, by_cell: Mapping[CellKey, Record], folder: Path, hash_of: HashOf
) -> frozenset[CellKey]:
    """The cells with valid grades; none if no rule of any of them changed, as there is no other reason to grade again.

    The code of a grader may be newer than its scores, for example.
    """
    cells: set[CellKey] = set()
    is_rule_changed = False
    for call in plan.calls():
        for sample in call.samples:
            generated = by_cell.get(call.cell(sample))
            if generated is None:
                continue
            graded_call = call_on_records(call, sample, by_cell, folder)
            for cell_call in graded_call.with_dependents:
                cell = cell_call.cell(sample)
                key, graded = grade_key(cell_call, hash_of), by_cell.get(cell)
                if graded is not None and has_valid_grades(cell_call, generated, graded, key, folder):
                    cells.add(cell)
                    is_rule_changed |= not VERDICT_PARTS.isdisjoint(changed_parts(graded.grade_key, key))
    return frozenset(cells) if is_rule_changed else frozenset()


def copy_questions(source: Path, folder: Path) -> None:
    """Copies the questions of the source run, so that the new run asks the same questions."""
    if not (source / QUESTIONS).is_file():
        return
    try:
        shutil.copyfile(source / QUESTIONS, folder / QUESTIONS)
    except OSError as error:
        raise StorageError(f"{folder / QUESTIONS}: cannot write: {error.strerror or error}") from error


def _missing_record(call: Call, sample: int, name: str, hash_of: HashOf) -> Record:
    """A placeholder record for a cell that the source run lacks."""
    message = f"not in the source run {name}: 'visioneval grade' generates no images"
    return Record(
        run_id=name,
        test_id=call.case.id,
        model_label=call.run.label,
        sample_index=sample,
        task_type=call.task_type,
        prompt=call.prompt,
        provider=call.run.provider,
        status=Status.ERROR,
        verdict=Verdict.ERROR,
        error=CellError(stage="generate", kind="missing_output", message=message),
        generation_key=generation_key(call, sample, hash_of),
        grade_key="",
    )
