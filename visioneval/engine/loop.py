"""Runs asynchronous work from synchronous code, with threads for images and a clean stop on an interrupt.

In a script, the work has the calling thread. Inside a running event loop, such as a notebook's, it gets its own thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from visioneval.engine.listener import Interrupt
from visioneval.engine.memory import release_memory, unmap_large_blocks
from visioneval.engine.shutdown import Outcome, Progress, interrupts, root_error


def run_to_end(
    work: Callable[[], Coroutine[Any, Any, Outcome]],
    progress: Progress,
    say: Callable[[str], None],
    started: Callable[[Interrupt], None] = lambda _: None,
) -> Outcome:
    """Runs ``work`` and returns its outcome; an interrupted one is not complete.

    ``started`` receives a function that interrupts the work from any thread. Raises what ``work`` raises, and only the
    most important error of several.
    """
    interrupt: list[Interrupt] = []

    async def supervised() -> Outcome:
        with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="measure") as threads:
            asyncio.get_running_loop().set_default_executor(threads)
            with interrupts(progress, say) as stop, contextlib.suppress(asyncio.CancelledError):
                interrupt.append(stop)
                started(stop)
                return await work()
            if progress.failure is not None:  # an interrupt came first
                say(str(progress.failure))
            return Outcome(complete=False)

    unmap_large_blocks()
    try:
        if not _is_in_event_loop():
            return asyncio.run(supervised())
        return _run_in_thread(supervised, lambda: interrupt[0]() if interrupt else None)
    except BaseExceptionGroup as group:
        raise root_error(group) from None
    finally:
        release_memory()


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _run_in_thread(work: Callable[[], Coroutine[Any, Any, Outcome]], interrupt: Interrupt) -> Outcome:
    """Waits for the work in another thread; Ctrl-C here interrupts it there."""
    with ThreadPoolExecutor(1, thread_name_prefix="run") as thread:
        future = thread.submit(lambda: asyncio.run(work()))
        while True:
            try:
                return future.result()
            except KeyboardInterrupt:
                interrupt()
