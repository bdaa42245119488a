"""The commands that read runs: ``show``, ``runs``, ``report``, ``view``, ``site`` and ``export``."""

from __future__ import annotations

import sys
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from visioneval.bounds import MEGAPIXELS
from visioneval.cli import completion, options
from visioneval.errors import UsageError, count_of
from visioneval.settings import LATEST, MAX_GALLERY_CELLS, RUNS, SELECTION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from visioneval.records.model import Record, RunInfo
    from visioneval.records.reader import Records
    from visioneval.suite.filters import Scope


MAX_LISTED = 5
"""Runs that a message lists."""


class VerdictChoice(StrEnum):
    """The values of ``--verdict``."""

    passed = "PASS"
    failed = "FAIL"
    error = "ERROR"
    none = "NONE"


def list_all(
    runs: options.RunsFolder = RUNS,
    experiment: Annotated[str | None, options.value("--experiment", "NAME", "Only runs of this experiment.")] = None,
    failure_tags: Annotated[
        bool, options.flag("--failure-tags", "Also show the failure tags of each run, by experiment.")
    ] = False,
    delete: Annotated[
        bool, options.flag("--delete", "Delete the listed runs that --older-than and --keep select. Asks first.")
    ] = False,
    older_than: Annotated[
        float | None,
        options.value("--older-than", "DAYS", "With --delete: only runs older than this.", min=0, max=100_000),
    ] = None,
    keep: Annotated[
        int | None, options.value("--keep", "N", "With --delete: keep the newest N of the listed runs.", min=0)
    ] = None,
    yes: Annotated[bool, options.flag("--yes", "With --delete: do not ask.")] = False,
) -> None:
    """List the runs of a folder, oldest first, or delete old ones.

    --delete keeps runs that are in progress, and runs that a baseline, another run or a suite below the working
    directory needs.

    Examples:
        visioneval runs
        visioneval runs --experiment nightly --failure-tags
        visioneval runs --delete --older-than 30 --keep 10
    """
    if delete:
        _delete(runs, experiment, older_than, keep, is_confirmed=yes)
        return
    if older_than is not None or keep is not None or yes:
        raise UsageError("--older-than, --keep and --yes need --delete")
    from visioneval.records.runs import current_state, resume_command
    from visioneval.records.stores.lookup import display_name, list_runs, refresh_runs
    from visioneval.report.runs import listed_run, run_list
    from visioneval.report.terminal import print_sections

    listed = list_runs(runs)
    for path in sorted({path.parent for path in runs.glob("*/run.json")} - {path for path, _ in listed}):
        options.say(f"{display_name(path)}: skipped: its run.json cannot be read")
    listed = [(path, info) for path, info in listed if experiment in (None, info.get("experiment"))]
    problems = refresh_runs([path for path, _ in listed])
    selected = [(path, {**info, "state": current_state(path, info.get("state"))}) for path, info in listed]
    if not selected:
        print(f"{display_name(runs)}: no runs here" + (f" of the experiment {experiment!r}" if experiment else ""))
        return
    listed_runs = [listed_run(path, info, problems.get(path), options.say) for path, info in selected]
    print_sections(run_list(listed_runs, failure_tags=failure_tags), options.console())
    stopped = [path for path, info in selected if info["state"] == "stopped" and not info.get("graded_from")]
    for path in stopped[-MAX_LISTED:]:
        options.say(f"{display_name(path)}: the run was killed; to resume: {resume_command(path)}")


def _delete(
    runs: Path, experiment: str | None, older_than: float | None, keep: int | None, *, is_confirmed: bool
) -> None:
    """Deletes runs after a question. Raises ``UsageError``."""
    from visioneval.records.runs import delete_run, plan_deletion

    deletion = plan_deletion(runs, experiment, older_than, keep)
    for folder, reason in deletion.needed.items():
        options.say(f"{folder}: not deleted: {reason}")
    what = f"{count_of(len(deletion.folders), 'run')} of {deletion.total:,} in {runs}"
    names = [folder.name for folder in deletion.folders[:MAX_LISTED]]
    names += ["..."] if len(deletion.folders) > MAX_LISTED else []
    action = f"delete {what}: {', '.join(names)}"
    if names and not is_confirmed and not options.is_confirmed(action, "They cannot be restored."):
        print("nothing was deleted")
        return
    for folder in deletion.folders:
        delete_run(folder)
    print(f"deleted {what}")


