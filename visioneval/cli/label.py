"""The commands ``label``, ``label draw``, ``label import`` and ``label export``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from visioneval.cli import options
from visioneval.cli.help import Command, HelpWithoutTypes
from visioneval.errors import SHOWN_PROBLEMS, UsageError, count_of
from visioneval.settings import LATEST, RUNS

PAGE = "page"


class RunOrCommand(HelpWithoutTypes):
    """``label RUN`` is short for ``label page RUN``, and ``label`` for ``label page latest``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Inserts ``page`` unless the arguments start with a command."""
        if PAGE in self.commands and (not args or args[0] not in {*self.commands, *ctx.help_option_names}):
            args = [PAGE, *args]
        return super().parse_args(ctx, args)


label = typer.Typer(
    cls=RunOrCommand, help="Collect human labels for a run's images. 'label [RUN]' is short for 'label page [RUN]'."
)


@label.command(PAGE, cls=Command)
def page(
    run: options.RunOrLatest = LATEST,
    rater: Annotated[
        str | None, options.value("--rater", "NAME", "The rater's name; the page asks for it by default.")
    ] = None,
    which: Annotated[
        str,
        options.value(
            "--which",
            "all|random:N|...",
            "Which cells: all, random:N, stratified:N (by verdict) or disputed:N. Random and stratified cells are"
            " recorded as a draw, for 'agreement --correct'.",
        ),
    ] = "all",
    pairs: Annotated[
        str | None, options.value("--pairs", "RUN[@LABEL]", "Ask which image is better: RUN's or this other run's.")
    ] = None,
    repeat: Annotated[
        float, options.value("--repeat", "SHARE", "The share of items to ask again later.", min=0.0, max=1.0)
    ] = 0.0,
    seed: Annotated[
        int | None,
        options.value(
            "--seed",
            "N",
            "The seed of the order and of left and right; default: the seed of the last session, or a new one.",
            min=0,
        ),
    ] = None,
    port: options.Port = None,
    host: options.Host = options.HOST,
    open_page: options.OpenBrowser = None,
    runs: options.RunsFolder = RUNS,
) -> None:
    """Label a run's images in a browser, blind to models and scores.

    Examples:
        visioneval label latest
        visioneval label latest --which random:100 --rater ann
        visioneval label 'latest@*plain' --pairs 'latest@*styled'
    """
    from visioneval.label.work import LabelRequest
    from visioneval.serve import check_extra

    check_extra("the label page")
    from visioneval.serve.label import serve

    serve(
        LabelRequest(run, runs, which=which, pairs=pairs, repeat=repeat, seed=seed),
        host=host,
        port=port,
        rater=rater,
        open_page=sys.stdout.isatty() if open_page is None else open_page,
        log=lambda line: print(line, flush=True),
    )


@label.command("draw", cls=Command)
def draw_cells(
    run: options.RunName,
    which: Annotated[
        str, options.argument("random:N|stratified:N", "How many cells; 'stratified' draws as many PASS as FAIL.")
    ],
    output: Annotated[
        Path | None, options.value("--output/-o", "FILE", "Write to this CSV file instead of standard output.")
    ] = None,
    seed: Annotated[
        int | None,
        options.value("--seed", "N", "The seed; default: that of the last draw of the same kind, or a new one.", min=0),
    ] = None,
    runs: options.RunsFolder = RUNS,
) -> None:
    """Draw random cells to label elsewhere, as a table to fill in.

    The run records the draw, so that 'agreement --correct' can use the labels. Label the cells in the given order.
    The table names the model runs. To hide them, use 'label RUN --which random:N'.

    Examples:
        visioneval label draw latest random:100 -o table.csv
        visioneval label draw latest stratified:60 -o table.csv
        visioneval label draw latest random:100 --seed 7
    """
    from visioneval.atomic import open_output
    from visioneval.export.table import write_drawn_cells
    from visioneval.label.work import record_draw
    from visioneval.report.text import clean

    if output is not None and output.exists():
        raise UsageError(f"{output}: already exists, and may have been filled in: choose another file")
    draw, records, questions = record_draw(run, runs, which, seed, options.say)
    with open_output(output) as file:
        write_drawn_cells(records, [question.key for question in questions], file)
    options.say(f"drawn: {count_of(len(records), 'cell')}; seed {draw.about.seed}")
    for question in questions:
        options.say(clean(f"{question.key} ({question.answers_text}): {question.ask}"))
    if output is not None:
        print(f"wrote {output}")


@label.command("import", cls=Command)
def import_file(
    file: Annotated[Path, options.argument("FILE", "A file of labels from elsewhere: .csv, .tsv or .jsonl.")],
    run: options.RunName,
    mapped: Annotated[
        list[str] | None,
        options.value(
            "--map",
            "FIELD=COLUMN",
            "The column that holds a field, or the answers to a question (by its key). Repeatable.",
        ),
    ] = None,
    fixed: Annotated[
        list[str] | None,
        options.value("--set", "FIELD=VALUE", "Set a field to one value in all rows, such as rater=ann. Repeatable."),
    ] = None,
    runs: options.RunsFolder = RUNS,
) -> None:
    """Add labels from a file to a run.

    Fields: case, model, sample, rater, question, answer, other, seconds, at. Skips invalid rows and names them.
    Exits 3 if a row was skipped, 2 if no row is valid.

    Examples:
        visioneval label import table.csv latest
        visioneval label import old.csv latest --map case=id --set rater=ann
        visioneval label import labels.jsonl latest
    """
    from visioneval.label.importing import import_into_run
    from visioneval.report.text import clean

    columns = options.pairs("--map", "FIELD=COLUMN", mapped)
    values = options.pairs("--set", "FIELD=VALUE", fixed)
    folder, result = import_into_run(file, run, runs, columns, values, options.say)
    for problem in result.problems[:SHOWN_PROBLEMS]:
        options.say(clean(str(problem)))
    if (more := len(result.problems) - SHOWN_PROBLEMS) > 0:
        options.say(f"... and {more:,} more")
    if result.again:
        options.say(f"repeated answers, stored as repeats: {result.again:,}")
    cells = {label.cell for label in result.labels}
    raters = {label.rater for label in result.labels}
    print(
        f"{clean(folder.name)}: labels added: {len(result.labels):,} (cells: {len(cells):,}, raters: {len(raters):,});"
        f" already present: {result.known:,}; skipped: {len(result.problems):,}"
    )
    raise typer.Exit(result.exit_code)


@label.command("export", cls=Command)
def export_labels(
    run: options.RunOrLatest = LATEST,
    output: Annotated[
        Path | None,
        options.value("--output/-o", "FILE", "Write to this file (.csv, .tsv, .jsonl) instead of standard output."),
    ] = None,
    form: Annotated[
        str | None, options.value("--format", "csv|tsv|jsonl", "The format; default: by the file extension.")
    ] = None,
    include_all: Annotated[
        bool, options.flag("--all", "Include labels that were replaced or withdrawn, and labels for replaced images.")
    ] = False,
    runs: options.RunsFolder = RUNS,
) -> None:
    """Write a run's labels as a table that 'label import' can read.

    Examples:
        visioneval label export latest -o labels.csv
        visioneval label export latest --format jsonl
        visioneval label export latest --all -o history.csv
    """
    from visioneval.atomic import open_output
    from visioneval.export.table import LABEL_FORMATS, format_of, write_labels
    from visioneval.label.work import labels_to_export

    labels, outdated = labels_to_export(run, runs, options.say, include_all=include_all)
    if outdated:
        options.say(f"labels for replaced images, left out: {outdated:,} (--all includes them)")
    file_format = format_of(form, output, LABEL_FORMATS)
    with open_output(output) as file:
        write_labels(labels, file_format, file)
    if output is not None:
        print(f"wrote {len(labels):,} labels to {output}")
