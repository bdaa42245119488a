"""The steps of one drawing call: draw, keep each picture, grade it, judge it, and make its record.

No step lets an exception through but ``StorageError``: an error of a cell is its record.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from visioneval import images
from visioneval.engine.tools import Tools
from visioneval.errors import GraderError, ImageError, ProviderError, StorageError
from visioneval.graders.base import Grade, Subject
from visioneval.plan import Call, HashOf, digest, generation_key, grade_key
from visioneval.providers.base import Drawing, DrawRequest
from visioneval.records import CellError, Fingerprint, GraderRecord, Record, RunWriter
from visioneval.rules import CellVerdict, judge_cell
from visioneval.suite.graders import BaseGrader
from visioneval.types import Metric, Picture, Score, Status, TaskType, Verdict


@dataclass(frozen=True, slots=True)
class Bench:
    """Where cells are worked on: the run's tools, its writer and its file hashes."""

    tools: Tools
    writer: RunWriter
    folder: Path
    hash_of: HashOf


@dataclass(frozen=True, slots=True)
class Drawn:
    """How a call ended, and how long it took. ``error`` stands where there is no drawing."""

    seconds: float
    drawing: Drawing = field(default_factory=Drawing)
    error: CellError | None = None


@dataclass(frozen=True, slots=True)
class Graded:
    """What all graders of a cell found together."""

    scores: dict[str, Score]
    reasons: dict[str, str]
    failure_tags: tuple[str, ...]
    graders: tuple[GraderRecord, ...]

    @property
    def error(self) -> CellError | None:
        """The first thing that could not be measured."""
        first = next((grader for grader in self.graders if grader.error), None)
        if first is None:
            return None
        return CellError(stage="grade", kind="unmeasured", message=f"{first.key}: {first.error}")


async def work(call: Call, bench: Bench) -> list[Record]:
    """Draws a call and finishes each of its cells. Raises ``StorageError`` alone."""
    drawn = await draw(call, bench)
    return [await finish(call, sample, at, drawn, bench) for at, sample in enumerate(call.samples)]


async def draw(call: Call, bench: Bench) -> Drawn:
    """Asks the provider, and turns whatever goes wrong into an error of the cell."""
    provider = bench.tools.providers[call.run.label]
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
        ask = provider.edit if call.task_type is TaskType.IMAGE_EDITING else provider.generate
        return Drawn(drawing=await ask(request), seconds=perf_counter() - start)
    except ProviderError as error:
        if error.kind == "refused":
            return Drawn(drawing=Drawing(refused=str(error)), seconds=perf_counter() - start)
        failed = CellError(stage="generate", kind=error.kind, message=str(error))
    except Exception as error:
        failed = _unexpected("generate", error)
    return Drawn(seconds=perf_counter() - start, error=failed)


async def finish(call: Call, sample: int, at: int, drawn: Drawn, bench: Bench) -> Record:
    """One cell of a call, from its picture to its record."""
    make = await asyncio.to_thread(_record_maker, call, sample, drawn, bench)
    if drawn.error is not None:
        return make(status=Status.ERROR, verdict=Verdict.ERROR, error=drawn.error)
    if drawn.drawing.refused is not None:
        return _refused(call, drawn.drawing.refused, make)
    try:
        data = drawn.drawing.pictures[at]
        picture, relative = await asyncio.to_thread(_keep, call, sample, data, bench)
    except IndexError:
        message = f"asked for {len(call.samples)} pictures, got {len(drawn.drawing.pictures)}"
        missing = CellError(stage="generate", kind="missing_picture", message=message)
        return make(status=Status.ERROR, verdict=Verdict.ERROR, error=missing)
    except ImageError as error:
        bad = CellError(stage="generate", kind="bad_image", message=str(error))
        return make(status=Status.ERROR, verdict=Verdict.ERROR, error=bad)
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
        return make(verdict=Verdict.FAIL, failed_rules=("expect.refusal",))
    return _judged(call, await grade(call, sample, picture, bench), make)


def _record_maker(call: Call, sample: int, drawn: Drawn, bench: Bench) -> partial[Record]:
    share = len(call.samples)
    cost = drawn.drawing.cost_usd
    return partial(
        Record,
        run_id=bench.writer.info.run_id,
        test_id=call.case.id,
        model_label=call.run.label,
        sample_index=sample,
        task_type=call.task_type,
        prompt=call.prompt,
        tags=call.case.tags,
        metadata=call.case.metadata,
        provider=call.run.provider,
        run_params=dict(drawn.drawing.run_params or call.params),
        usage=dict(drawn.drawing.usage) if drawn.drawing.usage is not None else None,
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
        failure_tags=("refused",),
        reasons={"refused": why},
        skipped_rules=tuple(rule.text for rule, _ in call.rules),
    )


