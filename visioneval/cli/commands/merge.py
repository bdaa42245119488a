"""The command ``merge``."""

from __future__ import annotations

from typing import Annotated

from visioneval.cli import options
from visioneval.defaults import RUNS


def merge(
    names: Annotated[list[str], options.argument("RUN...", "The runs of all shards, in any order.")],
    run_id: Annotated[str, options.value("--run-id", "ID", "ID of the merged run.", options.OUTPUT)],
    runs: options.Runs = RUNS,
    note: options.Note = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    junit: options.Junit = None,
    markdown: options.Markdown = None,
    no_fail: options.NoFail = False,
) -> None:
    """Combine the runs of all shards (run --shard I/N) into one, and evaluate its gates. Makes no network calls.

    The result equals a run of the whole suite, except for times and IDs. Exits as that run would.
    """
    from visioneval.api.runs import merge as merge_runs
    from visioneval.cli.reports import check_reports, write_reports
    from visioneval.cli.result import show_result

    check_reports(junit, markdown)
    with options.prints_on_stderr():
        result = merge_runs(*names, run_id=run_id, note=note, runs=runs, warn=options.say)
    show_result(result, options.ResultOptions(as_json, quiet))
    write_reports([result], junit, markdown)
    raise options.exit_with(result.exit_code, no_fail=no_fail)
