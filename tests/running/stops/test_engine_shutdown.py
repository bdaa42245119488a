"""Stopping a run: counting unfinished work, interrupts, and the error to report of several."""

from __future__ import annotations

import asyncio
import signal
import threading

import pytest
from concurrency import run_with_timeout, settle

from visioneval import AuthError, BudgetError, StorageError
from visioneval.errors import ClosingError
from visioneval.running.calls.attempts import Budget, CallLog
from visioneval.running.calls.calls import Calls
from visioneval.running.calls.prices import Prices
from visioneval.running.calls.throttle import Throttle
from visioneval.running.execution import Progress, interrupts


@pytest.fixture
def progress() -> Progress:
    return Progress(Calls(Throttle({}, 8), Prices(), Budget(), CallLog()))


def is_closed(progress: Progress) -> tuple[bool, bool]:
    """Whether no generation starts, and whether no judgement starts."""
    throttle = progress.calls.throttle
    return throttle.closed.is_set(), throttle.ended.is_set()


class TestProgress:
    """What stops the workers."""

    def test_new_progress_is_not_over(self, progress: Progress) -> None:
        progress.check()
        assert (progress.is_over, progress.failure, progress.left, progress.out_of_budget) == (False, None, 0, False)
        assert is_closed(progress) == (False, False)

    def test_stop_ends_generations_but_not_judgements(self, progress: Progress) -> None:
        progress.stop()
        progress.check()
        assert (progress.is_over, progress.left) == (True, 0)
        assert is_closed(progress) == (True, False)

    def test_an_exhausted_budget_stops_without_a_failure(self, progress: Progress) -> None:
        progress.leave(BudgetError("used up"))
        progress.check()
        assert (progress.out_of_budget, progress.left, progress.is_over) == (True, 1, True)
        assert is_closed(progress) == (True, False)

    def test_a_call_that_never_started_is_no_failure(self, progress: Progress) -> None:
        progress.leave(ClosingError("the run is being stopped"))
        progress.check()
        assert (progress.out_of_budget, progress.left, progress.is_over) == (False, 1, True)
        assert is_closed(progress) == (True, False)

    @pytest.mark.parametrize("error", [AuthError("refused"), StorageError("disk full"), ValueError("a bug")])
    def test_a_fault_ends_all_calls_and_is_raised(self, progress: Progress, error: Exception) -> None:
        progress.leave(error)
        assert is_closed(progress) == (True, True)
        with pytest.raises(type(error), match=str(error)):
            progress.check()

    def test_the_first_fault_is_reported(self, progress: Progress) -> None:
        for error in (ClosingError("late"), AuthError("first"), StorageError("second"), BudgetError("third")):
            progress.leave(error)
        assert (str(progress.failure), progress.left, progress.out_of_budget) == ("first", 4, True)

    def test_a_cache_that_cannot_be_written_is_a_fault(self, progress: Progress) -> None:
        progress.calls.broken = StorageError("cache full")
        assert progress.is_over
        with pytest.raises(StorageError, match="cache full"):
            progress.check()


class TestInterrupts:
    """The first interrupt lets running calls finish, the second cancels the task."""

    def test_interrupts_may_come_from_a_thread(self, progress: Progress) -> None:
        messages: list[str] = []
        cancelled = False

        async def scenario() -> None:
            nonlocal cancelled
            try:
                with interrupts(progress, messages.append) as interrupt:
                    await asyncio.to_thread(interrupt)
                    await progress.stopping.wait()
                    assert is_closed(progress) == (True, False)
                    threading.Thread(target=interrupt).start()
                    await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled = True

        run_with_timeout(scenario())
        assert cancelled
        assert len(messages) == 1
        assert "interrupt again to stop now" in messages[0]

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_signals_interrupt_only_inside_the_block(self, progress: Progress, number: signal.Signals) -> None:
        async def scenario() -> None:
            outside = signal.getsignal(number)
            with interrupts(progress, lambda _: None):
                signal.raise_signal(number)
                await progress.stopping.wait()
            assert not asyncio.get_running_loop().remove_signal_handler(number)
            assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
            signal.signal(number, outside)

        run_with_timeout(scenario())
        assert progress.is_over

    def test_an_interrupt_of_a_failed_run_cancels_immediately(self, progress: Progress) -> None:
        messages: list[str] = []

        async def scenario() -> None:
            progress.leave(AuthError("refused"))
            try:
                with interrupts(progress, messages.append) as interrupt:
                    interrupt()
                    await settle()
                    messages.append("the task goes on")
            except asyncio.CancelledError:
                messages.append("cancelled")

        run_with_timeout(scenario())
        assert messages == ["cancelled"]
