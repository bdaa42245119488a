"""Commands about what people say of a run: label, label import, label export."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from visioneval.cli import label_page, options
from visioneval.cli.run_lookup import labels_of, read_run
from visioneval.errors import UsageError

if TYPE_CHECKING:
    from visioneval.label.importing import Imported

PAGE = "page"


class RunOrCommand(TyperGroup):
    """``label RUN`` is ``label page RUN``: what is no command of the group is said to the page."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Puts the page's name before words that begin with no command."""
        if PAGE in self.commands and args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = [PAGE, *args]
        return super().parse_args(ctx, args)


label = typer.Typer(
    cls=RunOrCommand,
    no_args_is_help=True,
    help="Collect what people say of a run's images. 'label RUN' is short for 'label page RUN'.",
)
label.command(PAGE)(label_page.page)


@label.command("import")
def import_file(
    file: Annotated[Path, options.word("FILE", "Labels made elsewhere: .csv, .tsv or .jsonl.")],
    run: options.RunName,
    mapped: Annotated[
        list[str] | None,
        options.value("--map", "FIELD=COLUMN", "The column of a field, or of a question by its key. Repeatable."),
    ] = None,
    fixed: Annotated[
        list[str] | None,
        options.value("--set", "FIELD=VALUE", "A field's value for all rows, such as rater=ann. Repeatable."),
    ] = None,
    out: options.RunsFolder = options.RUNS,
) -> None:
    """Add labels from a file to a run; a row that does not fit is named and skipped.

    Fields: case, model, sample, rater, question, answer, other, seconds, at.
    """
    from datetime import UTC, datetime

    from visioneval.label.importing import Target, import_labels
    from visioneval.records.labels import LABELS, append_labels, read_labels

    folder, info, records = read_run(run, out)
    images = {record.cell: record.artifact_sha256 for record in records}
    target = Target(info.suite.resolved_labels, images, read_labels(folder / LABELS))
    columns = options.pairs("--map", "FIELD=COLUMN", mapped)
    values = options.pairs("--set", "FIELD=VALUE", fixed)
    found = import_labels(file, target, columns, values, now=datetime.now(UTC).isoformat(timespec="seconds"))
    append_labels(folder / LABELS, found.labels)
    _tell(found, folder)
    if found.problems and not found.labels and not found.known:
        raise typer.Exit(2)


def _tell(found: Imported, folder: Path) -> None:
    from visioneval.errors import SHOWN_PROBLEMS
    from visioneval.report.text import clean

    for problem in found.problems[:SHOWN_PROBLEMS]:
        options.say(clean(str(problem)))
    if (more := len(found.problems) - SHOWN_PROBLEMS) > 0:
        options.say(f"... and {more:,} more")
    if found.again:
        options.say(f"answers that another row gave already, kept as given again: {found.again:,}")
    cells = {label.cell for label in found.labels}
    raters = {label.rater for label in found.labels}
    print(
        f"{clean(folder.name)}: labels added: {len(found.labels):,} (cells: {len(cells):,}, raters: {len(raters):,});"
        f" there already: {found.known:,}; skipped: {len(found.problems):,}"
    )


@label.command("export")
def export_labels(
    run: options.RunName,
    output: Annotated[
        Path | None, options.value("--output/-o", "FILE", "Instead of standard output: .csv, .tsv, .jsonl.")
    ] = None,
    form: Annotated[str | None, options.value("--format", "csv|tsv|jsonl", "Instead of the file's ending.")] = None,
    every: Annotated[
        bool, options.flag("--all", "Answers that were replaced or taken back too, not only those that count.")
    ] = False,
    out: options.RunsFolder = options.RUNS,
) -> None:
    """Write a run's labels as a table that 'label import' reads."""
    from visioneval.analysis.agreement.answers import LabeledRun, drop_outdated_labels
    from visioneval.export.labels import format_of, write_labels
    from visioneval.records.labels import LABELS, newest, read_labels

    folder, info, records = read_run(run, out)
    labels = labels_of(run, records, read_labels(folder / LABELS))
    if not every:
        (current,), gone = drop_outdated_labels([LabeledRun(info, records, labels)])
        labels = newest(current.labels)
        if gone:
            options.say(f"labels about images that were generated again since, left out: {gone:,} (--all keeps them)")
    chosen = format_of(form, output)
    if output is None:
        write_labels(labels, chosen, sys.stdout)
        return
    try:
        with output.open("w", encoding="utf-8", newline="") as file:
            write_labels(labels, chosen, file)
    except OSError as error:
        raise UsageError(f"{output}: cannot write: {error.strerror or error}") from None
    print(f"wrote {len(labels):,} labels to {output}")
