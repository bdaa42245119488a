"""Grades the images of a finished run with a changed suite, into a new run. Generates nothing.

Where only rules changed, the cells keep their scores and are evaluated again.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from visioneval.engine.cells.cell import Job, StoredOutput
from visioneval.engine.cells.context import sanitizer_for
from visioneval.engine.cells.turns import call_on_records
from visioneval.engine.prepare.reusable_grades import has_valid_grades
from visioneval.engine.run import Jobs
from visioneval.errors import StorageError
from visioneval.expansion.file_hashes import FileHashes
from visioneval.expansion.keys import HashOf, generation_key, grade_key
from visioneval.expansion.plan import Call, Plan
from visioneval.records.keys import VERDICT_PARTS, changed_parts
from visioneval.records.model import CellError, CellKey, Record
from visioneval.records.questions import NAME as QUESTIONS
from visioneval.types import Status, Verdict

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
    missing = other_prompt = other_files = 0
    planned: set[CellKey] = set()
    for call in plan.calls():
        planned |= {
            (cell_call.case.id, call.run.label, sample)
            for cell_call in (call, *call.dependents)
            for sample in call.samples
        }
        sample_records = [by_cell.get((call.case.id, call.run.label, sample)) for sample in call.samples]
        missing += sample_records.count(None) * (1 + len(call.dependents))
        outputs = [record for record in sample_records if record is not None and record.mime]
        sent = as_recorded(call.sent_prompt)
        other_prompt += sum((record.sent_prompt or record.prompt) != sent for record in outputs)
        keys = ((record.generation_key, generation_key(call, record.sample_index, hash_of)) for record in outputs)
        other_files += sum(not _INPUT_FILES.isdisjoint(changed_parts(*pair)) for pair in keys)
    evaluated = _cells_to_evaluate(plan, by_cell, folder, hash_of) if reuse_scores else frozenset()
    return RegradePlan(
        jobs=lambda part: _regrade_jobs(part, by_cell, folder, name, hash_of, evaluated),
        missing=missing,
        left_out=len(by_cell.keys() - planned),
        other_prompt=other_prompt,
        other_files=other_files,
        evaluated=len(evaluated),
        graded=_count_generated(plan, by_cell) - len(evaluated),
    )


def _count_generated(plan: Plan, by_cell: Mapping[CellKey, Record]) -> int:
    """How many cells of the plan have an output to grade."""
    return sum(
        1 + len(call.dependents)
        for call in plan.calls()
        for sample in call.samples
        if (record := by_cell.get((call.case.id, call.run.label, sample))) and record.status is Status.COMPLETED
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
            generated = by_cell.get((call.case.id, call.run.label, sample))
            if generated is None:
                continue
            graded_call = call_on_records(call, sample, by_cell, folder)
            for cell_call in (graded_call, *graded_call.dependents):
                cell = (cell_call.case.id, call.run.label, sample)
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


def _regrade_jobs(
    plan: Plan,
    by_cell: Mapping[CellKey, Record],
    folder: Path,
    name: str,
    hash_of: HashOf,
    evaluated: Collection[CellKey],
) -> Iterator[Job]:
    def job(call: Call) -> Job:
        regrade = []
        for sample in call.samples:
            record = by_cell.get((call.case.id, call.run.label, sample)) or _missing_record(call, sample, name, hash_of)
            for cell_call in (call, *call.dependents):
                cell = (cell_call.case.id, call.run.label, sample)
                graded = by_cell[cell] if cell in evaluated else None
                regrade.append(StoredOutput(cell_call, record, folder, is_of_another_run=True, graded=graded))
        return Job(call, (), tuple(regrade))

    return (Job.of_turns([job(call) for call in turns]) for turns in plan.chains())


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
