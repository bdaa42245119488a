"""The commands ``view`` and ``site``: all runs of a folder in a browser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from visioneval.bounds import MEGAPIXELS
from visioneval.cli import options
from visioneval.cli.bound_flags import bounded
from visioneval.defaults import MAX_GALLERY_CELLS, RUNS

HOST = "127.0.0.1"
Metrics = Annotated[
    list[str] | None,
    options.value(
        "--metric",
        "GLOB",
        "Draw lines of these metrics; default: those that the rules and gates of the last run read. Repeatable.",
    ),
]
TrustSuite = Annotated[
    bool,
    options.flag("--trust-suite", "Show input images from outside the suites' folders and the working directory."),
]


@bounded(MEGAPIXELS)
def view(
    metric: Metrics = None,
    trust_suite: TrustSuite = False,
    port: options.Port = None,
    host: options.Host = HOST,
    open_page: options.OpenBrowser = None,
    runs: options.RunsFolder = RUNS,
) -> None:
    """Show all runs of a folder in a browser on this machine: trends, reports, comparisons, labels.

    The report of a run in progress is updated. Nothing is written into runs but the labels that you give.
    """
    from visioneval.view.serve import serve

    serve(
        runs,
        metrics=metric or (),
        trust=trust_suite,
        host=host,
        port=port,
        open_page=sys.stdout.isatty() if open_page is None else open_page,
        log=lambda line: print(line, flush=True),
    )


@bounded(MEGAPIXELS)
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
    trust_suite: TrustSuite = False,
    runs: options.RunsFolder = RUNS,
) -> None:
    """Write all runs of a folder as static HTML, for a bucket or a web server.

    An index with trends, the report of each run, and each run compared with the one before in its experiment.
    """
    from visioneval.view.site import SiteOptions, write_site

    chosen = SiteOptions(experiment, last, tuple(metric or ()), max_cells, trust_suite)
    print(f"wrote {write_site(runs, output, chosen, options.say)}")
