"""How work that takes long is stopped: by an interrupt, by the budget, or by a second interrupt at once."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from visioneval.engine.calls import Calls
from visioneval.errors import StoppedError


@dataclass(slots=True)
class Progress:
    """What stops the workers, and what they left undone."""

    calls: Calls
    out_of_budget: bool = False
    left: int = 0
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        """Begins nothing new."""
        self.stopping.set()
        self.calls.throttle.close()

    def leave(self, *, out_of_budget: bool) -> None:
        """Counts something that was left undone; without money everything stops."""
        self.left += 1
        if out_of_budget:
            self.out_of_budget = True
            self.stop()


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
        if progress.stopping.is_set():
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


def cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to tell: what stopped the run, where that is known, as the others may follow from it."""
    told: BaseExceptionGroup[BaseException] = group.subgroup(StoppedError) or group
    error = told.exceptions[0]
    return cause(error) if isinstance(error, BaseExceptionGroup) else error
