"""What a worker of a cluster sends to a store, and what it does where the store fails or another was there before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from stores import FaultyStore

from visioneval import StorageError, TaskType, UsageError
from visioneval.records.outputs import OperationFile
from visioneval.records.questions import read_questions
from visioneval.records.stores.store import ObjectStore
from visioneval.running.cells.cell import Job, StoredOutput
from visioneval.scale.ray.jobs import UnsentFile
from visioneval.scale.ray.worker import StoreOutputs, named_by_content

pytestmark = pytest.mark.slow

OLD, NEW = b"an output", b"another output"
PATH = "artifacts/tree/m/0.png"
CALL: Any = SimpleNamespace(task_type=TaskType.IMAGE_GENERATION)
JOB = Job(CALL, generate=(0,))
CELL: Any = SimpleNamespace(
    task_type=TaskType.VIDEO_GENERATION, case=SimpleNamespace(id="fox"), run=SimpleNamespace(label="m")
)


def store_with_run(url: str) -> ObjectStore:
    created = ObjectStore(url)
    created.put("r/run.json", b"{}")
    created.put("r/questions.json", b'{"schema_version": 2, "prompts": []}')
    return created


@pytest.fixture
def store(runs: str) -> ObjectStore:
    """A folder of runs at S3 with a run ``r``."""
    return store_with_run(runs)


@pytest.fixture
def any_store(any_runs: str) -> ObjectStore:
    """The same in each kind of store."""
    return store_with_run(any_runs)


@pytest.fixture
def worker(tmp_path: Path) -> Callable[..., StoreOutputs]:
    """Workers, each on a node of its own."""

    def create(
        store: ObjectStore, name: str, *, has_outputs: bool = False, say: Callable[[str], None] = print
    ) -> StoreOutputs:
        (tmp_path / name).mkdir()
        info, folder = SimpleNamespace(run_id="r"), tmp_path / "driver"
        assignment: Any = SimpleNamespace(info=info, folder=folder, has_outputs=has_outputs, runs_url=store.url)
        return StoreOutputs(assignment, tmp_path / name, say)

    return create


def sent(outputs: StoreOutputs, data: bytes, job: Job = JOB, *, again: bool = False) -> tuple[str, list[UnsentFile]]:
    """Does a job that saves one output. Returns its path, and what the driver has to send."""

    async def work() -> tuple[str, list[UnsentFile]]:
        async with outputs.opened(job, again=again) as (_, writer):
            relative = writer.save("tree", "m", "0.png", data)
            assert (writer.folder / relative).read_bytes() == data
            return relative, list(writer.send())

    return asyncio.run(work())


def test_first_attempt_has_the_usual_name(any_store: ObjectStore, worker: Callable[..., StoreOutputs]) -> None:
    first = worker(any_store, "first")
    assert sent(first, OLD) == (PATH, [])
    assert any_store.read(f"r/{PATH}") == OLD
    assert read_questions(first.folder) == ()
    assert [path.name for path in first.folder.iterdir()] == ["questions.json"]
    assert [item.name for item in any_store.entries("r")] == ["artifacts", "questions.json", "run.json"]


def test_late_worker_cannot_replace_an_output(any_store: ObjectStore, worker: Callable[..., StoreOutputs]) -> None:
    """The attempt of another worker has another name; what one process put there since stays as it is."""
    again = f"artifacts/tree/m/{named_by_content('0.png', NEW)}"
    assert sent(worker(any_store, "other"), NEW, again=True) == (again, [])
    late = worker(any_store, "late")
    assert sent(late, OLD) == (PATH, [])
    assert (any_store.read(f"r/{PATH}"), any_store.read(f"r/{again}")) == (OLD, NEW)
    any_store.put(f"r/{PATH}", NEW)  # `run --resume` in one process
    with pytest.raises(StorageError, match=r"0\.png: another process has written this output: resume the run"):
        sent(late, OLD)
    assert any_store.read(f"r/{PATH}") == NEW


def test_resumed_run_replaces_nothing(store: ObjectStore, worker: Callable[..., StoreOutputs]) -> None:
    store.put(f"r/{PATH}", OLD)
    path, unsent = sent(worker(store, "resumed", has_outputs=True), NEW)
    assert path != PATH
    assert not unsent
    assert (store.read(f"r/{PATH}"), store.read(f"r/{path}")) == (OLD, NEW)


def test_request_whose_reply_is_lost(store: ObjectStore, s3: FaultyStore, worker: Callable[..., StoreOutputs]) -> None:
    """The output arrived, and is this worker's."""
    s3.add("lost", "PUT", "/artifacts/")
    assert sent(worker(store, "first"), OLD) == (PATH, [])
    assert store.read(f"r/{PATH}") == OLD


