"""The steps of one generation call: generate, keep each image, grade it, judge it, and make its record.

No step lets an exception through but ``StoppedError``: an error of a cell is its record.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from visioneval.aio import primary_error, run_in_thread
from visioneval.engine.calls.calls import GenerationResult
from visioneval.engine.calls.throttle import Tries
from visioneval.engine.context import RunContext
from visioneval.engine.grading import Graded, grade, stop_for_key
from visioneval.engine.sanitize import amount
from visioneval.engine.user_code import described
from visioneval.errors import ImageError, ProviderError, StoppedError
from visioneval.media import images
from visioneval.media.formats import artifact, ending
from visioneval.plan import Call, generation_key, grade_key
from visioneval.providers.base import GenerationRequest
from visioneval.records.links import is_inside
from visioneval.records.model import CellError, Record
from visioneval.rules import CellVerdict, judge_cell
from visioneval.suite.remote_media import address_of
from visioneval.types import Output, Status, Verdict


@dataclass(frozen=True, slots=True)
class Existing:
    """An output that exists: the call that asks about it now, the record of its generation, and its run's folder."""

    call: Call
    record: Record
    folder: Path
    is_fresh: bool = False
    """Whether it was generated just now, and so is what its record says."""
    is_of_another_run: bool = False
    """Whether another run drew it and paid for it."""


@dataclass(frozen=True, slots=True)
class Job:
    """What there is to do for a call: the samples to generate, and the images that are there and only graded."""

    call: Call
    generate: tuple[int, ...]
    regrade: tuple[Existing, ...] = ()


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """How a call ended, and how long it took. ``error`` stands where nothing was generated."""

    seconds: float
    generated: GenerationResult
    error: CellError | None = None
    share: int = 1
    """How many cells share its cost and time."""


async def work(job: Job, bench: RunContext) -> AsyncIterator[Record]:
    """Does a job and finishes its cells as they come. Raises ``StoppedError`` alone, once all are finished that can be.

    A cell that cannot be finished does not end the others: their calls may be in flight, and are paid for.
    """
    deadline = asyncio.get_running_loop().time() + bench.plan.suite.cell_timeout_s
    tasks: list[asyncio.Task[Record]] = []
    if job.generate:
        ended = replace(await generate(job.call, bench, deadline), share=len(job.generate))
        if len(job.generate) == 1 and not job.regrade and not job.call.dependents:
            yield await finish(job.call, job.generate[0], ended, bench, deadline)
            return
        for sample in job.generate:
            tasks += _with_dependents(job.call, sample, ended, bench, deadline)
    tasks += [asyncio.ensure_future(again(one, bench, deadline)) for one in job.regrade]
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


def _with_dependents(
    call: Call, sample: int, ended: CallOutcome, bench: RunContext, deadline: float
) -> Iterator[asyncio.Task[Record]]:
    """A cell, and those of the cases that look at its image, which wait for it."""
    own = asyncio.ensure_future(finish(call, sample, ended, bench, deadline))
    yield own
    for dependent in call.dependents:
        yield asyncio.ensure_future(_look(dependent, own, bench, deadline))


async def _look(dependent: Call, generated: asyncio.Task[Record], bench: RunContext, deadline: float) -> Record:
    """A cell that looks at the image of another one."""
    record = await generated
    return await again(Existing(dependent, record, bench.writer.folder, is_fresh=True), bench, deadline)


async def generate(call: Call, bench: RunContext, deadline: float) -> CallOutcome:
    """Asks the provider, and turns whatever goes wrong into an error of the cell."""
    request = GenerationRequest(
        case=call.case,
        task_type=call.task_type,
        prompt=call.prompt,
        model_label=call.run.label,
        params=call.params,
        files=call.files,
        samples=call.samples,
        folder=bench.folder,
    )
    start, tries = perf_counter(), Tries()
    try:
        provider = bench.tools.providers[call.run.label]
        async with asyncio.timeout_at(deadline):
            generated = await bench.calls.generate(call, bench.hash_of, provider, request, tries)
            return CallOutcome(generated=generated, seconds=perf_counter() - start)
    except ProviderError as error:
        stop_for_key(error, call.run.label, bench.plain)
        if error.kind == "refused":
            refused = GenerationResult(refused=str(error), attempts=tries.count)
            return CallOutcome(generated=refused, seconds=perf_counter() - start)
        failed = CellError(stage="generate", kind=error.kind, message=bench.plain.text(error))
    except TimeoutError:
        failed = _late("generate", bench)
    except StoppedError:
        raise
    except Exception as error:
        bench.debug(error)
        failed = CellError(stage="generate", kind="internal", message=bench.plain.text(described(error)))
    return CallOutcome(generated=GenerationResult(attempts=tries.count), seconds=perf_counter() - start, error=failed)


