"""Generates the outputs of a call, and stores each: an answer, a refusal, or an error of its cells.

A later turn edits the output of the turn before, of the same model run and sample.
"""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from visioneval.errors import ImageError, ProviderError, StoppedError
from visioneval.media import images
from visioneval.media.video import ending
from visioneval.providers.base import GenerationRequest
from visioneval.records.model import CellError, CellKey, Record
from visioneval.records.outputs import DownloadFiles, OperationFile
from visioneval.records.untrusted import file_inside
from visioneval.running.calls.attempts import describe_error
from visioneval.running.calls.calls import GenerationResult
from visioneval.running.calls.judges import raise_if_stopping
from visioneval.running.calls.throttle import Tries
from visioneval.running.cells.record import CallOutcome, error_record, has_reply, record_maker, refused_record
from visioneval.running.cells.services import Services
from visioneval.running.plan import Call
from visioneval.suite.runs import address_of
from visioneval.threads import Stopwatch, finish_in_thread
from visioneval.types import Output, Status, Verdict

NO_INPUT = "missing_input"
"""The kind of error of a turn that has no image to edit."""


def call_on_output(call: Call, previous: Record | None, folder: Path) -> Call | CellError:
    """The call with the output of ``previous``, a record of the run in ``folder``, as the image to edit.

    A call that needs none stays as it is. Without an output, the error names the turn that has none.
    """
    if not call.needs_base:
        return call
    name, sample = call.case.previous_turn, call.samples[0]
    if previous is None or previous.test_id != name:
        return _no_input(f"{name} has no output to edit: it has no sample {sample}")
    if previous.error is not None and previous.error.kind == NO_INPUT:
        return previous.error
    path = file_inside(folder.absolute(), previous.artifact_path)
    if previous.status is not Status.COMPLETED or path is None:
        causes = {Status.REFUSED: "its generation was refused", Status.ERROR: "it ended in an error"}
        return _no_input(f"{name} has no output to edit: {causes.get(previous.status, 'the run has no file of it')}")
    size = previous.width or 0, previous.height or 0
    return call.with_base(Output(path, previous.artifact_sha256 or "", previous.mime or "", *size))


def call_on_records(call: Call, sample: int, by_cell: Mapping[CellKey, Record], folder: Path) -> Call:
    """The call with what ``by_cell``, of the run in ``folder``, has of the turn before. Without it, as it is."""
    if call.previous is None:
        return call
    edit = call_on_output(call, by_cell.get(call.previous.cell(sample)), folder)
    return call if isinstance(edit, CellError) else edit


def _no_input(message: str) -> CellError:
    return CellError(stage="generate", kind=NO_INPUT, message=message)


def mask_error(call: Call) -> CellError | None:
    """Why the masks of a turn do not fit the image that it edits, which is known only now."""
    if call.base is None:
        return None
    try:
        base = images.size_of(call.base.path)
        sizes = {path: images.size_of(path) for path in call.files.masks.values()}
    except ImageError as error:
        return CellError(stage="generate", kind="bad_image", message=str(error))
    for path, size in sizes.items():
        if size != base:
            pixels, base_pixels = (f"{width} x {height} pixels" for width, height in (size, base))
            message = f"the mask {path.name} is {pixels}, but the output of {call.case.previous_turn} is {base_pixels}"
            return CellError(stage="generate", kind="bad_image", message=message)
    return None


def is_edit_of(call: Call, record: Record) -> bool:
    """Whether the output of ``record`` is an edit of the image that the call has to edit."""
    return call.base is None or record.base_sha256 == call.base.sha256


def other_input(call: Call) -> CellError:
    """The error of a turn that was generated from another image than the one that the turn before has now."""
    message = f"it edits an earlier output of {call.case.previous_turn}: resume the run, which edits the current one"
    return CellError(stage="generate", kind="bad_image", message=message)


_SNIFFED = 1024


