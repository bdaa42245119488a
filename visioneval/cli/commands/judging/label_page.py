"""The command ``label page``."""

from __future__ import annotations

import sys
from typing import Annotated

from visioneval.cli import options
from visioneval.defaults import RUNS

HOST = "127.0.0.1"


def page(
    run: options.RunName,
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
        str | None,
        options.value("--pairs", "RUN[@LABEL]", "Ask which image is better: RUN's or this other run's."),
    ] = None,
    repeat: Annotated[
        float, options.value("--repeat", "SHARE", "The share of items to ask again later.", min=0.0, max=1.0)
    ] = 0.0,
    seed: Annotated[
        int | None,
        options.value(
            "--seed", "N", "The seed for order and sides; default: that of the last session, or a new one.", min=0
        ),
    ] = None,
    port: options.Port = None,
    host: options.Host = HOST,
    open_page: options.OpenBrowser = None,
    runs: options.RunsFolder = RUNS,
) -> None:
    """Label a run's images in a browser on this machine, without model names and scores."""
    from visioneval.label.page.serve import serve
    from visioneval.label.work import LabelRequest

    serve(
        LabelRequest(run, runs, which=which, pairs=pairs, repeat=repeat, seed=seed),
        host=host,
        port=port,
        rater=rater,
        open_page=sys.stdout.isatty() if open_page is None else open_page,
        log=lambda line: print(line, flush=True),
    )
