"""The loop: workers pull calls from the plan, finish their cells, and append their records."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

from visioneval import images
from visioneval.engine.cell import Bench, work
from visioneval.engine.tools import Tools
from visioneval.errors import StorageError
from visioneval.plan import Call, Plan
from visioneval.records import Record, RunWriter

Watch = Callable[[Record], None]


def execute(plan: Plan, tools: Tools, writer: RunWriter, *, max_concurrency: int, watch: Watch) -> bool:
    """Runs every call of the plan and returns whether all were done.

    The first interrupt (Ctrl-C) lets running calls finish, the second cancels them. A run that cannot be written
    any more raises ``StorageError``; nothing else gets out.
    """
    try:
        return asyncio.run(_execute(plan, tools, writer, max_concurrency, watch))
    except* StorageError as group:
        raise _first(group) from None


def _first(group: BaseExceptionGroup[StorageError]) -> StorageError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


async def _execute(plan: Plan, tools: Tools, writer: RunWriter, max_concurrency: int, watch: Watch) -> bool:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="measure") as threads:
        loop.set_default_executor(threads)
        bench = Bench(tools, writer, plan.folder, lru_cache(maxsize=4096)(_hash_of))
        stop = asyncio.Event()
        calls = plan.calls()
        done = False
        with _interrupts(loop, stop), contextlib.suppress(asyncio.CancelledError):
            async with asyncio.TaskGroup() as group:
                for _ in range(min(max_concurrency, plan.cells)):
                    group.create_task(_pull(calls, stop, bench, watch))
            done = not stop.is_set() or next(calls, None) is None
        return done


async def _pull(calls: Iterator[Call], stop: asyncio.Event, bench: Bench, watch: Watch) -> None:
    """One worker. All share the iterator, so that no call exists before somebody is free for it."""
    for call in calls:
        for record in await work(call, bench):
            await asyncio.to_thread(bench.writer.append, record)
            watch(record)
        if stop.is_set():
            return


@contextlib.contextmanager
def _interrupts(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> Iterator[None]:
    running = asyncio.current_task()
    assert running is not None

    def interrupt() -> None:
        if stop.is_set():
            running.cancel()
        stop.set()

    try:
        loop.add_signal_handler(signal.SIGINT, interrupt)
        loop.add_signal_handler(signal.SIGTERM, interrupt)
    except (
        NotImplementedError,
        RuntimeError,
        ValueError,
    ):  # not the main thread, or a system without signals
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)


def _hash_of(path: Path) -> str:
    try:
        return images.sha256(path.read_bytes())
    except OSError:
        return "missing"
