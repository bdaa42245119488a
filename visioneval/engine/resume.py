"""What is left to do of a run: which cells are generated, which are graded again, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from visioneval.engine.cell import Job, StoredOutput
from visioneval.engine.run import Jobs, hashes
from visioneval.plan import Call, HashOf, Plan, generation_key, grade_key
from visioneval.records.links import file_inside
from visioneval.records.model import CellKey, Record, RunInfo, read_records
from visioneval.records.preferences import forget_preferences
from visioneval.types import Status, Verdict

Act = Literal["generate", "grade", "keep"]


@dataclass(frozen=True, slots=True)
class ResumeStep:
    """What is done about a cell, and why."""

    act: Act
    why: str = ""


@dataclass(frozen=True, slots=True)
class ResumePlan:
    """What is left of a run. ``stale`` are cells that the plan no longer has."""

    jobs: Jobs
    counts: Mapping[Act, int]
    reasons: Mapping[tuple[Act, str], int]
    stale: frozenset[CellKey]
    touched: frozenset[CellKey]
    """Cells that are generated or graded again."""

    @property
    def cells(self) -> int:
        """How many cells there is something to do for."""
        return self.counts.get("generate", 0) + self.counts.get("grade", 0)

    def __str__(self) -> str:
        def told(act: Act) -> str:
            whys = ", ".join(f"{many} {why}" for (each, why), many in self.reasons.items() if each == act)
            return f"{self.counts.get(act, 0)} ({whys})" if whys else "0"

        return f"to generate: {told('generate')}; to grade again: {told('grade')}; kept: {self.counts.get('keep', 0)}"


def plan_resume(plan: Plan, records: Iterable[Record], folder: Path, *, keep_errors: bool) -> ResumePlan:
    """Compares a run's records with a plan. ``folder`` is the run's; nothing is read but the inputs' hashes."""
    by_cell = {record.cell: record for record in records}
    hash_of = hashes(plan.folder)
    steps: dict[CellKey, ResumeStep] = {}
    for call in plan.calls():
        for sample in call.samples:
            cell = _cell(call, sample)
            step = steps[cell] = _step(call, sample, by_cell.get(cell), folder, hash_of, keep_errors=keep_errors)
            for dependent in call.dependents:
                cell = _cell(dependent, sample)
                if step.act == "generate":
                    steps[cell] = ResumeStep("generate", "look at an image that is generated again")
                else:
                    steps[cell] = _dependent_step(dependent, by_cell.get(cell), hash_of, keep_errors=keep_errors)
    return ResumePlan(
        jobs=lambda part: _resume_jobs(part, steps, by_cell, folder),
        counts=Counter(step.act for step in steps.values()),
        reasons=Counter((step.act, step.why) for step in steps.values() if step.act != "keep"),
        stale=frozenset(by_cell.keys() - steps.keys()),
        touched=frozenset(cell for cell, step in steps.items() if step.act != "keep"),
    )


def forget_changed_pairs(rest: ResumePlan, held: RunInfo, plan: Plan, folder: Path) -> None:
    """Takes out what judges said of pairs whose cells change, or of all where they are compared in another way now."""
    before, after = ([each for each in suite.graders if each.after_run] for suite in (held.suite, plan.suite))
    judges = [[suite.judges.get(each.judge_name or "") for each in before] for suite in (held.suite, plan.suite)]
    cells = rest.touched | rest.stale
    if before != after or judges[0] != judges[1]:
        cells |= {record.cell for record in read_records(folder)}
    forget_preferences(folder, held.run_id, cells)


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
        return ResumeStep("generate", "have lost their image")
    changed = changes(record.grade_key, grade_key(call, hash_of))
    if changed:
        return ResumeStep("grade", f"{changed} changed")
    if record.verdict is Verdict.ERROR and not keep_errors:
        return ResumeStep("grade", "ended in an error")
    return ResumeStep("keep")


def _dependent_step(dependent: Call, record: Record | None, hash_of: HashOf, *, keep_errors: bool) -> ResumeStep:
    """What is done about a cell that looks at another one's image, which stays."""
    if record is None:
        return ResumeStep("grade", "not done yet")
    changed = changes(record.grade_key, grade_key(dependent, hash_of))
    if changed:
        return ResumeStep("grade", f"{changed} changed")
    return (
        ResumeStep("grade", "ended in an error")
        if record.verdict is Verdict.ERROR and not keep_errors
        else ResumeStep("keep")
    )


def _cell(call: Call, sample: int) -> CellKey:
    return call.case.id, call.run.label, sample


def changes(old: str, new: str) -> str:
    """The parts in which two keys differ, by name; empty where they are the same."""
    before, after = (dict(word.rpartition(":")[::2] for word in key.split()) for key in (old, new))
    return " and ".join(sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)))


def _resume_jobs(
    plan: Plan, steps: Mapping[CellKey, ResumeStep], by_cell: Mapping[CellKey, Record], folder: Path
) -> Iterator[Job]:
    for call in plan.calls():
        generate = tuple(sample for sample in call.samples if steps[_cell(call, sample)].act == "generate")
        regrade = []
        for sample in call.samples:
            shown = by_cell.get(_cell(call, sample))
            graded = (each for each in (call, *call.dependents) if steps[_cell(each, sample)].act == "grade")
            if shown is not None:
                regrade += [StoredOutput(each, shown, folder) for each in graded]
        if generate or regrade:
            yield Job(call, generate, tuple(regrade))
