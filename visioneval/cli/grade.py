"""The command ``grade``: find a run, load, expand, grade its images into a new run, summarize, gate, exit."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visioneval import bounds
from visioneval.cli import options
from visioneval.cli.bound_flags import bounded
from visioneval.cli.reports import check_reports, write_reports
from visioneval.cli.run_lookup import named_run
from visioneval.cli.running import OutputOptions, PreparedRun, carry_out
from visioneval.errors import UsageError

if TYPE_CHECKING:
    from visioneval.engine.call_settings import CallSettings
    from visioneval.plan import Plan
    from visioneval.records.model import RunInfo, Selection
    from visioneval.suite.load import LoadedSuite


@bounded(*bounds.ALL)
def grade(
    name: options.RunName,
    suite: Annotated[
        Path | None, options.value("--suite", "SUITE", "Grade by this suite instead of the run's own.")
    ] = None,
    case: options.Cases = None,
    tag: options.Tags = None,
    model: options.Models = None,
    grader: options.Graders = None,
    limit: options.Limit = None,
    var: options.Variables = None,
    judge: options.Judges = None,
    out: options.Out = options.RUNS,
    run_id: options.RunId = None,
    note: options.Note = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    junit: options.Junit = None,
    markdown: options.Markdown = None,
    no_fail: options.NoFail = False,
    reuse: options.ReuseAnswers = options.Reused.judges,
    offline: options.Offline = False,
    cache: options.CacheFolder = None,
    budget: options.BudgetUsd = None,
    max_concurrency: options.MaxConcurrency = 64,
    log_file: options.LogFile = None,
    debug: options.Debug = False,
    trust_suite: options.TrustSuite = False,
) -> None:
    """Grade the images of a run again, by a changed suite or another judge, into a new run. Nothing is generated.

    'visioneval compare RUN NEW' then shows what the new graders changed.
    """
    source = SourceRun(*named_run(name, out))
    if source.label is not None and model:
        raise UsageError(f"{name!r} names the model run already: leave --model out")
    changes = options.SuiteFlags.of(out, trust=trust_suite, var=var, judge=judge, samples=source.info.suite.samples)
    loaded, plan, kept = _planned(source, suite, options.selection(case, tag, model, grader, limit), changes)
    reused = options.reuse_of(reuse, offline=offline, resume_command=False)
    session = options.session(reused, cache, budget, max_concurrency, log_file, debug=debug)
    check_reports(junit, markdown)
    info = _described(source, loaded, plan, kept, run_id, note)
    begun = _begun(source, plan, session, info, out, named=run_id is not None, quiet=quiet)
    code = carry_out(begun, session, OutputOptions(as_json, quiet))
    write_reports([begun.writer.folder], junit, markdown)
    raise typer.Exit(0 if no_fail and code == 1 else code)


@dataclass(frozen=True, slots=True)
class SourceRun:
    """The run whose images are graded, or one model run of it."""

    folder: Path
    info: RunInfo
    label: str | None

    @property
    def name(self) -> str:
        """``RUN_ID`` or ``RUN_ID@label``."""
        return self.info.run_id if self.label is None else f"{self.info.run_id}@{self.label}"


def _planned(
    source: SourceRun, suite: Path | None, chosen: Selection, changes: options.SuiteFlags
) -> tuple[LoadedSuite, Plan, Selection]:
    """The suite, its plan, and the selection that ``run.json`` tells: where no flag narrows, that of the source."""
    held = source.info.selection
    if source.label is not None:
        chosen = chosen.model_copy(update={"models": (source.label,)})
    if suite is None:
        loaded, plan = options.load_held(source.folder, chosen, changes)
        return loaded, replace(plan, generates=False), chosen if chosen.narrows else held
    if not chosen.narrows:
        chosen = held.model_copy(update={"graders": ()})
    loaded, plan = options.load_and_expand(suite, chosen, changes)
    options.check_secrets(source.folder, options.secrets_to_give(source.info, plan), changes)
    return loaded, replace(plan, generates=False), chosen


def _described(
    source: SourceRun, loaded: LoadedSuite, plan: Plan, kept: Selection, run_id: str | None, note: str | None
) -> RunInfo:
    from visioneval.engine.provenance import describe_run

    info = describe_run(plan, loaded, kept, run_id=run_id, note=note, command_line=tuple(sys.argv[1:]))
    return info.model_copy(update={"graded_from": source.name})


def _begun(
    source: SourceRun, plan: Plan, session: CallSettings, info: RunInfo, out: Path, *, named: bool, quiet: bool
) -> PreparedRun:
    """The new run, and what there is to do for it."""
    from visioneval.engine.call_settings import check_budget
    from visioneval.engine.components import build_components
    from visioneval.engine.regrade import copy_questions, plan_regrade
    from visioneval.records.model import read_records
    from visioneval.records.writer import RunWriter

    check_budget(plan, session)
    tools = build_components(plan, offline=session.reuse.offline)
    grading = plan_regrade(plan, read_records(source.folder), source.folder, source.info.run_id)
    writer = RunWriter.create(out, info)
    copy_questions(source.folder, writer.folder)
    if not quiet and str(grading):
        options.say(str(grading))
    return PreparedRun(plan, tools, writer, grading.jobs, plan.cells, _to_go_on(session, named=named))


def _to_go_on(session: CallSettings, *, named: bool) -> str:
    """How to grade it all: into a new run, as the name of this one is taken."""
    again = "the same command again" + (" with another --run-id" if named else "")
    if not session.reuse.judgements:
        return f"{again}: it asks all again; without --reuse none, what judges answered is taken"
    return f"{again}: what judges answered is kept"
