"""The steps of a job: generate, store each image, grade it, judge it, and build its record.

The steps raise only ``StoppedError``: any other error of a cell becomes part of its record.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from visioneval.errors import ImageError
from visioneval.media import images
from visioneval.media.video import artifact
from visioneval.records.model import CellError, Record
from visioneval.records.untrusted import file_inside, is_inside
from visioneval.running.calls.calls import GenerationResult
from visioneval.running.cells.generation import (
    call_on_output,
    generate,
    is_edit_of,
    mask_error,
    other_input,
    store_output,
)
from visioneval.running.cells.grading import CellGrades, GradedOutput, grade
from visioneval.running.cells.record import (
    CallOutcome,
    built_in_scores,
    case_fields,
    cell_scores,
    judged_record,
    prompt_of_output,
    refused_record,
    rule_texts,
    stored_grades,
)
from visioneval.running.cells.services import Services
from visioneval.running.keys import grade_key
from visioneval.running.plan import Call
from visioneval.suite.metrics import BUILT_IN
from visioneval.suite.runs import address_of
from visioneval.threads import finish_in_thread, primary_error
from visioneval.types import Output, Score, Status, Verdict


@dataclass(frozen=True, slots=True)
class StoredOutput:
    """An existing output: the call that grades it, the record of its generation, and the folder of its run."""

    call: Call
    record: Record
    folder: Path
    is_new: bool = False
    """Whether it was just generated, so that its file needs no check."""
    is_of_another_run: bool = False
    """Whether another run generated it and paid for it."""
    graded: Record | None = None
    """The record of this cell, if its grades are still valid and only the rules are to be evaluated again."""
    error: CellError | None = None
    """Why it cannot be graded: it is a later turn, and the image that it edits is unknown."""


@dataclass(frozen=True, slots=True)
class Job:
    """The work of a call: the samples to generate, and the existing outputs to grade."""

    call: Call
    generate: tuple[int, ...]
    regrade: tuple[StoredOutput, ...] = ()
    unchanged: Record | None = None
    """The record of its cell, if there is nothing to do but later turns may edit its output."""
    next_turn: Job | None = None
    """The job of the next turn. It begins when this one is done, as it edits its output."""

    @classmethod
    def of_turns(cls, jobs: Sequence[Job]) -> Job:
        """The first of the jobs of a case's turns, each linked to the next."""
        *before, job = jobs
        for previous in reversed(before):
            job = replace(previous, next_turn=job)
        return job


async def run_job(job: Job, services: Services) -> AsyncIterator[Record]:
    """Runs a job, then those of its later turns, and yields the records of their cells as they finish.

    A cell that fails does not stop the others, because their calls may be in flight and paid for. Raises only
    ``StoppedError``, after all other cells of a turn have finished.
    """
    previous: Record | None = None
    turn: Job | None = job
    while turn is not None:
        latest, errors = turn.unchanged, list[Exception]()
        tasks = await _start_turn(turn, previous, services)
        try:
            for done in asyncio.as_completed(tasks):
                try:
                    record = await done
                except Exception as error:
                    errors.append(error)
                    continue
                latest = record if record.test_id == turn.call.case.id else latest
                yield record
        finally:
            for task in tasks:
                task.cancel()
        if errors:
            raise primary_error(errors)
        previous, turn = latest, turn.next_turn


async def _start_turn(job: Job, previous: Record | None, services: Services) -> list[asyncio.Task[Record]]:
    """Generates for one call, on the output of the ``previous`` turn if it is a later turn, and starts its cells."""
    error: CellError | None = None
    if job.call.needs_base and (job.generate or job.regrade):
        job, error = await asyncio.to_thread(_on_output, job, previous, services)
    deadline = asyncio.get_running_loop().time() + services.plan.suite.cell_timeout_s
    cells: list[Awaitable[Record]] = []
    if job.generate:
        outcome = CallOutcome(GenerationResult(attempts=0), error)
        if error is None:
            outcome = await generate(job.call, job.generate, services, deadline)
        for sample in job.generate:
            generated = asyncio.ensure_future(_finish_cell(job.call, sample, outcome, services, deadline))
            cells += [generated]
            cells += [_grade_dependent(user, generated, services, deadline) for user in job.call.dependents]
    cells += [regrade_output(stored, services, deadline) for stored in job.regrade]
    return [asyncio.ensure_future(cell) for cell in cells]


def _on_output(job: Job, previous: Record | None, services: Services) -> tuple[Job, CellError | None]:
    """The job of a later turn on the output of the previous one, or the error that all of its cells end in."""
    call = call_on_output(job.call, previous, services.writer.folder)
    error = call if isinstance(call, CellError) else mask_error(call)
    if isinstance(call, CellError):
        call = job.call
    regrade = []
    for stored in job.regrade:
        if call.base is None or error is not None:
            regrade.append(replace(stored, error=error))
        elif not is_edit_of(call, stored.record):
            regrade.append(replace(stored, error=other_input(call)))
        else:
            regrade.append(replace(stored, call=stored.call.with_base(call.base)))
    return replace(job, call=call, regrade=tuple(regrade)), error


async def _grade_dependent(
    dependent: Call, generated: asyncio.Task[Record], services: Services, deadline: float
) -> Record:
    """Grades a cell that uses the image of another cell."""
    stored = StoredOutput(dependent, await generated, services.writer.folder, is_new=True)
    return await regrade_output(stored, services, deadline)