async def generate(call: Call, samples: Sequence[int], services: Services, deadline: float) -> CallOutcome:
    """Calls the provider for these samples of a call, and converts any failure into an error of their cells."""
    request = GenerationRequest(
        case=call.case,
        task_type=call.task_type,
        prompt=call.sent_prompt,
        model_label=call.run.label,
        params=call.params,
        files=call.files,
        samples=call.samples,
        folder=services.plan.folder,
    )
    with Stopwatch() as stopwatch:
        outcome = await _generate(call, services, deadline, request)
    seconds, waited = stopwatch.read()
    share = len(call.samples if outcome.generated.was_paid else samples)
    reply_path = await _saved_reply(call, samples, outcome.generated, services)
    return replace(outcome, seconds=seconds, waited_seconds=waited, share=share, reply_path=reply_path)


async def _generate(call: Call, services: Services, deadline: float, request: GenerationRequest) -> CallOutcome:
    tries = Tries()
    try:
        provider = services.components.providers[call.run.label]
        await services.hash_of.prepare(call.key_files)
        async with asyncio.timeout_at(deadline):
            operation_of = partial(
                OperationFile, services.writer, call.case.id, call.run.label, call.run.provider, call.samples
            )
            files = DownloadFiles(services.writer, call.case.id, call.run.label)
            generated = await services.calls.generate(
                call, services.hash_of, provider, request, tries, operation_of, files
            )
            return CallOutcome(generated=generated)
    except ProviderError as error:
        raise_if_stopping(error, call.run.label, call.run.provider, services.sanitizer)
        if error.kind == "refused":
            refused = GenerationResult(refused=str(error), attempts=tries.count)
            return CallOutcome(generated=refused)
        failed = CellError(stage="generate", kind=error.kind, message=services.sanitizer.text(error))
    except TimeoutError:
        message = f"exceeded the cell timeout of {services.plan.suite.cell_timeout_s:g} s (cell_timeout_s)"
        failed = CellError(stage="generate", kind="timeout", message=message)
    except StoppedError:
        raise
    except Exception as error:
        services.listener.debug(error)
        failed = CellError(stage="generate", kind="internal", message=services.sanitizer.text(describe_error(error)))
    return CallOutcome(generated=GenerationResult(attempts=tries.count), error=failed)


async def _saved_reply(
    call: Call, samples: Sequence[int], generated: GenerationResult, services: Services
) -> str | None:
    """The path of a raw answer that was not used completely, for all cells of its call. ``None`` if none needs it."""
    reply = generated.reply
    without_output = [sample for sample in samples if has_reply(call, sample, generated)]
    if reply is None or not without_output or call.run.config.is_free:
        return None
    source, data = (reply, None) if isinstance(reply, Path) else (None, reply)

    def save() -> str:
        name = f"{without_output[0]}-reply{_reply_ending(reply)}"
        return services.writer.save(call.case.id, call.run.label, name, data, source=source)

    return await finish_in_thread(save)


def store_output(
    call: Call, sample: int, outcome: CallOutcome, services: Services
) -> tuple[partial[Record], Output | Record | None]:
    """A factory for the cell's record, and its stored image; or its finished record if there is no image."""
    make_record = record_maker(call, sample, outcome, services)
    if outcome.error is not None:
        return make_record, make_record(status=Status.ERROR, verdict=Verdict.ERROR, error=outcome.error)
    if outcome.generated.refused is not None:
        return make_record, refused_record(call, services.sanitizer.text(outcome.generated.refused), make_record)
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
            unused = services.writer.save(call.case.id, call.run.label, name, media.data, source=media.file)
            make_record = partial(make_record, reply_path=unused)
        problem = services.sanitizer.text(media.fault)
        return make_record, _without_output(call, problem, media.fault_kind, make_record)
    if media.uri is not None:
        return make_record, Output(Path(), "", media.mime, 0, 0, media.uri)
    name = f"{sample}{ending(media.mime)}"
    relative = services.writer.save(call.case.id, call.run.label, name, media.data, source=media.file)
    path = services.writer.folder / relative
    return make_record, Output(path, media.sha256, media.mime, media.width, media.height, address_of(call.params))


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
