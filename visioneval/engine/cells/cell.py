"""The steps of one generation call: generate, store each image, grade it, judge it, and build its record.

The steps raise only ``StoppedError``: any other error of a cell becomes part of its record.
"""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from visioneval.aio import primary_error
from visioneval.engine.calls.asking import raise_if_stopping
from visioneval.engine.calls.calls import GenerationResult
from visioneval.engine.calls.throttle import Tries
from visioneval.engine.calls.user_code import describe_error
from visioneval.engine.cells.cell_record import (
    CallOutcome,
    case_fields,
    error_record,
    has_reply,
    prompt_of_output,
    record_maker,
    refused_record,
    rule_texts,
)
from visioneval.engine.cells.context import RunContext
from visioneval.engine.cells.grading import CellGrades, grade
from visioneval.engine.cells.stored_grades import stored_grades
from visioneval.engine.cells.suite_metrics import built_in_scores, cell_scores
from visioneval.engine.cells.turns import call_on_output, is_edit_of, mask_error, other_input
from visioneval.engine.cells.verdicts import judged_record
from visioneval.errors import ImageError, ProviderError, StoppedError
from visioneval.expansion.keys import grade_key
from visioneval.expansion.plan import Call
from visioneval.media import images
from visioneval.media.formats import artifact, ending
from visioneval.providers.base import GenerationRequest
from visioneval.records.cells.operations import DownloadFiles, OperationFile
from visioneval.records.files.links import file_inside, is_inside
from visioneval.records.model import CellError, Record
from visioneval.stopwatch import Stopwatch
from visioneval.suite.entries.metrics import BUILT_IN
from visioneval.suite.remote_media import address_of
from visioneval.threads import finish_in_thread
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


async def run_job(job: Job, context: RunContext) -> AsyncIterator[Record]:
    """Runs a job, then those of its later turns, and yields the records of their cells as they finish.

    A cell that fails does not stop the others, because their calls may be in flight and paid for. Raises only
    ``StoppedError``, after all other cells of a turn have finished.
    """
    previous: Record | None = None
    turn: Job | None = job
    while turn is not None:
        latest = turn.unchanged
        async for record in _run_turn(turn, previous, context):
            latest = record if record.test_id == turn.call.case.id else latest
            yield record
        previous, turn = latest, turn.next_turn


async def _run_turn(job: Job, previous: Record | None, context: RunContext) -> AsyncIterator[Record]:
    """Runs the job of one call, on the output of the ``previous`` turn if it is a later turn."""
    error: CellError | None = None
    if job.call.needs_base and (job.generate or job.regrade):
        job, error = await asyncio.to_thread(_on_output, job, previous, context)
    deadline = asyncio.get_running_loop().time() + context.plan.suite.cell_timeout_s
    tasks: list[asyncio.Task[Record]] = []
    if job.generate:
        outcome = CallOutcome(GenerationResult(attempts=0), error)
        if error is None:
            outcome = await generate(job.call, context, deadline)
            share = len(job.call.samples) if outcome.generated.was_paid else len(job.generate)
            outcome = replace(outcome, share=share, reply_path=await _saved_reply(job, outcome.generated, context))
        if len(job.generate) == 1 and not job.regrade and not job.call.dependents:
            yield await finish_cell(job.call, job.generate[0], outcome, context, deadline)
            return
        for sample in job.generate:
            tasks += _start_cells(job.call, sample, outcome, context, deadline)
    tasks += [asyncio.ensure_future(regrade_output(stored, context, deadline)) for stored in job.regrade]
    errors: list[Exception] = []
    try:
        for done in asyncio.as_completed(tasks):
            try:
                yield await done
            except Exception as error:
                errors.append(error)
    finally:
        for task in tasks:
            task.cancel()
    if errors:
        raise primary_error(errors)


async def _saved_reply(job: Job, generated: GenerationResult, context: RunContext) -> str | None:
    """The path of a raw answer that was not used completely, for all cells of its call. ``None`` if none needs it."""
    reply, call = generated.reply, job.call
    samples = [sample for sample in job.generate if has_reply(call, sample, generated)]
    if reply is None or not samples or call.run.config.is_free:
        return None
    source, data = (reply, None) if isinstance(reply, Path) else (None, reply)

    def save() -> str:
        name = f"{samples[0]}-reply{_reply_ending(reply)}"
        return context.writer.save(call.case.id, call.run.label, name, data, source=source)

    return await finish_in_thread(save)


