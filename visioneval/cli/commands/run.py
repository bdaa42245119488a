"""The command ``run``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from visioneval import bounds
from visioneval.cli import completion, options
from visioneval.cli.bound_flags import bounded
from visioneval.defaults import MAX_CONCURRENCY, RUNS
from visioneval.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from visioneval.api.runs import Run
    from visioneval.running.plan import Plan
    from visioneval.running.prepare import RunOptions


@bounded(*bounds.ALL)
def run(
    suites: options.OptionalSuites = None,
    case: options.Cases = None,
    tag: options.Tags = None,
    model: options.Models = None,
    grader: options.Graders = None,
    limit: options.Limit = None,
    samples: options.Samples = None,
    shard: options.ShardOfCases = None,
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
    resume: Annotated[
        str | None,
        options.value(
            "--resume",
            "RUN",
            "Resume a run, with its own suite or the given one.",
            options.CALLS,
            autocompletion=completion.run_names,
        ),
    ] = None,
    keep_errors: Annotated[
        bool,
        options.flag("--keep-errors", "With --resume: do not repeat cells that ended in an error.", options.CALLS),
    ] = False,
    retry_unusable: Annotated[
        bool,
        options.flag(
            "--retry-unusable", "Pay again for answers without a usable image, which are in the run.", options.CALLS
        ),
    ] = False,
    reuse: options.ReuseAnswers = options.ReuseFlag.judges,
    offline: options.Offline = False,
    cache: options.CacheFolder = None,
    budget: options.BudgetUsd = None,
    max_concurrency: options.MaxConcurrency = MAX_CONCURRENCY,
    log_file: options.LogFile = None,
    debug: options.Debug = False,
    ray: Annotated[
        bool, options.flag("--ray", "Do the cells on a Ray cluster, which is started here.", options.CLUSTER)
    ] = False,
    ray_address: Annotated[
        str | None,
        options.value("--ray-address", "ADDRESS", "With --ray: join the cluster at HOST:PORT.", options.CLUSTER),
    ] = None,
    workers: Annotated[
        int | None,
        options.value(
            "--workers", "N", "With --ray: processes, of one core each; default: all cores.", options.CLUSTER, min=1
        ),
    ] = None,
    dry_run: Annotated[bool, options.flag("--dry-run", "Show the plan; make no calls and write nothing.")] = False,
    trust_suite: options.TrustSuite = False,
) -> None:
    """Run suites: generate or read every image, grade it, and check the gates.

    Each suite becomes one run; the exit code is the most severe one. All suites are checked first.
    """
    from visioneval.running.prepare import plan_runs
    from visioneval.settings import run_options

    if dry_run and (as_json or any(value is not None for value in (run_id, note, junit, markdown))):
        raise UsageError("--dry-run writes nothing: leave out --json, --run-id, --note, --junit and --markdown")
    settings = run_options(
        cases=case or (),
        tags=tag or (),
        models=model or (),
        graders=grader or (),
        limit=limit,
        samples=samples,
        shard=shard,
        variables=options.pairs("--var", "NAME=VALUE", var),
        judges=options.pairs("--judge", "NAME=PROVIDER:MODEL", judge),
        runs=runs,
        run_id=run_id,
        note=note,
        resume=resume,
        keep_errors=keep_errors,
        retry_unusable=retry_unusable,
        reuse=reuse.value,
        offline=offline,
        cache=cache,
        budget_usd=budget,
        max_concurrency=max_concurrency,
        log_file=log_file,
        debug=debug,
        trust_suite=trust_suite,
        ray=ray,
        ray_address=ray_address,
        workers=workers,
        command_line=tuple(sys.argv[1:]),
    )
    with options.prints_on_stderr():
        planned = plan_runs(suites or [], settings)
    if dry_run:
        _print_plans(planned, settings)
        return
    code = _run(planned, settings, options.ResultOptions(as_json, quiet), junit, markdown)
    raise options.exit_with(code, no_fail=no_fail)


def _print_plans(planned: Sequence[Plan], settings: RunOptions) -> None:
    from visioneval.api.runs import estimate_plan
    from visioneval.cli.plan_table import print_plan

    for warning in (warning for suite in planned for warning in suite.loaded.warnings):
        options.say(str(warning))
    for suite in planned:
        print_plan(estimate_plan(suite, settings), options.console())


def _run(
    planned: Sequence[Plan],
    settings: RunOptions,
    output: options.ResultOptions,
    junit: Path | None,
    markdown: Path | None,
) -> ExitCode:
    """Runs all suites, shows each result and writes the reports. Returns the most severe exit code."""
    from visioneval.api.runs import run_planned
    from visioneval.cli.progress import progress_of
    from visioneval.cli.reports import check_reports, write_reports
    from visioneval.cli.result import show_result

    check_reports(junit, markdown)
    finished: list[Run] = []
    try:
        results = run_planned(planned, settings, progress_of(output, debug=settings.calls.debug), options.say)
        while True:
            with options.prints_on_stderr():
                result = next(results, None)
            if result is None:
                break
            finished.append(result)
            show_result(result, output, offline=settings.calls.reuse.offline)
    finally:
        write_reports(finished, junit, markdown)
    return ExitCode.most_severe(result.exit_code for result in finished)
