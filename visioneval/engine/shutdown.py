"""How work that takes long is stopped: by an interrupt, by the budget, by a fault, or by a second interrupt at once.

An interrupt and the budget let what is generated be judged. After a fault, such as a refused key, no call of any kind
begins. In either case the calls in flight come to their end, each within its own time limit, and are cached.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from visioneval.engine.calls.calls import Calls
from visioneval.errors import BudgetError, ClosingError, StoppedError


@dataclass(slots=True)
class Progress:
    """What stops the workers, and what they left undone."""

    calls: Calls
    out_of_budget: bool = False
    left: int = 0
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _failure: Exception | None = None

    @property
    def failure(self) -> Exception | None:
        """The fault that ends the run, once there is one."""
        return self._failure or self.calls.broken

    @property
    def is_over(self) -> bool:
        """Whether nothing new is to begin."""
        return self.stopping.is_set() or self.failure is not None

    def stop(self) -> None:
        """Begins nothing new."""
        self.stopping.set()
        self.calls.throttle.close()

    def leave(self, error: Exception) -> None:
        """Counts something that was left undone, and stops: for want of money, or for a fault, which is kept.

        A fault of ours is no other: what is in flight is paid for.
        """
        self.left += 1
        if isinstance(error, BudgetError):
            self.out_of_budget = True
        elif not isinstance(error, ClosingError):
            self._failure = self._failure or error
            self.calls.throttle.shut()
        self.stop()

    def check(self) -> None:
        """Raises the fault that ended the run, where there was one."""
        if self.failure is not None:
            raise self.failure


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended: whether all was done, and whether the budget ended it."""

    complete: bool
    out_of_budget: bool = False


@contextlib.contextmanager
def interrupts(loop: asyncio.AbstractEventLoop, progress: Progress, say: Callable[[str], None]) -> Iterator[None]:
    """The first interrupt lets running calls finish, the second cancels the task that this is called in."""
    running = asyncio.current_task()
    assert running is not None

    def interrupt() -> None:
        if progress.is_over:
            running.cancel()
        else:
            say("stopping once the running calls are done; interrupt again to stop now")
        progress.stop()

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


def root_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to tell: what stopped the run, where that is known, as the others may follow from it."""
    stops: BaseExceptionGroup[BaseException] = group.subgroup(StoppedError) or group
    error = stops.exceptions[0]
    return root_error(error) if isinstance(error, BaseExceptionGroup) else error