def _on_output(job: Job, previous: Record | None, context: RunContext) -> tuple[Job, CellError | None]:
    """The job of a later turn on the output of the previous one, or the error that all of its cells end in."""
    call = call_on_output(job.call, previous, context.writer.folder)
    error = call if isinstance(call, CellError) else mask_error(call)
    if isinstance(call, CellError):
        call = job.call
    regrade = tuple(_on_base(stored, call, error) for stored in job.regrade)
    return replace(job, call=call, regrade=regrade), error


def _on_base(stored: StoredOutput, turn: Call, error: CellError | None) -> StoredOutput:
    """An output of a later turn, or of a case that uses it, with the image that the turn edits."""
    if turn.base is None or error is not None:
        return replace(stored, error=error)
    if not is_edit_of(turn, stored.record):
        return replace(stored, error=other_input(turn))
    return replace(stored, call=stored.call.with_base(turn.base))


def _start_cells(
    call: Call, sample: int, outcome: CallOutcome, context: RunContext, deadline: float
) -> Iterator[asyncio.Task[Record]]:
    """Starts a cell, and the dependent cells that wait for its image."""
    generated_cell = asyncio.ensure_future(finish_cell(call, sample, outcome, context, deadline))
    yield generated_cell
    for dependent in call.dependents:
        yield asyncio.ensure_future(_grade_dependent(dependent, generated_cell, context, deadline))


async def _grade_dependent(
    dependent: Call, generated: asyncio.Task[Record], context: RunContext, deadline: float
) -> Record:
    """Grades a cell that uses the image of another cell."""
    record = await generated
    return await regrade_output(StoredOutput(dependent, record, context.writer.folder, is_new=True), context, deadline)


async def generate(call: Call, context: RunContext, deadline: float) -> CallOutcome:
    """Calls the provider, and converts any failure into an error of the cell."""
    request = GenerationRequest(
        case=call.case,
        task_type=call.task_type,
        prompt=call.sent_prompt,
        model_label=call.run.label,
        params=call.params,
        files=call.files,
        samples=call.samples,
        folder=context.folder,
    )
    with Stopwatch() as stopwatch:
        outcome = await _generate(call, context, deadline, request)
    seconds, waited = stopwatch.read()
    return replace(outcome, seconds=seconds, waited_seconds=waited)


async def _generate(call: Call, context: RunContext, deadline: float, request: GenerationRequest) -> CallOutcome:
    tries = Tries()
    try:
        provider = context.components.providers[call.run.label]
        await context.hash_of.prepare(call.key_files)
        async with asyncio.timeout_at(deadline):
            operation_of = partial(
                OperationFile, context.writer, call.case.id, call.run.label, call.run.provider, call.samples
            )
            files = DownloadFiles(context.writer, call.case.id, call.run.label)
            generated = await context.calls.generate(
                call, context.hash_of, provider, request, tries, operation_of, files
            )
            return CallOutcome(generated=generated)
    except ProviderError as error:
        raise_if_stopping(error, call.run.label, call.run.provider, context.sanitizer)
        if error.kind == "refused":
            refused = GenerationResult(refused=str(error), attempts=tries.count)
            return CallOutcome(generated=refused)
        failed = CellError(stage="generate", kind=error.kind, message=context.sanitizer.text(error))
    except TimeoutError:
        failed = _timeout_error("generate", context)
    except StoppedError:
        raise
    except Exception as error:
        context.debug(error)
        failed = CellError(stage="generate", kind="internal", message=context.sanitizer.text(describe_error(error)))
    return CallOutcome(generated=GenerationResult(attempts=tries.count), error=failed)


def _timeout_error(stage: Any, context: RunContext) -> CellError:
    message = f"exceeded the cell timeout of {context.plan.suite.cell_timeout_s:g} s (cell_timeout_s)"
    return CellError(stage=stage, kind="timeout", message=message)