def show(
    run: options.RunOrLatest = LATEST,
    case_id: Annotated[
        str | None, options.argument("CASE", "A case ID: show its cells in full.", autocompletion=completion.case_ids)
    ] = None,
    case: options.Cases = None,
    tag: options.Tags = None,
    model: options.Models = None,
    failed: Annotated[
        bool,
        options.flag("--failed", "List the cells that did not pass, the worst first; with CASE, in full.", SELECTION),
    ] = False,
    sample: Annotated[
        int | None, options.value("--sample", "N", "With CASE: only this sample.", SELECTION, min=0)
    ] = None,
    verdict: Annotated[
        VerdictChoice | None,
        options.value(
            "--verdict",
            "PASS|FAIL|ERROR|NONE",
            "With CASE: only cells with this verdict.",
            SELECTION,
            case_sensitive=False,
        ),
    ] = None,
    full: options.Full = False,
    runs: options.RunsFolder = RUNS,
) -> None:
    """Show a run's summary, or all cells of one case in full.

    --case, --tag and --model leave out all other cells, also from counts and gates.

    Examples:
        visioneval show
        visioneval show --failed
        visioneval show latest bread_week
    """
    from visioneval.api.runs import load_run
    from visioneval.cli.results import print_pairs
    from visioneval.records.runs import asking_hint
    from visioneval.report.outcome import failing_cells, never_asked_text
    from visioneval.report.run import run_report
    from visioneval.report.terminal import print_report, section_part
    from visioneval.suite.filters import Scope

    scope = Scope(cases=tuple(case or ()), tags=tuple(tag or ()), models=tuple(model or ()))
    if failed and verdict is not None:
        raise UsageError("--failed and --verdict: give one of them")
    if case_id is not None:
        verdicts = ("FAIL", "ERROR") if failed else tuple(VerdictChoice) if verdict is None else (verdict,)
        _show_case(run, runs, case_id, scope, sample, verdicts)
        return
    if sample is not None or verdict is not None:
        raise UsageError("--sample and --verdict need a CASE")
    result = load_run(run, cases=scope.cases, tags=scope.tags, models=scope.models, runs=runs, warn=options.say)
    if failed:
        console = options.console()
        console.print(section_part(failing_cells(result.summary), console.width))
    else:
        print_report(run_report(result.summary), options.console(), is_full=full)
        if scope == Scope():
            print_pairs(result)
    if result.resume_hint is not None:
        options.say(result.resume_hint)
    elif text := never_asked_text(result.summary.never_asked):
        hint = asking_hint(result.folder, result.info, lacks_outputs=result.summary.lacks_outputs)
        options.say(f"{text}; {hint}")


def _show_case(run: str, runs: Path, case: str, scope: Scope, sample: int | None, verdicts: Sequence[str]) -> None:
    from visioneval.analysis.run_lookup import open_part
    from visioneval.report.cell import cells_of_case, print_case

    folder, info, records = open_part(run, scope, runs, options.say)
    cells = [
        record
        for record in cells_of_case(info, records, case)
        if sample in (None, record.sample_index) and record.verdict.value in verdicts
    ]
    if not cells:
        raise UsageError(f"{case!r}: no matching cells in this run")
    print_case(cells, info, folder, options.console())


