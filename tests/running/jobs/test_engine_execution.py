"""Executing a plan: workers, records, messages, and what ends a run early."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from engine_parts import calls_for, info_of, open_services, plan_of
from record_factory import generated_png
from toys import Toy

from visioneval import AuthError, Generation, GenerationRequest, Grade, GradingContext, Record, StorageError
from visioneval.errors import ClosingError
from visioneval.records.writer import RunWriter
from visioneval.running import keys as file_hashes
from visioneval.running import runner as run_module
from visioneval.running.cells.cell import Job, run_job
from visioneval.running.cells.services import Components, Interrupt, Listener
from visioneval.running.execution import Outcome, execute
from visioneval.running.jobs import every_cell
from visioneval.running.keys import FileHashes, RateLimitKey
from visioneval.running.runner import by_limit_key, run_all

PNG = generated_png("red")
PRICED: dict[str, Any] = {
    "prices": {"mine:Generate": {"per_call": 1}},
    "limits": {"mine:Generate": {"max_concurrency": 1}},
}
DONE = Outcome(complete=True)


class StubProvider:
    """A provider that calls ``before`` for each request."""

    def __init__(self, before: Callable[[GenerationRequest], Any] = lambda _: None) -> None:
        self.before = before
        self.cases: list[str] = []

    async def generate(self, request: GenerationRequest) -> Generation:
        self.cases.append(request.case.id)
        self.before(request)
        return Generation(outputs=(PNG,))


class StubGrader:
    """A grader that returns good scores, or raises an error for the prompt ``refused``."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def grade(self, context: GradingContext) -> Grade:
        if self.error is not None and context.prompt == "refused":
            raise self.error
        return Grade(scores={"fine": True, "level": 0.5})


class Run:
    """Executes the plan of a suite, and collects its records and messages."""

    def __init__(self, path: Path, provider: Any = None) -> None:
        suite = plan_of(path)
        self.plan = suite
        self.provider = provider or StubProvider()
        self.records: list[Record] = []
        self.messages: list[str] = []
        self.interrupts: list[Interrupt] = []
        self.writer = RunWriter.create(Path("runs"), info_of(suite))

    def execute(self, **options: Any) -> Outcome:
        providers = {run.label: self.provider for run in self.plan.runs}
        listener = Listener(self.records.append, say=self.messages.append, started=self.interrupts.append)
        parts = Components(providers, {"look": StubGrader()})
        try:
            work = partial(run_all, **options)
            return execute(work, self.plan, parts, self.writer, calls_for(self.plan), listener)
        finally:
            self.writer.finish("complete", "2025-01-01T00:00:00+00:00")


@pytest.mark.parametrize("error", [AuthError("refused key"), StorageError("disk full"), ClosingError("stopping")])
def test_an_error_that_stops_the_run_is_raised_after_the_other_cells_of_a_call(toy: Toy, error: Exception) -> None:
    plan = plan_of(toy.write({}, {"id": "counter", "prompt": "refused", "output_of": "case0"}))
    records: list[Record] = []

    async def scenario() -> None:
        parts = Components({"toy": StubProvider()}, {"look": StubGrader(error)})
        with open_services(plan, components=parts) as services:
            async for record in run_job(next(every_cell(plan)), services):
                records.append(record)  # noqa: PERF401 - those before the error count

    with pytest.raises(type(error), match=str(error)):
        asyncio.run(scenario())
    assert [record.test_id for record in records] == ["case0"]


def test_an_interrupt_in_the_last_cell_completes_the_run(toy: Toy) -> None:
    run = Run(toy.write({}))
    run.provider.before = lambda _: run.interrupts[0]()
    assert run.execute() == DONE


def test_a_cell_that_an_interrupt_did_not_start_leaves_the_run_incomplete(toy: Toy) -> None:
    """Its job was taken, and waited for the turn of its call."""

    async def interrupted(request: GenerationRequest) -> Generation:
        run.interrupts[0]()
        await asyncio.sleep(0.01)
        return Generation(outputs=(PNG,))

    run = Run(toy.write({}, {}, **PRICED))
    run.provider.generate = interrupted
    assert run.execute() == Outcome(complete=False)
    assert [record.test_id for record in run.records] == ["case0"]


