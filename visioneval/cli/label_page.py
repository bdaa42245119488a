"""The command that opens the labeling page: label RUN."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from visioneval.cli import options

HOST = "127.0.0.1"


def page(
    run: options.RunName,
    rater: Annotated[str | None, options.value("--rater", "NAME", "Who labels; the page asks where absent.")] = None,
    which: Annotated[
        str,
        options.value(
            "--which", "all|random:N|...", "Which cells: all, random:N, stratified:N (by verdict), disputed:N."
        ),
    ] = "all",
    pairs: Annotated[
        str | None,
        options.value("--pairs", "RUN[@LABEL]", "Ask which is better: RUN's image or that of this other run."),
    ] = None,
    repeat: Annotated[
        float, options.value("--repeat", "SHARE", "A share of the items comes back later.", min=0.0, max=1.0)
    ] = 0.0,
    seed: Annotated[
        int | None,
        options.value("--seed", "N", "Shuffles order and sides; else the last one, or a new one.", min=0),
    ] = None,
    port: Annotated[
        int | None,
        options.value("--port", "PORT", "Default 8377, or a free one where that is taken.", min=0, max=65535),
    ] = None,
    host: Annotated[str, options.value("--host", "ADDRESS", "An address of this machine alone.")] = HOST,
    open_page: Annotated[
        bool | None,
        typer.Option("--open/--no-open", metavar="", help="Open a browser; on a terminal it does.", show_default=False),
    ] = None,
    out: options.RunsFolder = options.RUNS,
) -> None:
    """Ask people about a run's images, in a browser on this machine. They see no model name and no score."""
    from visioneval.label.serve import serve
    from visioneval.label.work import LabelRequest

    serve(
        LabelRequest(run, out, which=which, pairs=pairs, repeat=repeat, seed=seed),
        host=host,
        port=port,
        rater=rater,
        open_page=sys.stdout.isatty() if open_page is None else open_page,
        log=lambda line: print(line, flush=True),
    )
