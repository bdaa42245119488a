"""Running asynchronous work to its end: in a script, inside a running event loop, interrupted and failing."""

from __future__ import annotations

import asyncio
import resource
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from visioneval import AuthError, BudgetError, ProviderError, StorageError
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


def test_the_outcome_of_the_work_is_returned(progress: Progress, run: Runner) -> None:
    outcome = Outcome(complete=False, out_of_budget=True)

    async def work() -> Outcome:
        await asyncio.sleep(0)
        return outcome

    assert run(work, progress, print) is outcome


def test_a_script_runs_the_work_in_its_thread(progress: Progress) -> None:
    async def work() -> Outcome:
        assert threading.current_thread() is threading.main_thread()
        return DONE

    assert in_script(work, progress, print) == DONE


def test_a_running_event_loop_gets_a_thread_for_the_work(progress: Progress) -> None:
    async def work() -> Outcome:
        assert threading.current_thread().name.startswith("run")
        return DONE

    assert in_event_loop(work, progress, print) == DONE


def test_threads_of_the_work_end_with_it(progress: Progress, run: Runner) -> None:
    async def work() -> Outcome:
        assert (await asyncio.to_thread(lambda: threading.current_thread().name)).startswith("work")
        return DONE

    assert run(work, progress, print) == DONE
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("work", "run"))]


def test_the_first_interrupt_lets_running_work_finish(progress: Progress, run: Runner) -> None:
    messages: list[str] = []
    interrupts: list[Interrupt] = []

    async def work() -> Outcome:
        interrupts[0]()
        await progress.stopping.wait()
        await asyncio.sleep(0)
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


def test_a_signal_interrupts_a_script(progress: Progress) -> None:
    messages: list[str] = []

    async def work() -> Outcome:
        signal.raise_signal(signal.SIGTERM)
        await progress.stopping.wait()
        signal.raise_signal(signal.SIGINT)
        await asyncio.Event().wait()
        return DONE

    assert in_script(work, progress, messages.append) == Outcome(complete=False)
    assert len(messages) == 1


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
        ([ValueError("a")], "a"),
        ([ValueError("a"), KeyError("b")], "a"),
        ([ValueError("a"), BudgetError("b")], "b"),
        ([ProviderError("a", kind="invalid"), ExceptionGroup("", [ValueError("b"), StorageError("c")])], "c"),
        ([ExceptionGroup("", [ExceptionGroup("", [ValueError("a")])])], "a"),
    ],
)
def test_of_a_group_the_first_error_that_stops_the_run_is_raised(
    progress: Progress, run: Runner, errors: list[Exception], reported: str
) -> None:
    async def work() -> Outcome:
        raise ExceptionGroup("several", errors)

    with pytest.raises(Exception, match=f"^{reported}$") as failure:
        run(work, progress, print)
    assert failure.value.__suppress_context__


def test_a_plain_error_is_raised(progress: Progress, run: Runner) -> None:
    async def work() -> Outcome:
        raise AuthError("refused")

    with pytest.raises(AuthError, match="refused"):
        run(work, progress, print)


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
