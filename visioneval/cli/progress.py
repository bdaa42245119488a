"""Shows the progress of a run on standard error: a live line on a terminal, or a plain line at intervals."""

from __future__ import annotations

import sys
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

from visioneval.cli.options import ResultOptions, console, say
from visioneval.counted import count_of
from visioneval.records.model import known_sum
from visioneval.records.stores.locations import display_name
from visioneval.types import Verdict

if TYPE_CHECKING:
    from rich.progress import Progress

    from visioneval.engine.listener import Listener
    from visioneval.engine.prepare.runs import PreparedRun
    from visioneval.records.model import Record

INTERVAL_S = 10.0
WINDOW_S = 30.0
STEP_S = 0.5
"""Cells that finish within this time are counted together."""
MIN_CELLS = 8
"""Cells before an estimate of the remaining time: the first ones wait for models to load."""


class Pace:
    """How fast cells finish, over the last ``WINDOW_S`` only: a resumed or replayed run begins with a burst."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._marks: deque[tuple[float, int]] = deque([(monotonic(), 0)])
        """Times, and the cells that were done until shortly after; the first is the last one before the window."""

    def add(self) -> None:
        """Counts a finished cell."""
        self._done += 1
        now = monotonic()
        if len(self._marks) > 1 and now - self._marks[-1][0] < STEP_S:
            now = self._marks.pop()[0]
        self._marks.append((now, self._done))
        self._forget(now)

    def _forget(self, now: float) -> None:
        while len(self._marks) > 2 and self._marks[1][0] <= now - WINDOW_S:
            self._marks.popleft()

    @property
    def per_second(self) -> float:
        """Cells per second in the window, or since the last cell but one if that is longer ago."""
        now = monotonic()
        self._forget(now)
        since, done = self._marks[0]
        return (self._done - done) / (now - since) if now > since else 0.0

    @property
    def remaining_s(self) -> float | None:
        """Seconds until the end; ``None`` after too few cells."""
        rate = self.per_second
        return (self._total - self._done) / rate if rate and self._done >= MIN_CELLS else None


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
        shown = (verdict for verdict in Verdict if verdict is not Verdict.NONE or self.verdicts[verdict])
        text = " ".join(f"{self.verdicts[verdict]} {verdict.lower()}" for verdict in shown)
        return text if self.cost is None else f"{text} {self.cost:.2f} USD"


def progress_of(output: ResultOptions, *, debug: bool) -> Callable[[PreparedRun], AbstractContextManager[Listener]]:
    """Returns a function that shows the progress of a prepared run."""

    @contextmanager
    def watch(prepared: PreparedRun) -> Iterator[Listener]:
        from visioneval.engine.listener import Listener

        on_error = print_traceback if debug else lambda _: None
        if output.quiet:
            yield Listener(say=say, debug=on_error)
            return
        for note in prepared.notes:
            say(note)
        folder = display_name(prepared.writer.folder)
        say(f"{prepared.plan.suite.name}: {count_of(prepared.cells, 'cell')} into {folder}")
        if sys.stderr.isatty() and not debug:
            with _live(prepared.cells) as live:
                yield Listener(live.add, live.set_waiting, say, on_error, say)
        else:
            lines = _PlainProgress(prepared.cells)
            yield Listener(lines.add, lines.set_waiting, say, on_error, say)

    return watch


def print_traceback(error: BaseException) -> None:
    """Prints an unexpected error of a run."""
    traceback.print_exception(error, file=sys.stderr)


@contextmanager
def _live(total: int) -> Iterator[_LiveProgress]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("cells"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[status]}"),
    )
    with Progress(*columns, console=console(errors=True), transient=True) as progress:
        yield _LiveProgress(progress, total)


class _LiveProgress:
    """A live line with a progress bar, and the calls that wait for a rate limit."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._counts = ProgressCounts()
        self._pace = Pace(total)
        self._waiting = ""
        self._task = progress.add_task("", total=total, status=self)

    def add(self, record: Record) -> None:
        self._counts.add(record)
        self._pace.add()
        self._progress.advance(self._task)

    def set_waiting(self, waiting: list[str]) -> None:
        self._waiting = f"; {'; '.join(waiting)}" if waiting else ""

    def __str__(self) -> str:
        """The text after the bar, as of now: the line is drawn several times per second."""
        rate, left = self._pace.per_second, self._pace.remaining_s
        speed = f" {rate:.1f}/s" if rate >= 0.05 else ""
        return f"{self._counts}{speed}{self._waiting} {'--:--' if left is None else _clock(left)}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


class _PlainProgress:
    """A plain line at intervals."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._counts = ProgressCounts()
        self._last = monotonic()
        self._pace = Pace(total)
        self._waiting: list[str] = []

    def add(self, record: Record) -> None:
        self._counts.add(record)
        self._pace.add()
        self._print()

    def set_waiting(self, waiting: list[str]) -> None:
        self._waiting = waiting
        if waiting:
            self._print()

    def _print(self) -> None:
        done, now = self._counts.verdicts.total(), monotonic()
        if now - self._last < INTERVAL_S or done >= self._total:
            return
        left = self._pace.remaining_s
        remaining = f"; about {left:.0f} s left" if left is not None else ""
        say(f"{done} of {self._total} cells: {self._counts}{remaining}{''.join(f'; {text}' for text in self._waiting)}")
        self._last = now
