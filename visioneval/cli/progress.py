"""How a run is going: a live line on a terminal, a plain line now and then elsewhere. Always on standard error."""

from __future__ import annotations

import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

from visioneval.cli.options import console, say
from visioneval.types import Verdict

if TYPE_CHECKING:
    from rich.progress import Progress

    from visioneval.engine.run import Listener
    from visioneval.records.model import Record

EVERY_S = 10.0
ENOUGH = 8
"""Cells after which their pace says something: the first ones wait for models to load."""


@dataclass(slots=True)
class ProgressCounts:
    """What is done so far."""

    verdicts: Counter[Verdict] = field(default_factory=Counter)
    cost: float | None = None

    def add(self, record: Record) -> None:
        """Counts a finished cell and what it is known to have cost."""
        self.verdicts[record.verdict] += 1
        for cost in (record.cost_usd, *(grader.cost_usd for grader in record.graders)):
            if cost is not None:
                self.cost = (self.cost or 0.0) + cost

    def __str__(self) -> str:
        said = " ".join(f"{self.verdicts[verdict]} {verdict.lower()}" for verdict in Verdict)
        return said if self.cost is None else f"{said} {self.cost:.2f} USD"


@contextmanager
def listening(total: int, *, quiet: bool, debug: bool = False) -> Iterator[Listener]:
    """Gives those who are told how a run goes."""
    from visioneval.engine.run import Listener

    tell = _trace if debug else lambda _: None
    if quiet:
        yield Listener(say=say, debug=tell)
    elif sys.stderr.isatty() and not debug:
        with _live(total) as live:
            yield Listener(live.add, live.hold, say, tell, say)
    else:
        plain = _Plain(total)
        yield Listener(plain.add, plain.hold, say, tell, say)


def _trace(error: BaseException) -> None:
    traceback.print_exception(error, file=sys.stderr)


@contextmanager
def _live(total: int) -> Iterator[_Live]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("cells"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[said]}"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console(errors=True), transient=True) as progress:
        yield _Live(progress, total)


class _Live:
    """A line that moves, and below it who waits for what."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=total, said="")
        self._tally = ProgressCounts()
        self._held = ""

    def add(self, record: Record) -> None:
        self._tally.add(record)
        self._progress.advance(self._task)
        self._show()

    def hold(self, waiting: list[str]) -> None:
        self._held = f"; {'; '.join(waiting)}" if waiting else ""
        self._show()

    def _show(self) -> None:
        speed = self._progress.tasks[0].speed
        rate = f" {speed:.1f}/s" if speed else ""
        self._progress.update(self._task, said=f"{self._tally}{rate}{self._held}")


class _Plain:
    """A line now and then."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._tally = ProgressCounts()
        self._start = self._last = monotonic()
        self._held: list[str] = []

    def add(self, record: Record) -> None:
        self._tally.add(record)
        self._show()

    def hold(self, waiting: list[str]) -> None:
        self._held = waiting
        if waiting:
            self._show()

    def _show(self) -> None:
        done, now = self._tally.verdicts.total(), monotonic()
        if now - self._last < EVERY_S or done >= self._total:
            return
        left = (self._total - done) * (now - self._start) / done if done >= ENOUGH else None
        rest = f"; about {left:.0f} s left" if left is not None else ""
        say(f"{done} of {self._total} cells: {self._tally}{rest}{''.join(f'; {each}' for each in self._held)}")
        self._last = now