async def finish_cell(call: Call, sample: int, outcome: CallOutcome, context: RunContext, deadline: float) -> Record:
    """Stores and grades one cell of a call, and builds its record."""
    generated = outcome.generated
    make_record, stored = await finish_in_thread(_store_output, call, sample, outcome, context)
    if isinstance(stored, Record):
        return stored
    params = generated.run_params or call.params
    built_in = built_in_scores(call, make_record.keywords, {})
    return await _grade_output(call, sample, stored, params, make_record, context, deadline, built_in=built_in)


async def regrade_output(existing: StoredOutput, context: RunContext, deadline: float) -> Record:
    """Grades an existing output and builds its new record; the generation fields stay the same."""
    call, record = existing.call, existing.record
    await context.hash_of.prepare(call.key_files)
    make_record = partial(
        Record,
        **{name: getattr(record, name) for name in _GENERATION_FIELDS},
        **case_fields(call, context),
        sent_prompt=prompt_of_output(call, record, context),
        run_id=context.writer.info.run_id,
        sample_index=record.sample_index,
        grade_key=grade_key(call, context.hash_of),
        reply_path=await asyncio.to_thread(_copied_reply, existing, context) if record.reply_path else None,
    )
    if record.test_id != call.case.id or existing.is_of_another_run:
        free = None if record.cost_usd is None else 0.0
        make_record = partial(make_record, usage=None, cost_usd=free, seconds=0.0, waited_seconds=0.0, attempts=0)
    if record.status is Status.REFUSED:
        return refused_record(call, record.reasons.get("refused", ""), make_record)
    if record.status is Status.ERROR and record.mime is None:
        return make_record(status=Status.ERROR, verdict=Verdict.ERROR, error=record.error)
    if existing.error is not None:
        return make_record(status=Status.ERROR, verdict=Verdict.ERROR, error=existing.error)
    image = await asyncio.to_thread(_load_output, existing, context)
    if isinstance(image, CellError):
        return make_record(status=Status.ERROR, verdict=Verdict.ERROR, error=image)
    params = record.run_params or call.params
    grades = None
    if existing.graded is not None:
        grades = await asyncio.to_thread(stored_grades, call, existing.graded, existing.folder, context)
    built_in = {}
    if record.test_id == call.case.id:
        built_in = built_in_scores(call, {name: getattr(record, name) for name in BUILT_IN}, record.scores)
    return await _grade_output(
        call, record.sample_index, image, params, make_record, context, deadline, grades, built_in=built_in
    )


_GENERATION_FIELDS = (
    "provider", "run_params", "usage", "cost_usd", "seconds", "waited_seconds", "attempts", "cached", "generation_key",
    "reply_note",
)  # fmt: skip
_SNIFFED = 1024


def _copied_reply(existing: StoredOutput, context: RunContext) -> str | None:
    """The path of the raw answer that a record names, copied to this run's folder if needed; ``None`` if it is gone."""
    record = existing.record
    if existing.folder == context.writer.folder:
        return record.reply_path
    source = file_inside(existing.folder, record.reply_path)
    if source is None:
        return None
    name = str(record.reply_path).rpartition("/")[2]
    return context.writer.save(record.test_id, record.model_label, name, source.read_bytes())


def _load_output(existing: StoredOutput, context: RunContext) -> Output | CellError | None:
    """The image of a record, copied to this run's folder if needed."""
    record = existing.record
    if record.mime is None:
        return None
    address = (
        address_of(record.run_params) if context.plan.trusted else None
    )  # reading a bucket uses the user's credentials
    facts = (record.artifact_sha256 or "", record.mime, record.width or 0, record.height or 0, address)
    if record.artifact_path is None:
        if address is None:
            return _bad_image(existing, "is in a bucket: pass --trust-suite to read it")
        return Output(Path(), *facts)
    target = context.writer.folder / record.artifact_path
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
        saved = context.writer.save(record.test_id, record.model_label, target.name, data, source=source)
        target = context.writer.folder / saved
    return Output(target, *facts)


def _bad_image(existing: StoredOutput, what: str, kind: str = "bad_image") -> CellError:
    name = existing.record.artifact_path or str(existing.record.shown_params.get("path", "the image"))
    return CellError(stage="generate", kind=kind, message=f"{name}: {what}")


