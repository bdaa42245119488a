"""Plans, calls and contexts for tests that call the engine's functions directly, without the command line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

from PIL import Image

from visioneval.engine.calls.calls import Calls
from visioneval.engine.calls.cost.budget import Budget
from visioneval.engine.calls.cost.paid_calls import prices_of
from visioneval.engine.calls.log import CallLog
from visioneval.engine.calls.throttle import Throttle
from visioneval.engine.cells.context import RunContext, sanitizer_for
from visioneval.engine.components import Components, build_components
from visioneval.engine.prepare.planning import Planned, SuiteOptions, load_plan
from visioneval.engine.prepare.provenance import describe_run
from visioneval.expansion.file_hashes import FileHashes
from visioneval.expansion.keys import generation_key, grade_key
from visioneval.expansion.plan import Call, Plan
from visioneval.media.images import sha256
from visioneval.records.model import Record, RunInfo
from visioneval.records.questions import QuestionsWriter
from visioneval.records.writer import RunWriter
from visioneval.suite.selection.selection import Selection


def planned(
    path: Path, *, samples: int | None = None, variables: dict[str, str] | None = None, **select: Any
) -> Planned:
    """A trusted suite and its plan; ``select`` are fields of the selection."""
    options = SuiteOptions(selection=Selection(**select, samples=samples), variables=variables or {}, trust=True)
    return load_plan(path, options)


def plan_of(path: Path, **options: Any) -> Plan:
    """The plan of a trusted suite."""
    return planned(path, **options).plan


def calls_for(plan: Plan, **changes: Any) -> Calls:
    """The calls of a run without a cache."""
    budget = Budget(plan.suite.budget_usd)
    return Calls(Throttle(plan.suite.limits, 8), prices_of(plan), budget, CallLog(), **changes)


def info_of(suite: Planned, run_id: str = "r", *, typed: Iterable[str] = (), note: str | None = None) -> RunInfo:
    """The ``run.json`` of a new run."""
    return describe_run(
        suite.plan, suite.loaded, run_id=run_id, note=note, command_line=tuple(typed)
    )  # fmt: skip


@contextmanager
def open_context(
    suite: Planned, calls: Calls | None = None, components: Components | None = None, **changes: Any
) -> Iterator[RunContext]:
    """The context of a new run ``r``; ``changes`` are fields of the context."""
    plan = suite.plan
    writer = RunWriter.create(plan.folder / "runs", info_of(suite))
    defaults: dict[str, Any] = {
        "plan": plan,
        "components": components or build_components(plan),
        "calls": calls or calls_for(plan),
        "writer": writer,
        "hash_of": FileHashes(plan.folder),
        "sanitizer": sanitizer_for(plan),
        "questions": QuestionsWriter(writer.folder),
    }
    try:
        yield RunContext(**{**defaults, **changes})
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
