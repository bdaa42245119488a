"""The steps of one drawing call: draw, keep each picture, grade it, judge it, and make its record.

No step lets an exception through but ``StoppedError``: an error of a cell is its record.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from visioneval import images
from visioneval.engine.bench import Bench, described, guarded
from visioneval.engine.grading import Graded, grade, stop_for_key
from visioneval.engine.plain import amount
from visioneval.errors import ImageError, ProviderError, StorageError
from visioneval.plan import Call, generation_key, grade_key
from visioneval.providers.base import Drawing, DrawRequest
from visioneval.records import CellError, Record
from visioneval.rules import CellVerdict, judge_cell
from visioneval.types import Picture, Status, TaskType, Verdict


@dataclass(frozen=True, slots=True)
class Drawn:
    """How a call ended, and how long it took. ``error`` stands where there is no drawing."""

    seconds: float
    drawing: Drawing = field(default_factory=Drawing)
    error: CellError | None = None


async def work(call: Call, bench: Bench) -> AsyncIterator[Record]:
    """Draws a call and finishes its cells one by one. Raises ``StoppedError`` alone."""
    drawn = await draw(call, bench)
    for at, sample in enumerate(call.samples):
        yield await finish(call, sample, at, drawn, bench)


async def draw(call: Call, bench: Bench) -> Drawn:
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
        ask = provider.edit if call.task_type is TaskType.IMAGE_EDITING else provider.generate
        drawing = await guarded(ask(request), Drawing)
        return Drawn(drawing=drawing, seconds=perf_counter() - start)
    except ProviderError as error:
        stop_for_key(error, call.run.label, bench)
        if error.kind == "refused":
            return Drawn(drawing=Drawing(refused=str(error)), seconds=perf_counter() - start)
        failed = CellError(stage="generate", kind=error.kind, message=bench.plain.text(error))
    except Exception as error:
        failed = _unexpected(error, bench)
    return Drawn(seconds=perf_counter() - start, error=failed)


async def finish(call: Call, sample: int, at: int, drawn: Drawn, bench: Bench) -> Record:
    """One cell of a call, from its picture to its record."""
    make = await asyncio.to_thread(_record_maker, call, sample, drawn, bench)
    if drawn.error is not None:
        return make(status=Status.ERROR, verdict=Verdict.ERROR, error=drawn.error)
    if drawn.drawing.refused is not None:
        return _refused(call, bench.plain.text(drawn.drawing.refused), make)
    kept = await asyncio.to_thread(_keep, call, sample, at, drawn.drawing.pictures, bench)
    if isinstance(kept, CellError):
        return make(status=Status.ERROR, verdict=Verdict.ERROR, error=kept)
    picture, relative = kept
    make = partial(
        make,
        status=Status.COMPLETED,
        artifact_path=relative,
        artifact_sha256=picture.sha256,
        mime=picture.mime,
        width=picture.width,
        height=picture.height,
    )
    if call.case.expect.refusal:
        return make(verdict=Verdict.FAIL, failed_rules=("expect.refusal",), skipped_rules=_rules(call))
    params = drawn.drawing.run_params or call.params
    return _judged(call, await grade(call, sample, picture, params, bench), make)


def _record_maker(call: Call, sample: int, drawn: Drawn, bench: Bench) -> partial[Record]:
    share = len(call.samples)
    cost = amount(drawn.drawing.cost_usd)
    plain = bench.plain
    return partial(
        Record,
        run_id=bench.writer.info.run_id,
        test_id=call.case.id,
        model_label=call.run.label,
        sample_index=sample,
        task_type=call.task_type,
        prompt=plain.text(call.prompt),
        tags=call.case.tags,
        flaky=call.case.flaky,
        metadata=plain.mapping(call.case.metadata),
        provider=call.run.provider,
        run_params=plain.mapping(drawn.drawing.run_params or call.params),
        usage=plain.counts(drawn.drawing.usage),
        cost_usd=None if cost is None else cost / share,
        seconds=round(drawn.seconds / share, 6),
        attempts=1,
        generation_key=generation_key(call, sample, bench.hash_of),
        grade_key=grade_key(call, bench.hash_of),
    )


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


def _keep(call: Call, sample: int, at: int, pictures: Sequence[Any], bench: Bench) -> tuple[Picture, str] | CellError:
    """Saves the picture at a place in a drawing. Raises ``StorageError`` alone."""
    if at >= len(pictures):
        message = f"pictures asked for: {len(call.samples)}; given: {len(pictures)}"
        return CellError(stage="generate", kind="missing_picture", message=message)
    data = pictures[at]
    if not isinstance(data, bytes):
        message = f"a picture is handed over as bytes, not as {type(data).__name__}"
        return CellError(stage="generate", kind="bad_image", message=message)
    try:
        picture = images.picture_at(Path(), data)
        name = f"{sample}{images.EXTENSIONS[picture.mime.removeprefix('image/')]}"
        relative = bench.writer.save(call.case.id, call.run.label, name, data)
        return replace(picture, path=bench.writer.folder / relative), relative
    except StorageError:
        raise
    except ImageError as error:
        return CellError(stage="generate", kind="bad_image", message=str(error))
    except Exception as error:
        return _unexpected(error, bench)


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


def _unexpected(error: Exception, bench: Bench) -> CellError:
    return CellError(stage="generate", kind="internal", message=bench.plain.text(described(error)))