def _late(stage: Any, bench: RunContext) -> CellError:
    message = f"not done within the {bench.plan.suite.cell_timeout_s:g} s that a cell may take"
    return CellError(stage=stage, kind="timeout", message=message)


async def finish(call: Call, sample: int, ended: CallOutcome, bench: RunContext, deadline: float) -> Record:
    """One cell of a call, from its image to its record."""
    has_bytes = any(one.data is not None for one in ended.generated.outputs)
    is_work = has_bytes or call.has_files or not bench.writer.links
    make, placed = await run_in_thread(_store_output, call, sample, ended, bench, when=is_work)
    if isinstance(placed, Record):
        return placed
    params = ended.generated.run_params or call.params
    return await _grade_output(call, sample, placed, params, make, bench, deadline)


async def again(existing: Existing, bench: RunContext, deadline: float) -> Record:
    """The new record of an existing output; what its record says of the generation stays."""
    call, record = existing.call, existing.record
    make = partial(
        Record,
        **{name: getattr(record, name) for name in _OF_THE_GENERATION},
        **_of_the_case(call, bench),
        run_id=bench.writer.info.run_id,
        sample_index=record.sample_index,
        grade_key=await run_in_thread(grade_key, call, bench.hash_of, when=call.has_files),
    )
    if record.test_id != call.case.id or existing.is_of_another_run:
        free = None if record.cost_usd is None else 0.0
        make = partial(make, usage=None, cost_usd=free, seconds=0.0, attempts=0)
    if record.status is Status.REFUSED:
        return _refused(call, record.reasons.get("refused", ""), make)
    if record.status is Status.ERROR and record.mime is None:
        return make(status=Status.ERROR, verdict=Verdict.ERROR, error=record.error)
    image = await asyncio.to_thread(_kept, existing, bench)
    if isinstance(image, CellError):
        return make(status=Status.ERROR, verdict=Verdict.ERROR, error=image)
    params = record.run_params or call.params
    return await _grade_output(call, record.sample_index, image, params, make, bench, deadline)


_OF_THE_GENERATION = (
    "provider", "run_params", "usage", "cost_usd", "seconds", "attempts", "cached", "generation_key",
)  # fmt: skip


def _kept(existing: Existing, bench: RunContext) -> Output | CellError | None:
    """The image of a record, in this run's folder."""
    record = existing.record
    if record.mime is None:
        return None
    address = address_of(record.run_params) if bench.plan.trusted else None  # a bucket is read with own credentials
    facts = (record.artifact_sha256 or "", record.mime, record.width or 0, record.height or 0, address)
    if record.artifact_path is None:
        if address is None:
            return _bad_image(existing, "lies in a bucket: pass --trust-suite to have it read there")
        return Output(Path(), *facts)
    place = bench.writer.folder / record.artifact_path
    if existing.is_fresh:
        return Output(place, *facts)
    if not is_inside(existing.folder, record.artifact_path):
        return _bad_image(existing, "is a link that leads out of the run")
    path = existing.folder / record.artifact_path
    try:
        data = path.read_bytes()
    except OSError as error:
        return _bad_image(existing, f"cannot be read: {error.strerror}")
    if images.sha256(data) != record.artifact_sha256:
        return _bad_image(existing, "is not the image that was generated: it was changed since")
    try:
        artifact(data, existing.call.task_type)
    except ImageError as error:
        return _bad_image(existing, str(error))
    if path != place:
        source = None if path.is_symlink() else path
        saved = bench.writer.save(record.test_id, record.model_label, place.name, data, source=source)
        place = bench.writer.folder / saved
    return Output(place, *facts)


def _bad_image(existing: Existing, what: str) -> CellError:
    name = existing.record.artifact_path or str(existing.record.run_params.get("path", "the image"))
    return CellError(stage="generate", kind="bad_image", message=f"{name}: {what}")


async def _grade_output(
    call: Call,
    sample: int,
    image: Output | None,
    params: Mapping[str, Any],
    make: partial[Record],
    bench: RunContext,
    deadline: float,
) -> Record:
    """A cell whose image is in its place; ``None`` where only recorded answers are there."""
    make = partial(make, status=Status.COMPLETED)
    if image is not None:
        is_here = image.path != Path()
        make = partial(
            make,
            artifact_path=image.path.relative_to(bench.writer.folder).as_posix() if is_here else None,
            artifact_sha256=image.sha256 or None,
            mime=image.mime,
            width=image.width or None,
            height=image.height or None,
        )
        if call.case.expect.refusal:
            return make(verdict=Verdict.FAIL, failed_rules=("expect.refusal",), skipped_rules=_rules(call))
    return _judged(call, await grade(call, sample, image, params, bench, deadline), make)


