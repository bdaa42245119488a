"""How a run is going: a live line on a terminal, a plain line now and then elsewhere. Always on standard error."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

from visioneval.cli.options import console, say
from visioneval.types import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from visioneval.records import Record

    Watch = Callable[[Record], None]

EVERY_S = 10.0
ENOUGH = 8
"""Cells after which their pace says something: the first ones wait for models to load."""


@dataclass(slots=True)
class Tally:
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
def watched(total: int, *, quiet: bool) -> Iterator[Watch]:
    """Gives a function to call with each finished record."""
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        with _live(total) as watch:
            yield watch
    else:
        yield _plain(total)


@contextmanager
def _live(total: int) -> Iterator[Watch]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("cells"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[said]}"),
        TimeRemainingColumn(compact=True),
    )
    tally = Tally()
    with Progress(*columns, console=console(errors=True), transient=True) as progress:
        task = progress.add_task("", total=total, said="")

        def watch(record: Record) -> None:
            tally.add(record)
            speed = progress.tasks[0].speed
            rate = f" {speed:.1f}/s" if speed else ""
            progress.update(task, advance=1, said=f"{tally}{rate}")

        yield watch


def _plain(total: int) -> Watch:
    tally = Tally()
    start = last = monotonic()

    def watch(record: Record) -> None:
        nonlocal last
        tally.add(record)
        done, now = tally.verdicts.total(), monotonic()
        if now - last >= EVERY_S and done < total:
            left = (total - done) * (now - start) / done
            rest = f"; about {left:.0f} s left" if done >= ENOUGH else ""
            say(f"{done} of {total} cells: {tally}{rest}")
            last = now

    return watch
