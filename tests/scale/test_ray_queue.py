"""The queue of jobs for workers, and the shards that it hands out."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from engine_parts import plan_of

from visioneval.running.jobs import every_cell
from visioneval.running.plan import Plan
from visioneval.scale.ray.jobs import JobQueue, QueuedJob, shards


def plan(folder: Path, *cases: dict[str, Any], judged: bool = False, **suite: Any) -> Plan:
    rubric = {"type": "rubric", "judge": "eye", "metrics": {"good": {"type": "pass_fail", "description": "it is good"}}}
    text = {
        "name": "demo",
        "cases": [{"id": f"case{at}", **case} for at, case in enumerate(cases)],
        "models": [{"provider": "mock", "label": "a"}, {"provider": "mock", "label": "b"}],
        "judges": {"eye": {"provider": "openai", "model": "gpt-5.4"}} if judged else {},
        "graders": [{"key": "file", "type": "properties"}, *([{"key": "look", **rubric}] if judged else [])],
        "verdict": ["not file.blank"],
        **suite,
    }
    (folder / "suite.yaml").write_text(json.dumps(text))
    return plan_of(folder / "suite.yaml")


def cases_of(shard: list[QueuedJob]) -> list[str]:
    return [job.job.call.case.id for job in shard]


def test_without_paid_judges_each_job_is_a_shard(tmp_path: Path) -> None:
    small_plan = plan(tmp_path, {"prompt": "a tree"}, {"prompt": "a tree"})
    assert [cases_of(shard) for shard in shards(small_plan, every_cell)] == [["case0"], ["case0"], ["case1"], ["case1"]]


def test_what_may_ask_a_judge_the_same_is_one_shard(tmp_path: Path) -> None:
    small_plan = plan(tmp_path, {"prompt": "a tree"}, {"prompt": "a boat"}, {"prompt": "a tree"}, judged=True)
    grouped = [cases_of(shard) for shard in shards(small_plan, every_cell)]
    assert grouped == [["case0", "case0", "case2", "case2"], ["case1", "case1"]]


def test_cases_that_share_outputs_are_one_shard(tmp_path: Path) -> None:
    small_plan = plan(
        tmp_path,
        {"prompt": "a tree"},
        {"prompt": "a boat"},
        {"prompt": "an oak", "output_of": "case0"},
        {"prompt": "an oak"},
        judged=True,
    )
    assert sorted(map(cases_of, shards(small_plan, every_cell))) == [
        ["case0", "case0", "case3", "case3"],
        ["case1", "case1"],
    ]


def queue_of(count: int, folder: Path) -> JobQueue:
    small_plan = plan(folder, *({"prompt": f"tree {at}"} for at in range(count)))
    return JobQueue(iter([[QueuedJob(job)] for job in every_cell(small_plan) if job.call.run.label == "a"]))


def test_jobs_of_a_lost_worker_are_handed_out_again(tmp_path: Path) -> None:
    async def run() -> None:
        queue = queue_of(2, tmp_path)
        first, second = await queue.take(), await queue.take()
        assert first is not None
        assert second is not None
        third = asyncio.create_task(queue.take())  # waits, as the others may be lost
        await asyncio.sleep(0)
        queue.end(first)
        assert await third == first
        queue.end([])
        queue.end([])
        assert await queue.take() is None
        await queue.join()
        assert not queue.is_left()

    asyncio.run(run())


def test_jobs_of_one_shard_come_back_as_one(tmp_path: Path) -> None:
    async def run() -> None:
        jobs = list(map(QueuedJob, every_cell(plan(tmp_path, *[{"prompt": "a"}] * 2))))
        queue = JobQueue(iter([jobs[:2], jobs[2:]]))
        await queue.take()
        await queue.take()
        queue.end([jobs[0]])
        queue.end([jobs[3], jobs[2]])
        assert await queue.take() == [jobs[0]]
        assert await queue.take() == [jobs[3], jobs[2]]

    asyncio.run(run())


def test_a_closed_queue_waits_only_for_what_was_taken(tmp_path: Path) -> None:
    async def run() -> None:
        queue = queue_of(3, tmp_path)
        await queue.take()
        queue.close()
        assert await queue.take() is None
        joined = asyncio.create_task(queue.join())
        await asyncio.sleep(0)
        assert not joined.done()
        queue.end([])
        await joined
        assert queue.is_left()

    asyncio.run(run())