def operation(folder: Any) -> OperationFile:
    return OperationFile(folder, "fox", "m", "gemini", (0,), "generate:1")


def test_another_worker_asks_for_an_operation_that_a_lost_one_has_begun(
    store: ObjectStore, worker: Callable[..., StoreOutputs]
) -> None:
    job = Job(call=CELL, generate=(0,))

    async def lost_before_it_sends() -> None:
        async with worker(store, "lost").opened(job, again=False) as (_, writer):
            await asyncio.to_thread(operation(writer).begin, "operations/7")
            assert any("operation-0-" in item.key for item in store.walk("r/artifacts"))

    async def next_attempt(name: str) -> str | None:
        async with worker(store, name).opened(job, again=True) as (_, writer):
            begun = operation(writer).read()
            operation(writer).end("operations/7")
            assert writer.send() == ()
            return begun

    asyncio.run(lost_before_it_sends())
    assert asyncio.run(next_attempt("second")) == "operations/7"
    assert asyncio.run(next_attempt("third")) is None


@pytest.mark.parametrize(("kind", "times"), [("503", 12), ("403", 2)])
def test_store_that_fails(
    store: ObjectStore, s3: FaultyStore, worker: Callable[..., StoreOutputs], kind: str, times: int
) -> None:
    """The driver gets the files, and the user one message until a file arrives again."""
    messages: list[str] = []
    first = worker(store, "first", say=messages.append)
    s3.add(kind, "PUT", "/artifacts/", times=times)
    for _ in range(2):
        assert sent(first, OLD) == (PATH, [UnsentFile("tree", "m", "0.png", OLD)])
    assert sent(first, OLD) == (PATH, [])
    (message,) = messages
    assert message.startswith(f"cannot create {store.url}/r/{PATH}: ")
    assert message.endswith("; the driver sends the outputs that a worker cannot")


def test_outputs_to_grade_again(store: ObjectStore, worker: Callable[..., StoreOutputs], tmp_path: Path) -> None:
    """They are in the folder of the job, which is that of the run; one that the store lacks is missing."""
    store.put(f"r/{PATH}", OLD)

    def existing(path: str | None, folder: Path) -> StoredOutput:
        record: Any = SimpleNamespace(artifact_path=path)
        return StoredOutput(JOB.call, record, folder)

    node, driver = worker(store, "node", has_outputs=True), tmp_path / "driver"

    async def read() -> bytes:
        missing, unsafe = "artifacts/tree/m/1.png", "../../secret"
        later = Job(JOB.call, (), unchanged=existing(PATH, driver).record)
        regrade = tuple(existing(path, driver) for path in (missing, unsafe, None))
        job = Job(JOB.call, (), regrade, next_turn=later)
        async with node.opened(job, again=False) as (located, writer):
            folder = writer.folder
            assert [stored.folder for stored in located.regrade] == [folder] * 3
            assert [path.name for path in folder.rglob("*.*")] == ["0.png"]
            assert writer.send() == ()
            return (folder / PATH).read_bytes()

    assert asyncio.run(read()) == OLD


def test_node_without_access(store: ObjectStore, s3: FaultyStore, worker: Callable[..., StoreOutputs]) -> None:
    s3.add("403", "PUT", "/claims/worker-")
    with pytest.raises(UsageError, match=r"cannot write s3://.*/r/claims/worker-\w+: access denied"):
        worker(store, "first")
    store.delete("r/run.json")
    with pytest.raises(StorageError, match=r"cannot read s3://.*/r/run\.json: there is no such object"):
        worker(store, "second")