def test_waiting_calls_are_reported(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "STATUS_INTERVAL_S", 0)
    suite = plan_of(toy.write())
    statuses: list[list[str]] = []
    writer = RunWriter.create(Path("runs"), info_of(suite))
    parts = Components({"toy": StubProvider()}, {"look": StubGrader()})
    listener = Listener(status=statuses.append)
    assert execute(run_all, suite, parts, writer, calls_for(suite), listener) == DONE
    writer.finish("complete", "2025-01-01T00:00:00+00:00")
    assert [] in statuses


def test_every_cell_of_a_call_is_a_job(toy: Toy) -> None:
    models = [{"provider": "openai", "label": "m", "params": {"model": "gpt-image-2", "n": 2}}]
    jobs = list(every_cell(plan_of(toy.write({}, {}, models=models, samples=2))))
    assert [(job.call.case.id, job.generate) for job in jobs] == [
        ("case0", (0, 1)), ("case0", (2, 3)), ("case1", (0, 1)), ("case1", (2, 3))
    ]  # fmt: skip
    assert all(isinstance(job, Job) and job.regrade == () for job in jobs)


def test_model_runs_are_grouped_by_rate_limit(toy: Toy) -> None:
    openai = {"provider": "openai", "params": {"model": "gpt-image-2"}}
    models = [{**openai, "label": "a"}, {"provider": "mine:Generate", "label": "b"}, {**openai, "label": "c"}]
    plan = plan_of(toy.write(models=models))
    groups = by_limit_key(plan)
    assert {key: [run.label for run in part.runs] for key, part in groups.items()} == {
        RateLimitKey("openai", "gpt-image-2", "generate"): ["a", "c"],
        RateLimitKey("mine:Generate", None, "generate"): ["b"],
    }
    assert sum(part.cells for part in groups.values()) == plan.cells


class TestHashes:
    """Digests of input files."""

    def test_a_file_is_hashed_once(self, tmp_path: Path) -> None:
        hash_of = FileHashes(tmp_path)
        (tmp_path / "a").write_bytes(b"x")
        assert hash_of(Path("a")) == sha256(b"x").hexdigest()
        (tmp_path / "a").write_bytes(b"y")
        assert hash_of(Path("a")) == sha256(b"x").hexdigest()
        assert FileHashes(tmp_path)(tmp_path / "a") == sha256(b"y").hexdigest()

    def test_files_that_were_prepared_are_not_read_again(self, tmp_path: Path) -> None:
        hash_of = FileHashes(tmp_path)
        (tmp_path / "a").write_bytes(b"x")
        asyncio.run(hash_of.prepare([Path("a"), Path("none")]))
        (tmp_path / "a").unlink()
        (tmp_path / "none").write_bytes(b"y")
        assert [hash_of(Path(name)) for name in ("a", "none")] == [sha256(b"x").hexdigest(), "missing"]

    def test_more_files_than_it_remembers_are_read_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(file_hashes, "MAX_FILES", 2)
        hash_of = FileHashes(tmp_path)
        for data in (b"x", b"y"):
            for name in "abc":
                (tmp_path / name).write_bytes(data)
            assert [hash_of(Path(name)) for name in "abc"] == [sha256(data).hexdigest()] * 3
            hash_of(Path("d"))

    @pytest.mark.parametrize("name", ["none", ".", "a\0b", "long" * 100])
    def test_a_path_without_a_file_is_missing(self, tmp_path: Path, name: str) -> None:
        assert FileHashes(tmp_path)(Path(name)) == "missing"

    def test_a_file_that_no_run_reads_is_not_hashed(self, tmp_path: Path) -> None:
        with (tmp_path / "a").open("wb") as file:
            os.truncate(file.fileno(), file_hashes.MAX_BYTES + 1)
        assert FileHashes(tmp_path)(Path("a")) == "too large"
