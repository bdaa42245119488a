"""The loop: workers pull calls from the plan, finish their cells, and append their records."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

from visioneval.builtin import builtin
from visioneval.engine.bench import Bench, secrets_around
from visioneval.engine.cell import work
from visioneval.engine.tools import Tools
from visioneval.errors import StoppedError
from visioneval.images import MAX_BYTES
from visioneval.plan import Call, Plan
from visioneval.question_file import QuestionsWriter
from visioneval.records import Record, RunWriter
from visioneval.suite.model import template_folders

Watch = Callable[[Record], None]
Tell = Callable[[str], None]


def execute(plan: Plan, tools: Tools, writer: RunWriter, *, max_concurrency: int, watch: Watch, tell: Tell) -> bool:
    """Runs every call of the plan and returns whether all were done.

    ``watch`` gets each finished record, ``tell`` a line for the person at the terminal. The first interrupt
    (Ctrl-C) lets running calls finish, the second cancels them. A run that cannot be written any more raises
    ``StorageError``, a key that a provider refuses ``AuthError``; nothing else gets out.
    """
    try:
        return asyncio.run(_execute(plan, tools, writer, max_concurrency, watch, tell))
    except BaseExceptionGroup as group:
        raise _cause(group) from None


def _cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to tell: what stopped the run, where that is known, as the others may follow from it."""
    told: BaseExceptionGroup[BaseException] = group.subgroup(StoppedError) or group
    error = told.exceptions[0]
    return _cause(error) if isinstance(error, BaseExceptionGroup) else error


async def _execute(plan: Plan, tools: Tools, writer: RunWriter, max_concurrency: int, watch: Watch, tell: Tell) -> bool:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="measure") as threads:
        loop.set_default_executor(threads)
        hash_of = lru_cache(maxsize=4096)(lambda path: _hash_of(plan.folder / path))
        folders = template_folders(plan.suite, plan.folder, builtin("prompts"))
        questions = QuestionsWriter(writer.folder)
        bench = Bench(tools, writer, plan.folder, hash_of, secrets_around(plan), questions, plan.suite.vars, folders)
        stop = asyncio.Event()
        calls = plan.calls()
        with _interrupts(loop, stop, tell), contextlib.suppress(asyncio.CancelledError), contextlib.closing(questions):
            async with asyncio.TaskGroup() as group:
                for _ in range(min(max_concurrency, plan.cells)):
                    group.create_task(_pull(calls, stop, bench, watch))
            return not stop.is_set() or next(calls, None) is None
        return False


async def _pull(calls: Iterator[Call], stop: asyncio.Event, bench: Bench, watch: Watch) -> None:
    """One worker. All share the iterator, so that no call exists before somebody is free for it.

    A record is written on the loop's own thread: it is small, and must not queue behind pictures to be measured.
    """
    for call in calls:
        async for record in work(call, bench):
            bench.writer.append(record)
            watch(record)
        if stop.is_set():
            return


@contextlib.contextmanager
def _interrupts(loop: asyncio.AbstractEventLoop, stop: asyncio.Event, tell: Tell) -> Iterator[None]:
    running = asyncio.current_task()
    assert running is not None

    def interrupt() -> None:
        if stop.is_set():
            running.cancel()
        else:
            tell("stopping once the running calls are done; interrupt again to stop now")
        stop.set()

    try:
        loop.add_signal_handler(signal.SIGINT, interrupt)
        loop.add_signal_handler(signal.SIGTERM, interrupt)
    except (NotImplementedError, RuntimeError, ValueError):  # not the main thread, or a system without signals
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)


def _hash_of(path: Path) -> str:
    try:
        if not path.is_file():
            return "missing"
        if path.stat().st_size > MAX_BYTES:
            return "too large"  # and so never read
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return "missing"
