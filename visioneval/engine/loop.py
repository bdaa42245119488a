"""Runs asynchronous work from synchronous code, with threads for images and a clean stop on an interrupt.

In a script, the work has the calling thread. Inside a running event loop, such as a notebook's, it gets its own thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from visioneval.aio import processors
from visioneval.engine.listener import Interrupt
from visioneval.engine.process import prepare_process
from visioneval.engine.shutdown import Outcome, Progress, interrupts, root_error
from visioneval.stopwatch import MeasuredPool

_CHECK_S = 0.2
"""A signal that arrives just before a thread begins to wait does not end its wait, so waits are short."""

_PATIENCE_S = 1.0
"""How long a second interrupt waits for threads: enough to cache an answer, less than to read the text in an image."""


class InterruptRequest:
    """Interrupts a run from any thread, also with a request that comes before the run has started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._interrupt: Interrupt | None = None
        self._pending = 0

    def connect(self, interrupt: Interrupt) -> None:
        """Connects the started run, and passes on earlier requests."""
        with self._lock:
            self._interrupt = interrupt
            pending, self._pending = self._pending, 0
        for _ in range(pending):
            interrupt()

    def __call__(self) -> None:
        with self._lock:
            if self._interrupt is None:
                self._pending += 1
                return
        self._interrupt()


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
    request = InterruptRequest()

    async def supervised() -> Outcome:
        with contextlib.suppress(asyncio.CancelledError), _threads(), interrupts(progress, say) as stop:
            request.connect(stop)
            started(stop)
            return await work()
        if progress.failure is not None:  # an interrupt came first
            say(str(progress.failure))
        return Outcome(complete=False)

    prepare_process()
    try:
        if not _is_in_event_loop():
            return asyncio.run(supervised())
        return _run_in_thread(supervised, request)
    except BaseExceptionGroup as group:
        raise root_error(group) from None


@contextlib.contextmanager
def _threads() -> Iterator[None]:
    """The threads of the event loop. Waits for their work at the end, unless the block is cancelled."""
    loop, threads = asyncio.get_running_loop(), MeasuredPool(processors(), thread_name_prefix="measure")
    loop.set_default_executor(threads)
    try:
        yield
        threads.shutdown()
    except asyncio.CancelledError:
        threads.abandon(_PATIENCE_S)
        loop.set_default_executor(ThreadPoolExecutor(1))  # the loop waits for the threads of this one when it closes
        raise
    except BaseException:
        threads.shutdown()
        raise


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _run_in_thread(work: Callable[[], Coroutine[Any, Any, Outcome]], interrupt: Interrupt) -> Outcome:
    """Waits for the work in another thread; Ctrl-C here interrupts it there."""
    with ThreadPoolExecutor(1, thread_name_prefix="run") as thread:
        future = None
        while True:
            try:
                future = future or thread.submit(lambda: asyncio.run(work()))
                while not future.done():
                    wait([future], _CHECK_S)
                return future.result()
            except KeyboardInterrupt:
                interrupt()
