"""Plans, calls and contexts for tests that call the engine's functions directly, without the command line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

from PIL import Image

from visioneval import CellRef, Question, Record, Reply, RunInfo
from visioneval.media.images import sha256
from visioneval.records.questions import QuestionsWriter
from visioneval.records.writer import RunWriter
from visioneval.running.calls.attempts import Budget, CallLog
from visioneval.running.calls.calls import Calls
from visioneval.running.calls.judges import Judges
from visioneval.running.calls.prices import prices_of
from visioneval.running.calls.throttle import Throttle
from visioneval.running.cells.services import Components, Services, build_components
from visioneval.running.keys import FileHashes, generation_key, grade_key
from visioneval.running.loading import SuiteOptions, load_plan
from visioneval.running.plan import Call, Plan
from visioneval.running.prepare import describe_run
from visioneval.running.sanitize import sanitizer_for
from visioneval.suite.runs import Selection


class StubJudge:
    """A judge that answers every question alike, or raises an error."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked: list[CellRef] = []

    async def ask(self, question: Question, about: CellRef) -> Reply:
        self.asked.append(about)
        if self.error is not None:
            raise self.error
        return Reply(f"about {question.parts[0]}", "judge-1")


def plan_of(path: Path, *, samples: int | None = None, variables: dict[str, str] | None = None, **select: Any) -> Plan:
    """The plan of a trusted suite; ``select`` are fields of the selection."""
    options = SuiteOptions(selection=Selection(**select, samples=samples), variables=variables or {}, trust=True)
    return load_plan(path, options)


def calls_for(plan: Plan, **changes: Any) -> Calls:
    """The calls of a run without a cache."""
    budget = Budget(plan.suite.budget_usd)
    changes = {"sanitizer": sanitizer_for(plan), **changes}
    return Calls(Throttle(plan.suite.limits, 8), prices_of(plan), budget, CallLog(), **changes)


def info_of(plan: Plan, run_id: str = "r", *, typed: Iterable[str] = (), note: str | None = None) -> RunInfo:
    """The ``run.json`` of a new run."""
    return describe_run(plan, run_id=run_id, note=note, command_line=tuple(typed))


@contextmanager
def open_services(
    plan: Plan, calls: Calls | None = None, components: Components | None = None, **changes: Any
) -> Iterator[Services]:
    """The services of a new run ``r``; ``changes`` are fields of the services."""
    writer = RunWriter.create(plan.folder / "runs", info_of(plan))
    parts, calls = components or build_components(plan), calls or calls_for(plan)
    defaults: dict[str, Any] = {
        "plan": plan,
        "components": parts,
        "calls": calls,
        "writer": writer,
        "hash_of": FileHashes(plan.folder),
        "judges": Judges(plan.suite.judges, parts.judges, calls),
        "questions": QuestionsWriter(writer.folder),
    }
    try:
        yield Services(**{**defaults, **changes})
    finally:
        writer.finish("complete", "2025-01-01T00:00:00+00:00")


def recorded(folder: Path, plan: Plan, **changes: Any) -> list[Record]:
    """The records that a run of ``plan`` in ``folder`` has when every cell passed, with an image file for each call."""
    return [
        record_of(folder, plan, graded, sample, **changes)
        for call in plan.calls()
        for graded in (call, *call.dependents)
        for sample in call.samples
    ]


def record_of(folder: Path, plan: Plan, call: Call, sample: int = 0, **changes: Any) -> Record:
    """The record of one cell that passed. Its image, distinct for every cell, is written to ``folder``."""
    hash_of = FileHashes(plan.folder)
    source = call.case.output_of or call.case.id
    name = f"artifacts/{source}/{call.run.label}/{sample}.png"
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        number = crc32(name.encode())
        Image.new("RGB", (32, 24), (number & 255, number >> 8 & 255, number >> 16 & 255)).save(path)
    defaults: dict[str, Any] = {
        "run_id": "r",
        "test_id": call.case.id,
        "model_label": call.run.label,
        "sample_index": sample,
        "task_type": call.task_type,
        "prompt": call.prompt,
        "provider": call.run.provider,
        "status": "completed",
        "verdict": "PASS",
        "artifact_path": name,
        "artifact_sha256": sha256(path.read_bytes()),
        "mime": "image/png",
        "width": 32,
        "height": 24,
        "generation_key": generation_key(call, sample, hash_of),
        "grade_key": grade_key(call, hash_of),
    }
    return Record(**{**defaults, **changes})
