"""The command ``grade``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from visioneval import bounds
from visioneval.cli import options
from visioneval.cli.bound_flags import bounded
from visioneval.defaults import MAX_CONCURRENCY, RUNS


@bounded(*bounds.ALL)
def grade(
    name: options.RunName,
    suite: Annotated[
        Path | None, options.value("--suite", "SUITE", "Grade with this suite instead of the run's own.")
    ] = None,
    case: options.Cases = None,
    tag: options.Tags = None,
    model: options.Models = None,
    grader: options.Graders = None,
    limit: options.Limit = None,
    var: options.Variables = None,
    judge: options.Judges = None,
    runs: options.Runs = RUNS,
    run_id: options.RunId = None,
    note: options.Note = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    junit: options.Junit = None,
    markdown: options.Markdown = None,
    no_fail: options.NoFail = False,
    reuse: options.ReuseAnswers = options.ReuseFlag.judges,
    offline: options.Offline = False,
    cache: options.CacheFolder = None,
    budget: options.BudgetUsd = None,
    max_concurrency: options.MaxConcurrency = MAX_CONCURRENCY,
    log_file: options.LogFile = None,
    debug: options.Debug = False,
    trust_suite: options.TrustSuite = False,
) -> None:
    """Grade the images of a run again, by a changed suite or another judge, into a new run. Generates nothing.

    'visioneval compare RUN NEW' then shows what the new graders changed.
    """
    from visioneval.api.runs import grade_run
    from visioneval.cli.progress import progress_of
    from visioneval.cli.reports import check_reports, write_reports
    from visioneval.cli.result import show_result
    from visioneval.settings import run_options

    settings = run_options(
        cases=case or (),
        tags=tag or (),
        models=model or (),
        graders=grader or (),
        limit=limit,
        variables=options.pairs("--var", "NAME=VALUE", var),
        judges=options.pairs("--judge", "NAME=PROVIDER:MODEL", judge),
        runs=runs,
        run_id=run_id,
        note=note,
        reuse=reuse.value,
        offline=offline,
        cache=cache,
        budget_usd=budget,
        max_concurrency=max_concurrency,
        log_file=log_file,
        debug=debug,
        trust_suite=trust_suite,
        command_line=tuple(sys.argv[1:]),
    )
    check_reports(junit, markdown)
    output = options.ResultOptions(as_json, quiet)
    with options.prints_on_stderr():
        result = grade_run(name, suite, settings, progress_of(output, debug=debug), options.say)
    show_result(result, output, offline=offline)
    write_reports([result], junit, markdown)
    raise options.exit_with(result.exit_code, no_fail=no_fail)
