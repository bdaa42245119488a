"""Running asynchronous work to its end: in a script, inside a running event loop, interrupted and failing."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from visioneval import AuthError, BudgetError, ProviderError, StorageError
from visioneval.errors import ClosingError
from visioneval.running.calls.attempts import Budget, CallLog
from visioneval.running.calls.calls import Calls
from visioneval.running.calls.prices import Prices
from visioneval.running.calls.throttle import Throttle
from visioneval.running.cells.services import Interrupt
from visioneval.running.execution import OPEN_FILES, Outcome, Progress, run_to_end

Runner = Callable[..., Outcome]
DONE = Outcome(complete=True)


@pytest.fixture
def progress() -> Progress:
    return Progress(Calls(Throttle({}, 8), Prices(), Budget(), CallLog()))


def in_script(*arguments: Any) -> Outcome:
    return run_to_end(*arguments)


def in_event_loop(*arguments: Any) -> Outcome:
    """As in a notebook: the loop of the main thread is running and waits."""

    async def cell() -> Outcome:
        return run_to_end(*arguments)

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(cell())
    finally:
        loop.close()


@pytest.fixture(params=[in_script, in_event_loop])
def run(request: pytest.FixtureRequest) -> Runner:
    runner: Runner = request.param
    return runner


def test_a_run_may_open_as_many_files_as_its_calls_need(progress: Progress) -> None:
    """Shells often allow 1,024 or 256, and each call in flight has a connection."""
    limits, few = resource.getrlimit(resource.RLIMIT_NOFILE), 256

    async def work() -> Outcome:
        return Outcome(complete=resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(OPEN_FILES, limits[1]))

    resource.setrlimit(resource.RLIMIT_NOFILE, (few, limits[1]))
    try:
        assert run_to_end(work, progress, print).complete
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize(("runner", "thread"), [(in_script, "MainThread"), (in_event_loop, "run")])
def test_the_work_has_a_thread_and_its_own_threads_end_with_it(progress: Progress, runner: Runner, thread: str) -> None:
    outcome = Outcome(complete=False, out_of_budget=True)

    async def work() -> Outcome:
        assert threading.current_thread().name.startswith(thread)
        assert (await asyncio.to_thread(lambda: threading.current_thread().name)).startswith("work")
        return outcome

    assert runner(work, progress, print) is outcome
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("work", "run"))]


FREE, NO_GENERATIONS, NO_CALLS = (False, False), (True, False), (True, True)


@pytest.mark.parametrize(
    ("error", "out_of_budget", "closed"),
    [
        (BudgetError("used up"), True, NO_GENERATIONS),
        (ClosingError("the run is being stopped"), False, NO_GENERATIONS),
        (AuthError("refused"), False, NO_CALLS),
        (StorageError("disk full"), False, NO_CALLS),
        (ValueError("a bug"), False, NO_CALLS),
    ],
    ids=repr,
)
def test_unfinished_work_stops_new_work_and_a_fault_ends_all_calls(
    progress: Progress, error: Exception, out_of_budget: bool, closed: tuple[bool, bool]
) -> None:
    throttle = progress.calls.throttle
    state = progress.is_over, progress.left, (throttle.closed.is_set(), throttle.ended.is_set())
    assert state == (False, 0, FREE)
    progress.leave(error)
    state = progress.is_over, progress.left, (throttle.closed.is_set(), throttle.ended.is_set())
    assert (state, progress.out_of_budget) == ((True, 1, closed), out_of_budget)
    is_fault = closed == NO_CALLS
    with pytest.raises(type(error), match=str(error)) if is_fault else contextlib.nullcontext():
        progress.check()


def test_the_first_fault_is_reported(progress: Progress) -> None:
    for error in (ClosingError("late"), AuthError("first"), StorageError("second"), BudgetError("third")):
        progress.leave(error)
    assert (str(progress.failure), progress.left, progress.out_of_budget) == ("first", 4, True)


def test_a_cache_that_cannot_be_written_is_a_fault(progress: Progress) -> None:
    progress.calls.broken = StorageError("cache full")
    assert progress.is_over
    with pytest.raises(StorageError, match="cache full"):
        progress.check()


def test_the_first_interrupt_lets_running_work_finish(progress: Progress, run: Runner) -> None:
    messages: list[str] = []
    interrupts: list[Interrupt] = []

    async def work() -> Outcome:
        interrupts[0]()
        await progress.stopping.wait()
        await asyncio.sleep(0)
        assert not progress.calls.throttle.ended.is_set(), "outputs are still judged"
        return Outcome(complete=False, out_of_budget=True)

    assert run(work, progress, messages.append, interrupts.append).out_of_budget, "the outcome of the work counts"
    assert len(messages) == 1


def test_the_second_interrupt_cancels_the_work(progress: Progress, run: Runner) -> None:
    interrupts: list[Interrupt] = []
    events: list[str] = []

    async def work() -> Outcome:
        try:
            interrupts[0]()
            await progress.stopping.wait()
            interrupts[0]()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            events.append("cancelled")
            raise
        return DONE

    assert run(work, progress, lambda _: None, interrupts.append) == Outcome(complete=False)
    assert events == ["cancelled"]


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_signals_interrupt_a_script_until_its_end(progress: Progress, first: signal.Signals) -> None:
    messages: list[str] = []
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    async def work() -> Outcome:
        signal.raise_signal(first)
        await progress.stopping.wait()
        signal.raise_signal(signal.SIGINT)
        await asyncio.Event().wait()
        return DONE

    assert in_script(work, progress, messages.append) == Outcome(complete=False)
    assert messages == ["stopping: waiting for what has begun (interrupt again to stop now)"]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


def waits_for_result(frame: FrameType | None) -> bool:
    """Whether a thread waits for a future."""
    names = []
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return names[:3] == ["wait", "wait", "wait"]


async def press_ctrl_c() -> None:
    """Sends SIGINT to the main thread once it waits."""
    main = threading.main_thread().ident
    assert main is not None
    while not waits_for_result(sys._current_frames()[main]):  # noqa: ASYNC110 - no event tells what a thread does
        await asyncio.sleep(0.001)
    signal.pthread_kill(main, signal.SIGINT)


@pytest.mark.parametrize(("times", "complete"), [(1, True), (2, False)])
def test_ctrl_c_in_a_running_event_loop_interrupts_the_work(progress: Progress, times: int, complete: bool) -> None:
    async def work() -> Outcome:
        await press_ctrl_c()
        await progress.stopping.wait()
        if times == 2:
            await press_ctrl_c()
            await asyncio.Event().wait()
        return DONE

    assert in_event_loop(work, progress, lambda _: None).complete is complete


@pytest.mark.parametrize(
    ("errors", "reported"),
    [
        (AuthError("a"), "a"),
        ([ValueError("a")], "a"),
        ([ValueError("a"), KeyError("b")], "a"),
        ([ValueError("a"), BudgetError("b")], "b"),
        ([ProviderError("a", kind="invalid"), ExceptionGroup("", [ValueError("b"), StorageError("c")])], "c"),
        ([ExceptionGroup("", [ExceptionGroup("", [ValueError("a")])])], "a"),
    ],
)
def test_of_a_group_the_first_error_that_stops_the_run_is_raised(
    progress: Progress, run: Runner, errors: Any, reported: str
) -> None:
    async def work() -> Outcome:
        raise errors if isinstance(errors, Exception) else ExceptionGroup("several", errors)

    with pytest.raises(Exception, match=f"^{reported}$") as failure:
        run(work, progress, print)
    assert failure.value.__suppress_context__ is isinstance(errors, list)


def test_a_failure_before_the_second_interrupt_is_reported_as_a_message(progress: Progress, run: Runner) -> None:
    messages: list[str] = []
    interrupts: list[Interrupt] = []

    async def work() -> Outcome:
        progress.leave(AuthError("the key is refused"))
        interrupts[0]()
        await asyncio.Event().wait()
        return DONE

    assert run(work, progress, messages.append, interrupts.append) == Outcome(complete=False)
    assert messages == ["the key is refused"]


def test_an_interrupt_after_the_end_does_nothing(progress: Progress, run: Runner) -> None:
    interrupts: list[Interrupt] = []

    async def work() -> Outcome:
        return DONE

    run(work, progress, print, interrupts.append)
    interrupts[0]()
    assert not progress.is_over
