"""Generates the outputs of a call, and stores each: an answer, a refusal, or an error of its cells."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from visioneval.errors import ProviderError, StoppedError
from visioneval.media.video import ending
from visioneval.providers.base import GenerationRequest
from visioneval.records.model import CellError, Record
from visioneval.records.outputs import DownloadFiles, OperationFile
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
