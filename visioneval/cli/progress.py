"""How a run is going: a live line on a terminal, a plain line now and then elsewhere. Always on standard error."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from visioneval.cli.options import console, say
from visioneval.types import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from visioneval.records import Record

    Watch = Callable[[Record], None]

EVERY_S = 10.0


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
        TimeRemainingColumn(),
    )
    seen: Counter[Verdict] = Counter()
    with Progress(*columns, console=console(errors=True), transient=True) as progress:
        task = progress.add_task("", total=total, said="")

        def watch(record: Record) -> None:
            seen[record.verdict] += 1
            speed = progress.tasks[0].speed
            rate = f" {speed:.1f}/s" if speed else ""
            progress.update(task, advance=1, said=_counts(seen) + rate)

        yield watch


def _plain(total: int) -> Watch:
    seen: Counter[Verdict] = Counter()
    start = last = monotonic()

    def watch(record: Record) -> None:
        nonlocal last
        seen[record.verdict] += 1
        done, now = seen.total(), monotonic()
        if now - last >= EVERY_S and done < total:
            left = (total - done) * (now - start) / done
            say(f"{done} of {total} cells: {_counts(seen)}; about {left:.0f} s left")
            last = now

    return watch


def _counts(seen: Counter[Verdict]) -> str:
    return f"{seen[Verdict.PASS]} pass {seen[Verdict.FAIL]} fail {seen[Verdict.ERROR]} error"
