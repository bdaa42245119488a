"""What a command shows of a run: its progress on standard error, its result, and the report files that are written."""

from __future__ import annotations

import shlex
import sys
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from visioneval.cli import options
from visioneval.cli.options import ResultOptions, console, say
from visioneval.errors import count_of
from visioneval.records.model import known_sum
from visioneval.records.stores.lookup import display_name
from visioneval.settings import RUNS
from visioneval.types import Verdict

if TYPE_CHECKING:
    from rich.console import Group

    from visioneval.analysis.summary.counts import Costs
    from visioneval.analysis.summary.summary import Summary
    from visioneval.api.runs import Run
    from visioneval.records.model import Record, RunInfo
    from visioneval.running.cells.services import Listener
    from visioneval.running.prepare import PreparedRun

INTERVAL_S = 10.0
WINDOW_S = 30.0
STEP_S = 0.5
"""Cells that finish within this time are counted together."""
CALL_LINES = 5
"""Models with calls that are shown."""
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

    def plan_more(self, cells: int) -> None:
        """Counts further cells to do."""
        self._total += cells

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
    """The finished cells and their known cost. Without ``costs``, cells without a known cost are taken as free."""

    costs: Costs | None = None
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    cost: float | None = None

    @classmethod
    def of(cls, records: Iterable[Record], info: RunInfo) -> ProgressCounts:
        """The counts of records of a run."""
        from visioneval.analysis.summary.counts import Costs

        counts = cls(Costs(info))
        for record in records:
            counts.add(record)
        return counts

    def add(self, record: Record) -> None:
        """Counts a finished cell and its known cost."""
        self.verdicts[record.verdict] += 1
        self.cost = known_sum(self.cost, record.total_cost_usd)
        if self.costs is not None:
            self.costs.add(record)

    def __str__(self) -> str:
        shown = (verdict for verdict in Verdict if verdict is not Verdict.NONE or self.verdicts[verdict])
        text = " ".join(f"{self.verdicts[verdict]} {verdict.lower()}" for verdict in shown)
        return ", ".join(part for part in (text, self._cost_text) if part)

    @property
    def _cost_text(self) -> str:
        unknown = self.costs is not None and self.costs.unknown.total() > 0
        if not self.cost:
            return "cost unknown" if unknown else "" if self.cost is None else "0.00 USD"
        digits = f"{self.cost:,.2f}" if self.cost >= 1 else f"{self.cost:.4f}"
        return f"{'at least ' if unknown else ''}{digits} USD"


def progress_of(output: ResultOptions, *, debug: bool) -> Callable[[PreparedRun], AbstractContextManager[Listener]]:
    """Returns a function that shows the progress of a prepared run."""

    @contextmanager
    def watch(prepared: PreparedRun) -> Iterator[Listener]:
        from visioneval.analysis.summary.counts import Costs
        from visioneval.running.cells.services import Listener

        on_error = _on_error(debug=debug)
        if output.quiet:
            yield Listener(say=say, debug=on_error)
            return
        for note in prepared.notes:
            say(note)
        folder = display_name(prepared.writer.folder)
        say(f"{prepared.plan.suite.name}: {count_of(prepared.cells, 'cell')} into {folder}")
        counts = ProgressCounts(Costs(prepared.writer.info))
        if sys.stderr.isatty() and not debug:
            from rich.live import Live

            progress = _LiveProgress(prepared.cells, counts)
            with Live(get_renderable=progress.lines, console=console(errors=True), transient=True):
                yield Listener(progress.add, progress.set_calls, say, on_error, say, progress.plan_more)
        else:
            plain = _PlainProgress(prepared.cells, counts)
            yield Listener(plain.add, plain.set_calls, say, on_error, say, plain.plan_more)

    return watch


def plain_listener(record: Callable[[Record], None] = lambda _: None, *, debug: bool) -> Listener:
    """Prints messages and notes, and with ``debug`` unexpected errors, but no progress."""
    from visioneval.running.cells.services import Listener

    return Listener(record, say=say, note=say, debug=_on_error(debug=debug))


def _on_error(*, debug: bool) -> Callable[[BaseException], None]:
    return (lambda error: traceback.print_exception(error, file=sys.stderr)) if debug else lambda _: None


class _Progress:
    """The cells that are done, and the calls that run and wait."""

    def __init__(self, total: int, counts: ProgressCounts) -> None:
        self._total = total
        self._counts = counts
        self._last = monotonic()
        self._pace = Pace(total)
        self._calls: list[str] = []

    def add(self, record: Record) -> None:
        self._counts.add(record)
        self._pace.add()

    def plan_more(self, cells: int) -> None:
        """Counts further cells."""
        self._total += cells
        self._pace.plan_more(cells)

    def set_calls(self, calls: list[str]) -> None:
        self._calls = calls