@options.with_settings(bounds=[MEGAPIXELS])
def report(
    run: options.RunOrLatest = LATEST,
    output: Annotated[
        Path | None,
        options.value(
            "--output/-o", "PATH", "The folder to write the report to; default: 'report' in the run's folder."
        ),
    ] = None,
    single_file: Annotated[
        bool, options.flag("--single-file", "Write one self-contained file; --output can name it.")
    ] = False,
    case: options.Cases = None,
    tag: options.Tags = None,
    max_cells: Annotated[
        int, options.value("--max-cells", "N", "At most N cells in the gallery.", SELECTION, min=1)
    ] = MAX_GALLERY_CELLS,
    redact: options.Redact = None,
    open_page: Annotated[bool, options.flag("--open", "Open the report in a browser.")] = False,
    trust_suite: Annotated[
        bool,
        options.flag("--trust-suite", "Show input images from outside the suite's folder and the working directory."),
    ] = False,
    runs: options.RunsFolder = RUNS,
) -> None:
    """Write a run as static HTML, with every image, score and reason.

    The overview counts all cells. --case, --tag and --max-cells limit the gallery, which shows cells that did not
    pass first.

    Examples:
        visioneval report --open
        visioneval report latest --single-file --output run.html
        visioneval report latest --tag must_pass
    """
    from visioneval.analysis.redaction import Redaction, check_redact
    from visioneval.analysis.run_lookup import named_run, warn_missing
    from visioneval.records.stores.lookup import fetch_outputs
    from visioneval.report.html.report import GalleryFilters, read_slim, target_of, write_report

    folder, info, label = named_run(run, runs)
    check_redact(redact, info.suite)
    target = target_of(folder, output, single_file=single_file)
    fetch_outputs(folder)
    filters = GalleryFilters(tuple(case or ()), tuple(tag or ()), max_cells, Redaction.by(redact))
    slim_run = read_slim(folder, info, label, filters)
    if label is None:
        warn_missing(folder, info, len(slim_run.records), options.say)
    page = write_report(slim_run, target, single_file=single_file, trust=trust_suite)
    print(f"wrote {page}")
    if slim_run.left_out is not None:
        options.say(slim_run.left_out)
    if open_page:
        import webbrowser

        address, is_open = page.resolve().as_uri(), False
        with suppress(webbrowser.Error, ValueError):  # BROWSER is not a command
            is_open = webbrowser.open(address)
        if not is_open:
            options.say(f"cannot open a browser; open {address}")


Metrics = Annotated[
    list[str] | None,
    options.value(
        "--metric",
        "GLOB",
        "Draw lines of these metrics; default: those that the rules and gates of the last run read. Repeatable.",
    ),
]
TrustSuite = Annotated[
    bool, options.flag("--trust-suite", "Show input images from outside the suites' folders and the working directory.")
]


@options.with_settings(bounds=[MEGAPIXELS])
def view(
    metric: Metrics = None,
    trust_suite: TrustSuite = False,
    port: options.Port = None,
    host: options.Host = options.HOST,
    open_page: options.OpenBrowser = None,
    runs: options.RunsFolder = RUNS,
) -> None:
    """Show all runs of a folder in a browser on this machine.

    Shows trends, reports, comparisons and label pages. Reports of runs in progress are updated. Writes nothing but
    your labels.

    Examples:
        visioneval view
        visioneval view --metric 'pass_rate' --port 9000
        visioneval view --runs s3://bucket/runs
    """
    from visioneval.serve import check_extra

    check_extra("the viewer")
    from visioneval.serve.view import serve

    serve(
        runs,
        metrics=metric or (),
        trust=trust_suite,
        host=host,
        port=port,
        open_page=sys.stdout.isatty() if open_page is None else open_page,
        log=lambda line: print(line, flush=True),
    )


@options.with_settings(bounds=[MEGAPIXELS])
def site(
    output: Annotated[
        Path, options.value("--output/-o", "DIR", "The folder to write; an earlier site in it is updated.")
    ],
    experiment: Annotated[str | None, options.value("--experiment", "NAME", "Only runs of this experiment.")] = None,
    last: Annotated[int | None, options.value("--last", "N", "Only the last N runs of each experiment.", min=1)] = None,
    metric: Metrics = None,
    max_cells: Annotated[
        int, options.value("--max-cells", "N", "At most N cells in each gallery.", min=1)
    ] = MAX_GALLERY_CELLS,
    redact: options.Redact = None,
    trust_suite: TrustSuite = False,
    runs: options.RunsFolder = RUNS,
) -> None:
    """Write all runs of a folder as static HTML, for a web server.

    The site has an index with trends, the report of each run, and a comparison of each run with the one before.

    Examples:
        visioneval site --output public
        visioneval site --output public --experiment nightly --last 30
        visioneval site --output public --redact person
    """
    from visioneval.serve.site import SiteOptions, write_site

    chosen = SiteOptions(experiment, last, tuple(metric or ()), max_cells, trust_suite, tuple(redact or ()))
    print(f"wrote {write_site(runs, output, chosen, options.say)}")


