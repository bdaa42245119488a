"""Runs asynchronous work from synchronous code, with threads for images and a clean stop.

In a script, the work has the calling thread. Inside a running event loop, such as a notebook's, it gets its own thread.

It stops on an interrupt, on an exhausted budget, on a fault, or at once on a second interrupt. After an interrupt or an
exhausted budget, existing outputs are still judged. After an interrupt, no new measurement on this machine starts: it
would delay the end, and a resumed run makes it at no cost. After a fault, such as a refused API key, no new call
starts. After a local cache could not be written, existing outputs are judged too, because only the records of their
cells keep what was paid for. In all cases calls in flight finish within their timeouts, and are cached if possible.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import resource
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from visioneval.errors import BudgetError, ClosingError, StoppedError, count_of
from visioneval.records.writer import OutputWriter
from visioneval.running.calls.calls import Calls
from visioneval.running.cells.measurements import Measurements
from visioneval.running.cells.services import Components, Interrupt, Listener, Services, open_services
from visioneval.running.plan import Plan
from visioneval.threads import SPARE_THREADS, Threads, processors

T = TypeVar("T")
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
    is_in_event_loop = True
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        is_in_event_loop = False
    try:
        return _run_in_thread(supervised, request) if is_in_event_loop else asyncio.run(supervised())
    except BaseExceptionGroup as group:
        raise root_error(group) from None


def execute(
    work: Callable[[Services, Progress], Awaitable[bool]],
    plan: Plan,
    components: Components,
    writer: OutputWriter,
    calls: Calls,
    listener: Listener,
) -> Outcome:
    """Opens the services of a run and does ``work`` with them, which returns whether anything is left to begin.

    The first interrupt (Ctrl-C) lets running calls finish, the second cancels them. Raises ``StorageError`` if the
    run cannot be written, and ``AuthError`` if a provider refuses an API key, after the calls in flight have ended.
    """
    progress = Progress(calls)

    async def with_services() -> Outcome:
        with open_services(plan, components, writer, calls, listener) as services:
            progress.measurements = services.measurements
            is_left = await work(services, progress)
        return progress.outcome(is_left=is_left)

    return run_to_end(with_services, progress, listener.say, listener.started)


@contextlib.contextmanager
def _threads() -> Iterator[None]:
    """The threads of the event loop. Waits for their work at the end, unless the block is cancelled."""
    loop = asyncio.get_running_loop()
    threads = Threads(processors() + SPARE_THREADS, thread_name_prefix="work")
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


@dataclass(slots=True)
class Progress:
    """Stops the workers, and counts unfinished work."""

    calls: Calls
    out_of_budget: bool = False
    left: int = 0
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    measurements: Measurements | None = None
    """What an interrupt closes."""
    _failure: Exception | None = None

    @property
    def failure(self) -> Exception | None:
        """The fault that ends the run, if any."""
        return self._failure or self.calls.broken

    @property
    def is_over(self) -> bool:
        """Whether no new work may start."""
        return self.stopping.is_set() or self.failure is not None

    def stop(self) -> None:
        """Starts no new work."""
        self.stopping.set()
        self.calls.throttle.close()

    def interrupt(self) -> str:
        """Starts no new work, and no measurement that waits for a thread. Returns what there is to wait for."""
        self.stop()
        if self.measurements is not None:
            self.measurements.close()
        calls = self.calls.throttle.counts.running
        measurements = 0 if self.measurements is None else self.measurements.running
        parts = [count_of(number, name) for number, name in ((calls, "call"), (measurements, "measurement")) if number]
        return " and ".join(parts) or "what has begun"

    def leave(self, error: Exception) -> None:
        """Counts unfinished work and stops: because of the budget, or because of a fault, which is stored.

        Internal errors are treated like any fault, because calls in flight are paid for.
        """
        self.left += 1
        if isinstance(error, BudgetError):
            self.out_of_budget = True
        elif not isinstance(error, ClosingError):
            self._failure = self._failure or error
            self.calls.throttle.shut()
        self.stop()

    async def work_through(self, items: Iterator[T], workers: int, do: Callable[[T], Awaitable[None]]) -> None:
        """Workers take one item after the other, created on demand, until nothing is left or the work is over."""

        async def work() -> None:
            for item in items:
                try:
                    await do(item)
                except Exception as error:
                    self.leave(error)
                if self.is_over:
                    return

        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(work())

    def check(self) -> None:
        """Raises the fault that ended the run, if any."""
        if self.failure is not None:
            raise self.failure

    def outcome(self, *, is_left: bool) -> Outcome:
        """How the work ended: ``is_left`` says whether any was never begun. Raises the fault that ended it, if any."""
        self.check()
        out_of_budget = self.out_of_budget or self.calls.budget.refused > 0  # includes refused judge calls
        return Outcome(complete=not (is_left or self.left or out_of_budget), out_of_budget=out_of_budget)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome: whether everything was done, and whether the budget stopped it."""

    complete: bool
    out_of_budget: bool = False


@contextlib.contextmanager
def interrupts(progress: Progress, say: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """The first interrupt lets running calls finish, the second cancels the current task.

    Handles Ctrl-C and SIGTERM in the main thread. Yields a function that interrupts from any thread.
    """
    loop, running = asyncio.get_running_loop(), asyncio.current_task()
    assert running is not None

    def interrupt() -> None:
        if progress.is_over:
            progress.interrupt()
            running.cancel()
        else:
            say(f"stopping: waiting for {progress.interrupt()} (interrupt again to stop now)")

    def interrupt_from_thread() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(interrupt)

    handled: list[signal.Signals] = []
    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # another thread, or no signals here
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, interrupt)
            handled.append(number)
    try:
        yield interrupt_from_thread
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


def root_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to report: a ``StoppedError`` if there is one, as the others may follow from it."""
    stops: BaseExceptionGroup[BaseException] = group.subgroup(StoppedError) or group
    error = stops.exceptions[0]
    return root_error(error) if isinstance(error, BaseExceptionGroup) else error


OPEN_FILES = 10_000
"""Enough for the highest ``--max-concurrency`` for a generator and a judge, and within the most that macOS allows."""
_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 8 * 1024 * 1024
"""Below the 16 MB blocks that Pillow allocates for pixels."""


def prepare_process() -> None:
    """Allows ``OPEN_FILES``, or as many as the system does, and makes glibc return the pixels of each image.

    Shells often set a limit of 1,024 open files, or 256 on macOS. A call beyond it would fail as if its server could
    not be reached. By default glibc retains the pixels of the last image in every thread: with 16 processors, four
    images of 25 megapixels took 940 MB, one at a time, not 440.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        with suppress(OSError, ValueError):  # a sandbox may refuse it
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    with suppress(OSError, AttributeError, TypeError):  # no glibc
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