def _keep(call: Call, sample: int, data: bytes, bench: Bench) -> tuple[Picture, str]:
    mime, width, height = images.inspect(data)
    name = f"{sample}{images.EXTENSIONS[mime.removeprefix('image/')]}"
    relative = bench.writer.save(call.case.id, call.run.label, name, data)
    path = bench.writer.folder / relative
    return Picture(path, images.sha256(data), mime, width, height), relative


async def grade(call: Call, sample: int, picture: Picture, bench: Bench) -> Graded:
    """Everything that the graders of a cell say, each by itself: one that fails leaves ``null`` and stops nobody."""
    subject = Subject(
        case=call.case,
        task_type=call.task_type,
        prompt=call.prompt,
        requested_size=_requested_size(call.params),
        picture=picture,
        files=call.files,
        save=lambda name, data: bench.writer.save(call.case.id, call.run.label, f"{sample}.{name}", data),
    )
    told = await asyncio.gather(*(_ask(grader, subject, bench) for grader in call.graders))
    scores: dict[str, Score] = {}
    reasons: dict[str, str] = {}
    tags: dict[str, None] = {}
    for said, _ in told:
        scores.update(said.scores)
        reasons.update(said.reasons)
        tags.update(dict.fromkeys(said.failure_tags))
    return Graded(scores, reasons, tuple(tags), tuple(record for _, record in told))


def _requested_size(params: Mapping[str, Any]) -> str | None:
    size = params.get("size")
    return size if isinstance(size, str) else None


async def _ask(config: BaseGrader, subject: Subject, bench: Bench) -> tuple[Grade, GraderRecord]:
    declared = config.metrics(subject.case)
    start = perf_counter()
    try:
        said = await bench.tools.graders[config.key].grade(subject)
    except StorageError:
        raise
    except (GraderError, ProviderError, ImageError) as error:
        said = Grade(scores={}, error=str(error))
    except Exception as error:
        said = Grade(scores={}, error=_unexpected("grade", error).message)
    scores, bad = checked_scores(said.scores, declared)
    complaints = [said.error] if said.error else bad
    record = GraderRecord(
        key=config.key,
        type=str(getattr(config, "type", "")),
        error="; ".join(complaints) or None,
        details=dict(said.details),
        usage=None if said.usage is None else dict(said.usage),
        cost_usd=said.cost_usd,
        seconds=round(perf_counter() - start, 6),
        fingerprint=Fingerprint(
            config_sha256=digest(config.model_dump(exclude={"when"})), tool_versions=dict(said.tool_versions)
        ),
    )
    return Grade(scores=scores, reasons=said.reasons, failure_tags=said.failure_tags), record


def checked_scores(said: Mapping[str, Score], declared: Mapping[str, Metric]) -> tuple[dict[str, Score], list[str]]:
    """The declared metrics and no other, each of its type or ``None``, and what was wrong with the rest."""
    scores: dict[str, Score] = {}
    bad = [f"wrote {name!r}, which it does not declare" for name in said if name not in declared]
    for name, metric in declared.items():
        value = said.get(name)
        fits = isinstance(value, bool) if metric.type == "bool" else _is_number(value)
        scores[name] = value if fits else None
        if not fits and value is not None:
            bad.append(f"{name} is {value!r}, not a {metric.type}")
        elif name not in said:
            bad.append(f"{name} was not measured")
    return scores, bad


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


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
        error=graded.error or _no_rule(said, call.rules),
    )


def _no_rule(said: CellVerdict, rules: Sequence[Any]) -> CellError | None:
    if said.verdict is not Verdict.ERROR:
        return None
    if said.unmeasured:
        return CellError(stage="verdict", kind="unmeasured", message=f"not measured: {', '.join(said.unmeasured)}")
    message = f"none of the {len(rules)} rules of this cell could be evaluated"
    return CellError(stage="verdict", kind="no_rule", message=message)


def _unexpected(stage: Any, error: Exception) -> CellError:
    return CellError(stage=stage, kind="internal", message=f"{type(error).__name__}: {error}")
