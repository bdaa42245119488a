"""``make bench-scale``, second part: what limits a large cluster, by a simulation with costs that are measured here.

Everything that a run does in one place has a cost per cell: the shared limits, the driver, and after the cells reading,
summary, report and merging. The simulation is a closed queue: each worker has ``AT_ONCE`` cells at once, each cell asks the
shared limits for its calls, waits for the providers, and hands its records to the driver, which hands out the next one.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import os
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import ray
from PIL import Image

import visioneval as ve
from visioneval import read_info
from visioneval.report.html.report import read_slim, write_report
from visioneval.running.keys import RateLimitKey
from visioneval.scale.ray.limits import Leases, SharedLimits, leased

CELLS = 600
LEASES = 4000
WORKERS = (10, 100, 1000)
SIZES = (10**5, 10**6, 10**7)
CALLS = 2
"""Calls of a cell: a generation and a judgement."""
KEY = RateLimitKey("openai", "model", "generate")


@dataclass(frozen=True)
class Costs:
    """CPU seconds per cell of what is done in one place; ``lease`` is per call."""

    lease: float
    driver: float
    summary: float
    report: float
    merge: float


@dataclass(frozen=True)
class Work:
    """A kind of cell: what it takes on a worker, in seconds, and how many a worker has at once."""

    name: str
    seconds: float
    at_once: int


KINDS = (Work("OCR of existing outputs", 0.45, 1), Work("generate 15 s, judge 5 s", 20.0, 32))
MOST_CALLS = 4096
"""The highest ``--max-concurrency``, which all workers share."""


class MeasuredLimits(SharedLimits):
    """The shared limits, which also report the CPU time of their process."""

    async def cpu_seconds(self) -> float:
        return process_time()


class Caller:
    """An actor that makes calls which take no time."""

    async def make(self, limits: Any, worker: int, count: int) -> None:
        leases = Leases(partial(limits.send.remote, worker), partial(limits.grants.remote, worker))
        throttle, _ = leased(leases, {}, 256, None)
        serving = asyncio.create_task(leases.serve())
        left = iter(range(count))

        async def nothing() -> None:
            return None

        async def caller() -> None:
            for _ in left:
                await throttle.call(KEY, nothing)

        await asyncio.gather(*(caller() for _ in range(64)))
        serving.cancel()


def write(folder: Path) -> None:
    """A suite of small cells."""
    Image.new("RGB", (64, 64), "red").save(folder / "red.png")
    cases = [{"id": f"case{at}", "prompt": f"red {at}", "outputs": {"m": ["red.png"]}} for at in range(CELLS)]
    suite = {"name": "small", "cases": cases, "models": [{"provider": "files", "label": "m"}]}
    suite |= {"graders": [{"key": "file", "type": "properties"}], "verdict": ["file.blank"]}
    (folder / "suite.yaml").write_text(json.dumps(suite), encoding="utf-8")


def cpu_seconds_of(work: Callable[[], object]) -> float:
    """The CPU time of this process, with its threads: unlike the time on a clock, other work does not change it."""
    start = process_time()
    work()
    return process_time() - start


def written_report() -> None:
    folder = Path("runs/all")
    write_report(read_slim(folder, read_info(folder), None), Path("report"), single_file=False, trust=False)


def measured() -> Costs:
    """Measures all costs on this machine."""
    limits = ray.remote(MeasuredLimits).options(num_cpus=0).remote({}, 256, None, 0.0)
    callers = [ray.remote(Caller).remote() for _ in range(2)]
    before = ray.get(limits.cpu_seconds.remote())
    ray.get([caller.make.remote(limits, at, LEASES) for at, caller in enumerate(callers)])
    lease = (ray.get(limits.cpu_seconds.remote()) - before) / (2 * LEASES)
    options: dict[str, Any] = {"runs": "runs", "cache": "cache"}
    ve.run("suite.yaml", run_id="first", ray=True, workers=2, limit=1, **options)
    one = cpu_seconds_of(lambda: ve.run("suite.yaml", run_id="one", ray=True, workers=2, limit=1, **options))
    driver = cpu_seconds_of(lambda: ve.run("suite.yaml", run_id="all", ray=True, workers=2, **options))
    summary = cpu_seconds_of(lambda: ve.load_run("runs/all"))
    report = cpu_seconds_of(written_report)
    for part in (1, 2):
        ve.run("suite.yaml", run_id=f"part{part}", shard=f"{part}/2", **options)
    merge = cpu_seconds_of(lambda: ve.merge("runs/part1", "runs/part2", run_id="merged"))
    return Costs(lease, (driver - one) / CELLS, summary / CELLS, report / CELLS, merge / CELLS)


def rate(work: Work, workers: int, costs: Costs) -> tuple[float, dict[str, float]]:
    """Cells per second of a cluster in the steady state, and how busy the shared limits and the driver are, 0 to 1."""
    draw = random.Random(0)
    slots = workers * work.at_once if work.at_once == 1 else min(workers * work.at_once, MOST_CALLS)
    events: list[tuple[float, int]] = [(draw.uniform(0, work.seconds), at) for at in range(slots)]
    heapq.heapify(events)
    free_at = {"shared limits": 0.0, "driver": 0.0}
    busy = dict.fromkeys(free_at, 0.0)

    def served(name: str, at: float, seconds: float) -> float:
        free_at[name] = max(free_at[name], at) + seconds
        busy[name] += seconds
        return free_at[name]

    count, now = 0, 0.0
    total = max(20_000, 10 * len(events))
    while count < total:
        now, slot = heapq.heappop(events)
        granted = served("shared limits", now, CALLS * costs.lease)
        done = served("driver", granted, costs.driver)
        heapq.heappush(events, (done + work.seconds * draw.uniform(0.5, 1.5), slot))
        count += 1
    return count / now, {name: min(1.0, seconds / now) for name, seconds in busy.items()}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write(Path())
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        ray.init("local", num_cpus=4, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
        costs = measured()
        ray.shutdown()
    for name in ("lease", "driver", "summary", "report", "merge"):
        print(f"{name}: {getattr(costs, name) * 1e3:.2f} ms per {'call' if name == 'lease' else 'cell'}")
    for work in KINDS:
        print(f"\n{work.name}")
        print(
            f"{'workers':>8} {'cells/s':>9} {'limits busy':>12} {'driver busy':>12}  "
            + "  ".join(f"{size:>10,} cells" for size in SIZES)
        )
        for workers in WORKERS:
            speed, busy = rate(work, workers, costs)
            hours = "  ".join(f"{size / speed / 3600:>14.1f} h" for size in SIZES)
            shares = (busy["shared limits"], busy["driver"])
            print(f"{workers:>8} {speed:>9.1f} {shares[0]:>12.0%} {shares[1]:>12.0%}  {hours}")
    print("\nafter the cells, in one process")
    for name in ("summary", "merge"):  # a report shows 10,000 cells at most: tests.bench.large measures large ones
        print(
            f"{name:>8}: " + "  ".join(f"{getattr(costs, name) * size / 60:>10.1f} min of {size:,}" for size in SIZES)
        )


if __name__ == "__main__":
    main()
