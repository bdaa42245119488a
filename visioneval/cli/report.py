"""The command ``report``: a run as a page to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from visioneval.bounds import MEGAPIXELS
from visioneval.cli import options
from visioneval.cli.bound_flags import bounded
from visioneval.cli.run_lookup import named_run, say_missing


@bounded(MEGAPIXELS)
def report(
    run: options.RunName,
    out: Annotated[
        Path | None,
        options.value("--output/-o", "PATH", "Where the report goes (default: 'report' in the run's folder)."),
    ] = None,
    single_file: Annotated[
        bool, options.flag("--single-file", "One file with everything in it; --output may name it.")
    ] = False,
    opened: Annotated[bool, options.flag("--open", "Open it in the browser.")] = False,
    trust_suite: Annotated[
        bool,
        options.flag("--trust-suite", "Show inputs that lie outside the suite's folder and the working directory."),
    ] = False,
    runs: Annotated[Path, options.value("--runs", "DIR", "The folder of runs.")] = options.RUNS,
) -> None:
    """Write a run as static HTML: overview, gallery, and every cell with its images, scores and reasons."""
    from visioneval.report.html.report import target_of, write_report
    from visioneval.report.html.slim_run import read_slim

    folder, info, label = named_run(run, runs)
    target = target_of(folder, out, single_file=single_file)
    lean = read_slim(folder, info, label)
    if label is None:
        say_missing(folder, info, len(lean.cells))
    page = write_report(lean, target, single_file=single_file, trust=trust_suite)
    print(f"wrote {page}")
    if opened:
        _open(page.resolve().as_uri())


def _open(address: str) -> None:
    """Opens the page, or says where it is: a machine without a browser has the report all the same."""
    import webbrowser

    try:
        found = webbrowser.open(address)
    except (webbrowser.Error, ValueError):  # BROWSER is no command
        found = False
    if not found:
        options.say(f"no browser could be opened here: open {address}")
