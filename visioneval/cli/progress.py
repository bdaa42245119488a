"""Shows the progress of a run on standard error: a live line on a terminal, or a plain line at intervals."""

from __future__ import annotations

import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

from visioneval.cli.options import ResultOptions, console, count_of, say
from visioneval.records.model import known_sum
from visioneval.types import Verdict

if TYPE_CHECKING:
    from rich.progress import Progress

    from visioneval.engine.listener import Listener
    from visioneval.engine.prepare.runs import PreparedRun
    from visioneval.records.model import Record

INTERVAL_S = 10.0
MIN_CELLS = 8
"""Cells before an estimate of the remaining time: the first ones wait for models to load."""


@dataclass(slots=True)
class ProgressCounts:
    """The finished cells and their known cost."""

    verdicts: Counter[Verdict] = field(default_factory=Counter)
    cost: float | None = None

    def add(self, record: Record) -> None:
        """Counts a finished cell and its known cost."""
        self.verdicts[record.verdict] += 1
        self.cost = known_sum(self.cost, record.total_cost_usd)

    def __str__(self) -> str:
        text = " ".join(f"{self.verdicts[verdict]} {verdict.lower()}" for verdict in Verdict)
        return text if self.cost is None else f"{text} {self.cost:.2f} USD"


def progress_of(output: ResultOptions, *, debug: bool) -> Callable[[PreparedRun], AbstractContextManager[Listener]]:
    """Returns a function that shows the progress of a prepared run."""

    @contextmanager
    def watch(prepared: PreparedRun) -> Iterator[Listener]:
        from visioneval.engine.listener import Listener

        on_error = _print_traceback if debug else lambda _: None
        if output.quiet:
            yield Listener(say=say, debug=on_error)
            return
        for note in prepared.notes:
            say(note)
        say(f"{prepared.plan.suite.name}: {count_of(prepared.cells, 'cell')} into {prepared.writer.folder}")
        if sys.stderr.isatty() and not debug:
            with _live(prepared.cells) as live:
                yield Listener(live.add, live.set_waiting, say, on_error, say)
        else:
            lines = _PlainProgress(prepared.cells)
            yield Listener(lines.add, lines.set_waiting, say, on_error, say)

    return watch


def _print_traceback(error: BaseException) -> None:
    traceback.print_exception(error, file=sys.stderr)


@contextmanager
def _live(total: int) -> Iterator[_LiveProgress]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("cells"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[counts]}"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console(errors=True), transient=True) as progress:
        yield _LiveProgress(progress, total)


class _LiveProgress:
    """A live line with a progress bar, and the calls that wait for a rate limit."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=total, counts="")
        self._counts = ProgressCounts()
        self._waiting = ""

    def add(self, record: Record) -> None:
        self._counts.add(record)
        self._progress.advance(self._task)
        self._update()

    def set_waiting(self, waiting: list[str]) -> None:
        self._waiting = f"; {'; '.join(waiting)}" if waiting else ""
        self._update()

    def _update(self) -> None:
        speed = self._progress.tasks[0].speed
        rate = f" {speed:.1f}/s" if speed else ""
        self._progress.update(self._task, counts=f"{self._counts}{rate}{self._waiting}")


class _PlainProgress:
    """A plain line at intervals."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._counts = ProgressCounts()
        self._start = self._last = monotonic()
        self._waiting: list[str] = []

    def add(self, record: Record) -> None:
        self._counts.add(record)
        self._print()

    def set_waiting(self, waiting: list[str]) -> None:
        self._waiting = waiting
        if waiting:
            self._print()

    def _print(self) -> None:
        done, now = self._counts.verdicts.total(), monotonic()
        if now - self._last < INTERVAL_S or done >= self._total:
            return
        left = (self._total - done) * (now - self._start) / done if done >= MIN_CELLS else None
        remaining = f"; about {left:.0f} s left" if left is not None else ""
        say(f"{done} of {self._total} cells: {self._counts}{remaining}{''.join(f'; {text}' for text in self._waiting)}")
        self._last = now
