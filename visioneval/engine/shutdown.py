"""Stops long-running work: on an interrupt, on an exhausted budget, on a fault, or at once on a second interrupt.

After an interrupt or an exhausted budget, existing outputs are still judged. After an interrupt, no new measurement on
this machine starts: it would delay the end, and a resumed run makes it at no cost. After a fault, such as a refused API
key, no new call starts. After a local cache could not be written, existing outputs are judged too, because only the
records of their cells keep what was paid for. In all cases calls in flight finish within their timeouts, and are cached
if possible.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from visioneval.counted import count_of
from visioneval.engine.calls.calls import Calls
from visioneval.engine.cells.measurements import Measurements
from visioneval.errors import BudgetError, ClosingError, StoppedError


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
        parts = [count_of(calls, "call")] * bool(calls) + [count_of(measurements, "measurement")] * bool(measurements)
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

    def check(self) -> None:
        """Raises the fault that ended the run, if any."""
        if self.failure is not None:
            raise self.failure


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