_TRACKER = "Experiment tracker"
FORMATS = ("csv", "jsonl", "parquet")
"""The tables that ``export`` writes:

- ``csv``: For spreadsheets: the main fields, and a column for each metric, each judge of a panel (``clear by a``) and
  each alignment grader (``aligned gaps``). Text that would be a formula gets an apostrophe, control characters are
  replaced.
- ``jsonl``: Records, with ``metadata``, ``run_params`` and ``details`` as JSON texts, for ``visioneval compare``,
  DuckDB, ``pl.read_ndjson`` and ``pd.read_json(..., lines=True)``.
- ``parquet``: Every field, typed, and the columns of CSV, for ``pl.read_parquet``, ``pd.read_parquet``, DuckDB, Spark
  and BigQuery. Needs the extra ``parquet``.
"""


def export(
    run: options.RunOrLatest = LATEST,
    output: Annotated[
        Path | None, options.value("--output/-o", "FILE", "Write to this file instead of standard output.")
    ] = None,
    form: Annotated[
        str | None,
        options.value(
            "--format",
            "csv|jsonl|parquet",
            "csv: a row per cell; jsonl: records; parquet: typed columns. Default: by the file extension.",
        ),
    ] = None,
    tracker: Annotated[
        str | None,
        options.value("--to", "mlflow|wandb|vertex", "Send the whole run to an experiment tracker.", _TRACKER),
    ] = None,
    option: Annotated[
        list[str] | None,
        options.value(
            "--option",
            "NAME=VALUE",
            "With --to: an option of the tracker, such as uri=http://HOST:5000 or project=NAME.",
            _TRACKER,
        ),
    ] = None,
    redact: options.Redact = None,
    runs: options.RunsFolder = RUNS,
) -> None:
    """Export the cells of a run, or send a run to an experiment tracker.

    CSV has a column for each judge of a panel. In CSV, text that starts with =, +, - or @ gets a leading
    apostrophe, because spreadsheets read it as a formula.

    Examples:
        visioneval export latest -o cells.csv
        visioneval export latest -o cells.parquet
        visioneval export latest --to mlflow --option uri=http://127.0.0.1:5000
    """
    if tracker is not None:
        if output is not None or form is not None:
            raise UsageError("--to sends a run to a tracker: leave out --output and --format")
        from visioneval.api.runs import track_stored, tracking_of_options
        from visioneval.report.text import clean

        values = options.pairs("--option", "NAME=VALUE", option)
        with options.prints_on_stderr():
            target = tracking_of_options(tracker, values)
            address = track_stored(run, target, runs, options.say, redact or ())
        print(clean(address))
        return
    if option:
        raise UsageError("--option: needs --to")
    from visioneval.analysis.redaction import Redaction, check_redact, redacted_run
    from visioneval.analysis.run_lookup import open_run
    from visioneval.export.table import format_of

    file_format = format_of(form, output, FORMATS)
    _, info, records = open_run(run, runs, options.say)
    check_redact(redact, info.suite)
    info, records = redacted_run(info, records, Redaction.by(redact))
    _write_table(file_format, info, records, output)
    if output is not None:
        print(f"wrote {output}")


def _write_table(file_format: str, info: RunInfo, records: Records[Record], output: Path | None) -> None:
    from visioneval.atomic import open_output
    from visioneval.export.table import READ_ROWS, cell_table, record_table, write_csv, write_jsonl, write_parquet

    if file_format == "parquet":
        if output is None:
            raise UsageError("--format parquet: name the file with --output")
        write_parquet(record_table(records.in_order(info), info), output)
        return
    with open_output(output) as file:
        if file_format == "csv":
            write_csv(cell_table(records.in_order(info), info), file)
        elif not write_jsonl(lambda: records.in_order(info), file):
            options.say(
                f"the first {READ_ROWS} rows do not have all fields: read all rows for the schema (polars:"
                " infer_schema_length=None), or use --format parquet"
            )
