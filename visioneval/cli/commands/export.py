"""The command ``export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from visioneval.cli import options
from visioneval.defaults import RUNS
from visioneval.errors import UsageError

if TYPE_CHECKING:
    from visioneval.records.cells.stored_records import StoredRecords
    from visioneval.records.model import RunInfo

_TRACKER = "Experiment tracker"
_FORMATS = ("csv", "jsonl", "parquet")


def export(
    run: options.RunName,
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
    runs: options.RunsFolder = RUNS,
) -> None:
    """Export the cells of a run to a file, or a run to an experiment tracker.

    In CSV, each judge of a panel has a column of its own, such as 'clear by a'. Text that starts with =, +, - or @ gets
    a leading apostrophe: spreadsheets would read it as a formula.
    """
    if tracker is not None:
        if output is not None or form is not None:
            raise UsageError("--to sends a run to a tracker: leave out --output and --format")
        _send(run, tracker, options.pairs("--option", "NAME=VALUE", option), runs)
        return
    if option:
        raise UsageError("--option: needs --to")
    from visioneval.analysis.run_lookup import open_run
    from visioneval.export.labels import format_of

    file_format = format_of(form, output, _FORMATS)
    _, info, records = open_run(run, runs, options.say)
    _write_table(file_format, info, records, output)
    if output is not None:
        print(f"wrote {output}")


def _send(run: str, tracker: str, values: dict[str, str], runs: Path) -> None:
    from visioneval.api.trackers import send_run, tracking_of_options
    from visioneval.report.text import clean

    with options.prints_on_stderr():
        address = send_run(run, tracking_of_options(tracker, values), runs, options.say)
    print(clean(address))


def _write_table(file_format: str, info: RunInfo, records: StoredRecords, output: Path | None) -> None:
    from visioneval.export.csv import score_columns, write_csv
    from visioneval.export.jsonl import READ_ROWS, write_jsonl
    from visioneval.export.parquet import write_parquet
    from visioneval.report.files import open_output

    if file_format == "parquet":
        if output is None:
            raise UsageError("--format parquet: name the file with --output")
        write_parquet(records.in_order(info), info, score_columns(info), output)
        return
    with open_output(output) as file:
        if file_format == "csv":
            write_csv(records.in_order(info), score_columns(info), file)
        elif not write_jsonl(lambda: records.in_order(info), file):
            options.say(
                f"the first {READ_ROWS} rows do not have all fields: read all rows for the schema (polars:"
                " infer_schema_length=None), or use --format parquet"
            )
