"""The steps of one drawing call: draw, keep each picture, grade it, judge it, and make its record.

No step lets an exception through but ``StoppedError``: an error of a cell is its record.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from visioneval.engine.bench import Bench
from visioneval.engine.calls import Drawn
from visioneval.engine.grading import Graded, grade, stop_for_key
from visioneval.engine.guard import described
from visioneval.engine.made import Made, made
from visioneval.engine.plain import amount
from visioneval.errors import ProviderError, StoppedError
from visioneval.images import EXTENSIONS
from visioneval.plan import Call, draw_key, generation_key, grade_key
from visioneval.providers.base import DrawRequest
from visioneval.records import CellError, Record
from visioneval.rules import CellVerdict, judge_cell
from visioneval.types import Picture, Status, Verdict


@dataclass(frozen=True, slots=True)
class Existing:
    """A picture that was drawn before, the record that says how, and the file that holds it."""

    record: Record
    path: Path


@dataclass(frozen=True, slots=True)
class Job:
    """What there is to do for a call: the samples to draw, and the pictures that are there and only graded."""

    call: Call
    draw: tuple[int, ...]
    regrade: tuple[Existing, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """How a call ended, and how long it took. ``error`` stands where nothing was drawn."""

    seconds: float
    drawn: Drawn
    error: CellError | None = None


async def work(job: Job, bench: Bench) -> AsyncIterator[Record]:
    """Does a job and finishes its cells as they come. Raises ``StoppedError`` alone."""
    deadline = asyncio.get_running_loop().time() + bench.plan.suite.cell_timeout_s
    steps: list[Coroutine[Any, Any, Record]] = [again(job.call, one, bench, deadline) for one in job.regrade]
    if job.draw:
        ended = await draw(job.call, bench, deadline)
        steps += [finish(job.call, sample, ended, bench, deadline) for sample in job.draw]
    if len(steps) == 1:
        yield await steps[0]
        return
    tasks = [asyncio.ensure_future(step) for step in steps]
    try:
        for done in asyncio.as_completed(tasks):
            yield await done
    finally:
        for task in tasks:
            task.cancel()


async def draw(call: Call, bench: Bench, deadline: float) -> Ended:
    """Asks the provider, and turns whatever goes wrong into an error of the cell."""
    request = DrawRequest(
        case=call.case,
        task_type=call.task_type,
        prompt=call.prompt,
        model_label=call.run.label,
        params=call.params,
        files=call.files,
        samples=call.samples,
        folder=bench.folder,
    )
    start = perf_counter()
    try:
        provider = bench.tools.providers[call.run.label]
        key = await asyncio.to_thread(draw_key, call, bench.hash_of)
        async with asyncio.timeout_at(deadline):
            return Ended(drawn=await bench.calls.draw(call, key, provider, request), seconds=perf_counter() - start)
    except ProviderError as error:
        stop_for_key(error, call.run.label, bench)
        if error.kind == "refused":
            return Ended(drawn=Drawn(refused=str(error)), seconds=perf_counter() - start)
        failed = CellError(stage="generate", kind=error.kind, message=bench.plain.text(error))
    except TimeoutError:
        failed = _late("generate", bench)
    except StoppedError:
        raise
    except Exception as error:
        bench.debug(error)
        failed = CellError(stage="generate", kind="internal", message=bench.plain.text(described(error)))
    return Ended(drawn=Drawn(), seconds=perf_counter() - start, error=failed)


def _late(stage: Any, bench: Bench) -> CellError:
    message = f"not done within the {bench.plan.suite.cell_timeout_s:g} s that a cell may take"
    return CellError(stage=stage, kind="timeout", message=message)


async def finish(call: Call, sample: int, ended: Ended, bench: Bench, deadline: float) -> Record:
    """One cell of a call, from its picture to its record."""
    make, placed = await asyncio.to_thread(_placed, call, sample, ended, bench)
    if isinstance(placed, Record):
        return placed
    params = ended.drawn.run_params or call.params
    if placed is None:
        return await _graded(call, sample, None, params, partial(make, status=Status.COMPLETED), bench, deadline)
    make = partial(
        make,
        status=Status.COMPLETED,
        artifact_path=str(placed.path.relative_to(bench.writer.folder).as_posix()),
        artifact_sha256=placed.sha256,
        mime=placed.mime,
        width=placed.width,
        height=placed.height,
    )
    return await _graded(call, sample, placed, params, make, bench, deadline)


async def again(call: Call, existing: Existing, bench: Bench, deadline: float) -> Record:
    """The new record of a picture that was drawn before: how it was drawn stays as it was."""
    record = existing.record
    kept, found = await asyncio.to_thread(_kept, existing, bench)
    make = partial(
        Record,
        **{name: getattr(record, name) for name in _OF_THE_DRAWING},
        **_of_the_case(call, bench),
        run_id=bench.writer.info.run_id,
        sample_index=record.sample_index,
        grade_key=await asyncio.to_thread(grade_key, call, bench.hash_of),
    )
    if not call.run.config.has_pictures:
        params = record.run_params or call.params
        return await _graded(call, record.sample_index, None, params, make, bench, deadline)
    if found is None:
        return _verdict_without_picture(call, record, make)
    picture = Picture(bench.writer.folder / kept, found.sha256, found.mime, found.width, found.height)
    params = record.run_params or call.params
    make = partial(make, artifact_path=kept)
    return await _graded(call, record.sample_index, picture, params, make, bench, deadline)


_OF_THE_DRAWING = (
    "provider", "run_params", "status", "artifact_sha256", "mime", "width", "height",
    "usage", "cost_usd", "seconds", "attempts", "cached", "generation_key",
)  # fmt: skip


def _kept(existing: Existing, bench: Bench) -> tuple[str, Made | None]:
    """The path in this run of a picture that was drawn before, and the picture, where it has one."""
    record = existing.record
    if record.artifact_path is None:
        return "", None
    data = existing.path.read_bytes()
    name = Path(record.artifact_path).name
    return bench.writer.save(record.test_id, record.model_label, name, data, source=existing.path), made(data)


def _verdict_without_picture(call: Call, record: Record, make: partial[Record]) -> Record:
    if record.status is Status.REFUSED:
        return _refused(call, record.reasons.get("refused", ""), make)
    return make(verdict=Verdict.ERROR, error=record.error)


async def _graded(
    call: Call,
    sample: int,
    picture: Picture | None,
    params: Mapping[str, Any],
    make: partial[Record],
    bench: Bench,
    deadline: float,
) -> Record:
    if call.case.expect.refusal:
        return make(verdict=Verdict.FAIL, failed_rules=("expect.refusal",), skipped_rules=_rules(call))
    return _judged(call, await grade(call, sample, picture, params, bench, deadline), make)


def _placed(call: Call, sample: int, ended: Ended, bench: Bench) -> tuple[partial[Record], Picture | Record | None]:
    """What all records of a cell say, and its picture in the run, or its record where it was to have one.

    ``None`` is for a cell without a picture.
    """
    make = _record_maker(call, sample, ended, bench)
    if ended.error is not None:
        return make, make(status=Status.ERROR, verdict=Verdict.ERROR, error=ended.error)
    if ended.drawn.refused is not None:
        return make, _refused(call, bench.plain.text(ended.drawn.refused), partial(make, status=Status.REFUSED))
    if not call.run.config.has_pictures:
        return make, None
    pictures, at = ended.drawn.pictures, call.samples.index(sample)
    if at >= len(pictures):
        message = f"pictures asked for: {len(call.samples)}; given: {len(pictures)}"
        return make, _bad(make, "missing_picture", message)
    one = pictures[at]
    if one.fault is not None or one.data is None:
        return make, _bad(make, "bad_image", one.fault or "it is empty")
    name = f"{sample}{EXTENSIONS[one.mime.removeprefix('image/')]}"
    source = bench.calls.cache.path(one.sha256) if bench.calls.cache and not call.run.config.is_free else None
    relative = bench.writer.save(call.case.id, call.run.label, name, one.data, source=source)
    return make, Picture(bench.writer.folder / relative, one.sha256, one.mime, one.width, one.height)


def _bad(make: partial[Record], kind: str, message: str) -> Record:
    error = CellError(stage="generate", kind=kind, message=message)
    return make(status=Status.ERROR, verdict=Verdict.ERROR, error=error)


def _record_maker(call: Call, sample: int, ended: Ended, bench: Bench) -> partial[Record]:
    share = len(call.samples)
    cost = amount(ended.drawn.cost_usd)
    plain = bench.plain
    return partial(
        Record,
        **_of_the_case(call, bench),
        run_id=bench.writer.info.run_id,
        sample_index=sample,
        provider=call.run.provider,
        run_params=plain.mapping(ended.drawn.run_params or call.params),
        usage=plain.counts(ended.drawn.usage),
        cost_usd=None if cost is None else cost / share,
        seconds=round(ended.seconds / share, 6),
        attempts=ended.drawn.attempts,
        cached=ended.drawn.stored_at is not None,
        generation_key=generation_key(call, sample, bench.hash_of),
        grade_key=grade_key(call, bench.hash_of),
    )


def _of_the_case(call: Call, bench: Bench) -> dict[str, Any]:
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