async def _finish_cell(call: Call, sample: int, outcome: CallOutcome, services: Services, deadline: float) -> Record:
    """Stores and grades one cell of a call, and builds its record."""
    generated = outcome.generated
    make_record, stored = await finish_in_thread(store_output, call, sample, outcome, services)
    if isinstance(stored, Record):
        return stored
    graded = GradedOutput(call, sample, stored, generated.run_params or call.params, deadline)
    return await _graded_record(graded, make_record, services, built_in_scores(call, make_record.keywords, {}))


async def regrade_output(existing: StoredOutput, services: Services, deadline: float) -> Record:
    """Grades an existing output and builds its new record; the generation fields stay the same."""
    call, record = existing.call, existing.record
    await services.hash_of.prepare(call.key_files)
    make_record = partial(
        Record,
        **{name: getattr(record, name) for name in _GENERATION_FIELDS},
        **case_fields(call, services),
        sent_prompt=prompt_of_output(call, record, services),
        run_id=services.writer.info.run_id,
        sample_index=record.sample_index,
        grade_key=grade_key(call, services.hash_of),
        reply_path=await asyncio.to_thread(_copied_reply, existing, services) if record.reply_path else None,
    )
    if record.test_id != call.case.id or existing.is_of_another_run:
        free = None if record.cost_usd is None else 0.0
        make_record = partial(make_record, usage=None, cost_usd=free, seconds=0.0, waited_seconds=0.0, attempts=0)
    if record.status is Status.REFUSED:
        return refused_record(call, record.reasons.get("refused", ""), make_record)
    has_failed = record.status is Status.ERROR and record.mime is None
    image: Output | CellError | None = record.error if has_failed else existing.error
    if image is None and not has_failed:
        image = await asyncio.to_thread(_load_output, existing, services)
    if has_failed or isinstance(image, CellError):
        return make_record(status=Status.ERROR, verdict=Verdict.ERROR, error=image)
    grades = None
    if existing.graded is not None:
        grades = await asyncio.to_thread(stored_grades, call, existing.graded, existing.folder, services)
    built_in = {}
    if record.test_id == call.case.id:
        built_in = built_in_scores(call, {name: getattr(record, name) for name in BUILT_IN}, record.scores)
    graded = GradedOutput(call, record.sample_index, image, record.run_params or call.params, deadline)
    return await _graded_record(graded, make_record, services, built_in, grades)


def _copied_reply(existing: StoredOutput, services: Services) -> str | None:
    """The path of the raw answer that a record names, copied to this run's folder if needed; ``None`` if it is gone."""
    record = existing.record
    if existing.folder == services.writer.folder:
        return record.reply_path
    source = file_inside(existing.folder, record.reply_path)
    if source is None:
        return None
    name = str(record.reply_path).rpartition("/")[2]
    return services.writer.save(record.test_id, record.model_label, name, source.read_bytes())


def _load_output(existing: StoredOutput, services: Services) -> Output | CellError | None:
    """The image of a record, copied to this run's folder if needed."""
    record = existing.record
    if record.mime is None:
        return None
    # reading a bucket uses the user's credentials
    address = address_of(record.run_params) if services.plan.trusted else None
    facts = (record.artifact_sha256 or "", record.mime, record.width or 0, record.height or 0, address)
    if record.artifact_path is None:
        if address is None:
            return _bad_image(existing, "is in a bucket: pass --trust-suite to read it")
        return Output(Path(), *facts)
    target = services.writer.folder / record.artifact_path
    if existing.is_new:
        return Output(target, *facts)
    if not is_inside(existing.folder, record.artifact_path):
        return _bad_image(existing, "is a link to a file outside the run")
    path = existing.folder / record.artifact_path
    try:
        data = path.read_bytes()
    except OSError as error:
        return _bad_image(existing, f"cannot be read: {error.strerror}")
    if images.sha256(data) != record.artifact_sha256:
        return _bad_image(existing, "was changed after it was generated")
    try:
        artifact(data, existing.call.task_type)
    except ImageError as error:
        return _bad_image(existing, str(error), error.kind)
    if path != target:
        source = None if path.is_symlink() else path
        saved = services.writer.save(record.test_id, record.model_label, target.name, data, source=source)
        target = services.writer.folder / saved
    return Output(target, *facts)


def _bad_image(existing: StoredOutput, what: str, kind: str = "bad_image") -> CellError:
    name = existing.record.artifact_path or str(existing.record.shown_params.get("path", "the image"))
    return CellError(stage="generate", kind=kind, message=f"{name}: {what}")


async def _graded_record(
    graded: GradedOutput,
    make_record: partial[Record],
    services: Services,
    built_in: Mapping[str, Score],
    grades: CellGrades | None = None,
) -> Record:
    """Grades a stored output and builds its record.

    With ``grades``, only computes the suite's metrics and evaluates the rules. ``built_in`` are the built-in metrics
    that are known.
    """
    call, output = graded.call, graded.output
    make_record = partial(make_record, status=Status.COMPLETED)
    if output is not None:
        is_local = output.path != Path()
        make_record = partial(
            make_record,
            artifact_path=str(output.path).removeprefix(f"{services.writer.folder}/") if is_local else None,
            artifact_sha256=output.sha256 or None,
            mime=output.mime,
            width=output.width or None,
            height=output.height or None,
        )
        if call.case.expect.refusal:
            return make_record(verdict=Verdict.FAIL, failed_rules=("expect.refusal",), skipped_rules=rule_texts(call))
    if grades is None:
        grades = await grade(graded, services)
    is_ungraded = not services.plan.whole_suite.has_rules
    return judged_record(call, grades, cell_scores(call, grades, built_in), make_record, is_ungraded=is_ungraded)


_GENERATION_FIELDS = (
    "provider", "run_params", "usage", "cost_usd", "seconds", "waited_seconds", "attempts", "cached", "generation_key",
    "reply_note",
)  # fmt: skip
