"""A run from its first cell to its exit code: what ``run`` and ``grade`` share."""

from __future__ import annotations

import contextlib
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from visioneval import bounds
from visioneval.cli import options
from visioneval.errors import AuthError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from visioneval.analysis.compare.preferences import PreferenceFinding
    from visioneval.analysis.findings import Summary
    from visioneval.engine.call_settings import CallSettings
    from visioneval.engine.components import Components
    from visioneval.engine.run import Jobs
    from visioneval.plan import Plan
    from visioneval.records.model import RunInfo, RunState
    from visioneval.records.writer import RunWriter


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run that is written from now on: what is done for it, in so many cells, and what goes on with it."""

    plan: Plan
    tools: Components
    writer: RunWriter
    jobs: Jobs
    cells: int
    resume_hint: str


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """How a run is told."""

    as_json: bool = False
    quiet: bool = False


def resume_command(
    folder: Path, typed: Sequence[str] = (), suite: Path | None = None, hidden: Sequence[str] = ()
) -> str:
    """The command that goes on with a run.

    Of the words that were ``typed`` now it keeps those by which the run would stop or pay again without them. Those
    that a run on disk holds are not for that: it may come from a stranger, who must not say whom to trust. A ``suite``
    that was named now, and lies outside the working directory, must be named again, and what changed it. The values
    of ``hidden`` variables must be given again: ``***`` stands for them.
    """
    from visioneval.suite.load import HIDDEN

    named = [] if suite is None or suite.resolve().is_relative_to(Path.cwd().resolve()) else [str(suite)]
    kept = {"--cache", "--reuse", "--budget", "--env-file", *(bound.flag for bound in bounds.ALL)}
    kept |= {"--var", "--judge", "--samples"} if named else set()
    before: list[str] = []
    after: list[str] = []
    words = iter(typed)
    for word in words:
        name, sign, value = word.partition("=")
        if word in ("--trust-suite", "--offline"):
            after.append(word)
        elif name in kept:
            (before if name == "--env-file" else after).extend((name, value if sign else next(words, "")))
    if not named:
        after += [word for name in hidden for word in ("--var", f"{name}={HIDDEN}")]
    return shlex.join(("visioneval", *before, "run", *named, "--resume", str(folder), *after))


def resume_hint(folder: Path, info: RunInfo) -> str | None:
    """The line that says how to go on with a run that did not end; ``None`` where it did, or is under way."""
    if info.state not in ("stopped", "interrupted"):
        return None
    how = "killed" if info.state == "stopped" else "ended by its budget" if info.stopped_by else "interrupted"
    return f"{folder} was {how}; {rest_hint(folder, info)}"


def rest_hint(folder: Path, info: RunInfo) -> str:
    """How the cells are got that a run lacks."""
    return (
        f"to go on: {resume_command(folder, hidden=info.hidden_vars)}"
        if info.graded_from is None
        else "grade its source again, into a new run"
    )


def carry_out(begun: PreparedRun, session: CallSettings, shown: OutputOptions) -> int:
    """Executes, summarizes and shows a run, and returns its exit code."""
    from visioneval.analysis.summary import summarize
    from visioneval.records.model import read_records

    writer = begun.writer
    try:
        info = _execute(begun, session, quiet=shown.quiet)
    except AuthError as error:
        summary = summarize(writer.info, read_records(writer.folder))
        writer.write_summary(summary)
        if shown.as_json:
            print(summary.model_dump_json())
        options.say(str(error))
        return error.exit_code
    summary = _with_pairs(summarize(info, read_records(writer.folder)), begun)
    writer.write_summary(summary)
    with options.closed_output_is_no_fault():
        _show(summary, begun, shown)
    return summary.exit_code


def _execute(begun: PreparedRun, session: CallSettings, *, quiet: bool) -> RunInfo:
    """Runs the cells, and says in ``run.json`` how that ended, whatever happens."""
    from visioneval.cli.progress import listening
    from visioneval.engine.call_settings import open_calls
    from visioneval.engine.provenance import now
    from visioneval.engine.run import execute
    from visioneval.errors import StorageError

    plan, writer = begun.plan, begun.writer
    if not quiet:
        options.say(f"{plan.suite.name}: {begun.cells} cells into {writer.folder}")
    try:
        with (
            open_calls(plan, session, writer.info.run_id, options.say) as calls,
            listening(begun.cells, quiet=quiet, debug=session.debug) as listener,
        ):
            outcome = execute(plan, begun.tools, writer, calls, listener, begun.jobs)
    except BaseException:
        with contextlib.suppress(StorageError):
            writer.finish("interrupted", now())
        options.say(f"stopped: what is recorded in {writer.folder} is kept; to go on: {begun.resume_hint}")
        raise
    state: RunState = "complete" if outcome.complete else "interrupted"
    stopped_by: Literal["budget"] | None = "budget" if outcome.out_of_budget else None
    return writer.finish(state, now(), stopped_by=stopped_by, reused_since=calls.reused_since)


def _preferred(folder: Path, run_id: str) -> Sequence[PreferenceFinding]:
    """What judges said of a run's own model runs; nothing where its suite had none compared."""
    from visioneval.records.preferences import NAME, read_preferences

    if not (folder / NAME).is_file():
        return []
    from visioneval.analysis.compare.preferences import summarize_preferences

    return summarize_preferences(line for line in read_preferences(folder) if line.is_within(run_id))


def _with_pairs(summary: Summary, begun: PreparedRun) -> Summary:
    """Incomplete, whatever its gates say, where pairs of images could not be judged: as ``prefer`` has it."""
    from visioneval.analysis.summary import EXIT_GATE, EXIT_INCOMPLETE, EXIT_OK

    unjudged = sum(found.errors for found in _preferred(begun.writer.folder, summary.run_id))
    if not unjudged or summary.exit_code not in (EXIT_OK, EXIT_GATE):
        return summary
    options.say(f"{unjudged} pair{'s' * (unjudged != 1)} could not be judged; to ask again: {begun.resume_hint}")
    return summary.model_copy(update={"exit_code": EXIT_INCOMPLETE})


def show_preferences(folder: Path, run_id: str) -> None:
    """Prints what judges said of a run's own model runs, where its suite had them compared."""
    if found := _preferred(folder, run_id):
        from visioneval.report.terminal.preferences import print_preferences

        print_preferences(found, options.console())
        print()


def _show(summary: Summary, begun: PreparedRun, shown: OutputOptions) -> None:
    from visioneval.report.terminal.summary import last_line, print_summary

    if shown.as_json:
        print(summary.model_dump_json())
    elif not shown.quiet:
        print_summary(summary, options.console())
    if summary.state == "interrupted":
        why = "the budget is used up" if summary.stopped_by == "budget" else "interrupted"
        options.say(f"{why}: {summary.counts.cells} of {summary.planned_cells} cells are recorded")
        options.say(f"to go on: {begun.resume_hint}")
    if not shown.as_json and not shown.quiet:
        show_preferences(begun.writer.folder, summary.run_id)
    line = last_line(begun.writer.folder, summary, options.RUNS)
    if shown.as_json:
        options.say(line)
    else:
        print(line)