async def _grade_output(
    call: Call,
    sample: int,
    image: Output | None,
    params: Mapping[str, Any],
    make_record: partial[Record],
    context: RunContext,
    deadline: float,
    grades: CellGrades | None = None,
    *,
    built_in: Mapping[str, Score],
) -> Record:
    """Grades a stored image and builds the record; ``image`` is ``None`` for runs without outputs.

    With ``grades``, only computes the suite's metrics and evaluates the rules. ``built_in`` are the built-in metrics
    that are known.
    """
    make_record = partial(make_record, status=Status.COMPLETED)
    if image is not None:
        is_local = image.path != Path()
        make_record = partial(
            make_record,
            artifact_path=str(image.path).removeprefix(f"{context.writer.folder}/") if is_local else None,
            artifact_sha256=image.sha256 or None,
            mime=image.mime,
            width=image.width or None,
            height=image.height or None,
        )
        if call.case.expect.refusal:
            return make_record(verdict=Verdict.FAIL, failed_rules=("expect.refusal",), skipped_rules=rule_texts(call))
    if grades is None:
        grades = await grade(call, sample, image, params, context, deadline)
    is_ungraded = not context.plan.whole_suite.has_rules
    return judged_record(call, grades, cell_scores(call, grades, built_in), make_record, is_ungraded=is_ungraded)


def _without_output(call: Call, problem: str, kind: str, make_record: partial[Record]) -> Record:
    """The record of a cell without an image. If its call is paid, resuming the run does not pay for it again."""
    if not call.run.config.is_free:
        path = make_record.keywords["reply_path"]
        stored = f"; the answer is in {path}" if path else ""
        if kind != "bad_image":
            again = "run SUITE --resume RUN downloads it" if kind == "pending" else "--resume RUN checks it"
            return error_record(make_record, kind, f"{problem}{stored}; {again} again, and pays nothing")
        again = "--resume RUN --retry-unusable pays for another"
        return error_record(make_record, "unusable", f"{problem}{stored}; {again}")
    row = call.params.get("row")
    return error_record(make_record, kind, f"{row}: {problem}" if row else problem)


def _reply_ending(reply: bytes | Path) -> str:
    """The suffix for an answer of any content: none that a browser would show as a page."""
    if isinstance(reply, Path):
        with reply.open("rb") as file:
            reply = file.read(_SNIFFED)
    if reply.lstrip()[:1] in (b"{", b"["):
        return ".json"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(reply[:_SNIFFED])
    except UnicodeDecodeError:
        return ".bin"
    return ".txt"


def _store_output(
    call: Call, sample: int, outcome: CallOutcome, context: RunContext
) -> tuple[partial[Record], Output | Record | None]:
    """A factory for the cell's record, and its stored image; or its finished record if there is no image."""
    make_record = record_maker(call, sample, outcome, context)
    if outcome.error is not None:
        return make_record, make_record(status=Status.ERROR, verdict=Verdict.ERROR, error=outcome.error)
    if outcome.generated.refused is not None:
        return make_record, refused_record(call, context.sanitizer.text(outcome.generated.refused), make_record)
    if not call.run.config.has_outputs:
        return make_record, None
    outputs, index = outcome.generated.outputs, call.samples.index(sample)
    if index >= len(outputs):
        received = f"images requested: {len(call.samples)}, received: {len(outputs)}"  # as older caches do not say
        problem = make_record.keywords["reply_note"] or received
        return make_record, _without_output(call, problem, "bad_image", make_record)
    media = outputs[index]
    if media.fault is not None:
        if not call.run.config.is_free and media.content is not None:
            name = f"{sample}-unused{_reply_ending(media.content)}"
            unused = context.writer.save(call.case.id, call.run.label, name, media.data, source=media.file)
            make_record = partial(make_record, reply_path=unused)
        problem = context.sanitizer.text(media.fault)
        return make_record, _without_output(call, problem, media.fault_kind, make_record)
    if media.uri is not None:
        return make_record, Output(Path(), "", media.mime, 0, 0, media.uri)
    name = f"{sample}{ending(media.mime)}"
    relative = context.writer.save(call.case.id, call.run.label, name, media.data, source=media.file)
    path = context.writer.folder / relative
    return make_record, Output(path, media.sha256, media.mime, media.width, media.height, address_of(call.params))