def _store_output(
    call: Call, sample: int, ended: CallOutcome, bench: RunContext
) -> tuple[partial[Record], Output | Record | None]:
    """What all records of a cell say, and its image in the run, or its record where there is none."""
    make = _record_maker(call, sample, ended, bench)
    if ended.error is not None:
        return make, make(status=Status.ERROR, verdict=Verdict.ERROR, error=ended.error)
    if ended.generated.refused is not None:
        return make, _refused(call, bench.plain.text(ended.generated.refused), make)
    if not call.run.config.has_outputs:
        return make, None
    outputs, at = ended.generated.outputs, call.samples.index(sample)
    if at >= len(outputs):
        message = f"images asked for: {len(call.samples)}; given: {len(outputs)}"
        return make, _bad(make, "missing_output", message)
    one = outputs[at]
    if one.uri is not None:
        return make, Output(Path(), "", one.mime, 0, 0, one.uri)
    if one.fault is not None:
        row = call.params.get("row")
        return make, _bad(make, "bad_image", f"{row}: {one.fault}" if row else str(one.fault))
    name = f"{sample}{ending(one.mime)}"
    relative = bench.writer.save(call.case.id, call.run.label, name, one.data, source=one.kept)
    place = bench.writer.folder / relative
    return make, Output(place, one.sha256, one.mime, one.width, one.height, address_of(call.params))


def _bad(make: partial[Record], kind: str, message: str) -> Record:
    error = CellError(stage="generate", kind=kind, message=message)
    return make(status=Status.ERROR, verdict=Verdict.ERROR, error=error)


def _record_maker(call: Call, sample: int, ended: CallOutcome, bench: RunContext) -> partial[Record]:
    share = ended.share
    cost = amount(ended.generated.cost_usd)
    plain = bench.plain
    return partial(
        Record,
        **_of_the_case(call, bench),
        run_id=bench.writer.info.run_id,
        sample_index=sample,
        provider=call.run.provider,
        run_params=plain.mapping(ended.generated.run_params or call.params),
        usage=plain.counts(ended.generated.usage),
        cost_usd=None if cost is None else cost / share,
        seconds=round(ended.seconds / share, 6),
        attempts=ended.generated.attempts,
        cached=ended.generated.stored_at is not None,
        generation_key=generation_key(call, sample, bench.hash_of),
        grade_key=grade_key(call, bench.hash_of),
    )


def _of_the_case(call: Call, bench: RunContext) -> dict[str, Any]:
    return {
        "test_id": call.case.id,
        "model_label": call.run.label,
        "task_type": call.task_type,
        "prompt": bench.plain.text(call.prompt),
        "tags": call.case.tags,
        "flaky": call.case.flaky,
        "metadata": bench.plain.mapping(call.case.metadata),
    }


def _refused(call: Call, why: str, make: partial[Record]) -> Record:
    expected = call.case.expect.refusal
    return make(
        status=Status.REFUSED,
        verdict=Verdict.PASS if expected else Verdict.FAIL,
        failure_tags=() if expected else ("refused",),
        reasons={"refused": why},
        skipped_rules=_rules(call),
    )


def _rules(call: Call) -> tuple[str, ...]:
    return tuple(rule.text for rule, _ in call.rules)


def _judged(call: Call, graded: Graded, make: partial[Record]) -> Record:
    said = judge_cell(call.rules, graded.scores)
    return make(
        verdict=said.verdict,
        failed_rules=said.failed,
        warned_rules=said.warned,
        skipped_rules=said.skipped,
        scores=graded.scores,
        reasons=graded.reasons,
        failure_tags=graded.failure_tags,
        graders=graded.graders,
        error=graded.error or _no_verdict(said, call.rules),
    )


def _no_verdict(said: CellVerdict, rules: Sequence[Any]) -> CellError | None:
    if said.verdict is not Verdict.ERROR:
        return None
    if said.unmeasured:
        return CellError(stage="verdict", kind="unmeasured", message=f"not measured: {', '.join(said.unmeasured)}")
    message = f"none of the {len(rules)} rules of this cell could be evaluated"
    return CellError(stage="verdict", kind="no_rule", message=message)