class _LiveProgress(_Progress):
    """A bar, the counts below it, and a line for each model with calls."""

    def lines(self) -> Group:
        """What is shown now: it is drawn several times per second."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        done, left = self._counts.verdicts.total(), self._pace.remaining_s
        first = Table.grid(padding=(0, 1), expand=True)
        for ratio in (None, 1, None):
            first.add_column(ratio=ratio, no_wrap=True)
        bar = ProgressBar(self._total, done, style="bright_black", complete_style="cyan", finished_style="cyan")
        first.add_row("cells", bar, f"{done}/{self._total}  {'--:--' if left is None else _clock(left)} left")
        texts = (f"{self._counts}, {self._pace.per_second:.1f} cells/s", *_first_calls(self._calls))
        return Group(first, *(Text(text) for text in texts))


def _first_calls(calls: list[str]) -> list[str]:
    rest = len(calls) - CALL_LINES
    return [*calls[:CALL_LINES], *([f"and {count_of(rest, 'more model')}"] if rest > 0 else [])]


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


class _PlainProgress(_Progress):
    """A plain line at intervals."""

    def add(self, record: Record) -> None:
        super().add(record)
        self._print()

    def set_calls(self, calls: list[str]) -> None:
        super().set_calls(calls)
        if calls:
            self._print()

    def _print(self) -> None:
        done, now = self._counts.verdicts.total(), monotonic()
        if now - self._last < INTERVAL_S or done >= self._total:
            return
        left = self._pace.remaining_s
        remaining = "" if left is None else f", about {left:.0f} s left"
        first = (
            f"{done} of {count_of(self._total, 'cell')}: {self._counts}, {self._pace.per_second:.1f} cells/s{remaining}"
        )
        say("; ".join((first, *_first_calls(self._calls))))
        self._last = now


_NOT_CACHED_HINT = (
    "offline: the cache lacks answers; run the suite once with a key and --cache FOLDER, without --offline, and commit"
    " FOLDER"
)


def show_result(result: Run, output: options.ResultOptions, *, offline: bool = False) -> None:
    """Prints a finished run. A reader that has closed the output does not change the exit code.

    ``offline``: the run took all answers from the cache.
    """
    from visioneval.records.runs import asking_hint, stopped_text
    from visioneval.report.outcome import never_asked_text, not_compared
    from visioneval.report.run import run_report
    from visioneval.report.terminal import print_end, print_report

    summary = result.summary
    report = run_report(summary, with_judges=output.full)
    with options.ignore_closed_output():
        if output.as_json:
            print(summary.model_dump_json())
        if result.error is not None:
            options.say(result.error)
            options.say(stopped_text(result.folder, result.resume_hint))
            return
        if not output.as_json and not output.quiet:
            print_report(report, options.console(), is_full=output.full)
        text = never_asked_text(summary.never_asked)
        if text and summary.state == "complete":
            options.say(f"{text}; {asking_hint(result.folder, result.info, lacks_outputs=summary.lacks_outputs)}")
        for text in not_compared(summary):
            options.say(f"{text}; {result.resume_hint}")
        if summary.state == "interrupted":
            reason = "the budget is used up" if summary.stopped_by == "budget" else "interrupted"
            options.say(f"{reason}: {summary.counts.cells:,} of {count_of(summary.planned_cells, 'cell')} recorded")
            options.say(str(result.resume_hint))
        lines = last_lines(result.folder, summary, RUNS, offline=offline)
        if output.as_json:
            options.say("\n".join(lines))
        elif output.quiet:
            print(lines[0])
        else:
            print_pairs(result)
            print_end(report, options.console())
            print("\n".join(lines))


def last_lines(folder: Path, summary: Summary, default: Path, *, offline: bool = False) -> list[str]:
    """The run folder, what an offline run lacks, the next commands. Uses the run id if the run is in ``default``."""
    from visioneval.records.stores.lookup import display_name, name_of_run
    from visioneval.report.text import clean

    location, name = display_name(folder), name_of_run(folder, default)
    has_cells = summary.counts.cells or summary.state != "interrupted"
    commands = [["visioneval", "report", name, "--open"]] if has_cells else []
    first = next((cell for cell in summary.failing if cell.failed_gates), next(iter(summary.failing), None))
    if first is not None:
        commands.insert(0, ["visioneval", "show", f"{name}@{first.model_label}", first.test_id])
    hints = [_NOT_CACHED_HINT] if offline and summary.never_asked else []
    return [f"run: {clean(location)}", *hints, *(f"next: {clean(shlex.join(command))}" for command in commands)]


def print_pairs(result: Run) -> None:
    """Prints what judges preferred among the model runs of a run, if its suite compares them."""
    from visioneval.analysis.preferences import preferences_within

    if preferences := preferences_within(result.folder, result.info):
        from visioneval.report.ranking import preferences_section
        from visioneval.report.terminal import print_section

        print_section(preferences_section(preferences), options.console())
        print()


def check_reports(*paths: Path | None) -> None:
    """Raises ``UsageError`` if a report cannot be written, before any paid call."""
    from visioneval.atomic import check_writable

    for path in paths:
        if path is not None:
            check_writable(path)


def write_reports(
    runs: Sequence[Run], junit: Path | None, markdown: Path | None, code_quality: Path | None = None
) -> None:
    """Writes all runs into one file of each kind. Raises ``UsageError`` if a file cannot be written."""
    from visioneval.atomic import write_report

    if junit is not None:
        from visioneval.report.junit import junit_xml

        write_report(junit, junit_xml([(run.folder, run.info, run.records, run.summary) for run in runs]))
    if markdown is not None:
        from visioneval.report.markdown import MAX_ROWS, report_markdown
        from visioneval.report.run import run_report

        reports = (run_report(run.summary, examples=MAX_ROWS) for run in runs)
        write_report(markdown, "\n".join(map(report_markdown, reports)))
    if code_quality is not None:
        from visioneval.report.code_quality import run_quality

        write_report(code_quality, run_quality((run.info, run.records) for run in runs))
