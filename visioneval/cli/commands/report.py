"""The command ``report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from visioneval.bounds import MEGAPIXELS
from visioneval.cli import options
from visioneval.cli.bound_flags import bounded
from visioneval.defaults import MAX_GALLERY_CELLS, RUNS


@bounded(MEGAPIXELS)
def report(
    run: options.RunName,
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
        int, options.value("--max-cells", "N", "At most N cells in the gallery.", options.SELECTION, min=1)
    ] = MAX_GALLERY_CELLS,
    open_page: Annotated[bool, options.flag("--open", "Open the report in a browser.")] = False,
    trust_suite: Annotated[
        bool,
        options.flag("--trust-suite", "Show input images from outside the suite's folder and the working directory."),
    ] = False,
    runs: options.RunsFolder = RUNS,
) -> None:
    """Write a run as static HTML: overview, gallery, and every cell with its images, scores and reasons.

    The overview counts all cells. The gallery has those of --case and --tag, and if they are more than --max-cells,
    first those that did not pass.
    """
    from visioneval.analysis.run_lookup import named_run, warn_missing
    from visioneval.records.stores.lookup import fetch_outputs
    from visioneval.report.html.report import target_of, write_report
    from visioneval.report.html.slim_run import GalleryFilters, read_slim

    folder, info, label = named_run(run, runs)
    target = target_of(folder, output, single_file=single_file)
    fetch_outputs(folder)
    slim_run = read_slim(folder, info, label, GalleryFilters(tuple(case or ()), tuple(tag or ()), max_cells))
    if label is None:
        warn_missing(folder, info, len(slim_run.records), options.say)
    page = write_report(slim_run, target, single_file=single_file, trust=trust_suite)
    print(f"wrote {page}")
    if slim_run.left_out is not None:
        options.say(slim_run.left_out)
    if open_page:
        _open(page.resolve().as_uri())


def _open(address: str) -> None:
    """Opens the page, or prints its address if there is no browser."""
    import webbrowser

    try:
        is_open = webbrowser.open(address)
    except (webbrowser.Error, ValueError):  # BROWSER is not a command
        is_open = False
    if not is_open:
        options.say(f"cannot open a browser; open {address}")
