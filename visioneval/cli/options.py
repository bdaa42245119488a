"""Options that several commands share, and what they become."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visioneval.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from visioneval.plan import Plan
    from visioneval.records import Selection
    from visioneval.suite.load import LoadedSuite

Suites = Annotated[list[Path], typer.Argument(metavar="SUITE...", show_default=False, help="Suite files.")]
OneSuite = Annotated[Path, typer.Argument(metavar="SUITE", show_default=False, help="A suite file.")]
RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        show_default=False,
        help="Path, id, unique prefix or 'latest'; RUN@label for one model run.",
    ),
]
Out = Annotated[Path, typer.Option("--out", help="The folder of runs.")]
Cases = Annotated[list[str] | None, typer.Option("--case", metavar="GLOB", help="Only these cases. Repeatable.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="Only cases with one of these tags. Repeatable.")]
Models = Annotated[
    list[str] | None,
    typer.Option("--model", metavar="GLOB", help="Only these model runs, by label. Repeatable."),
]
Graders = Annotated[
    list[str] | None, typer.Option("--grader", metavar="GLOB", help="Only these graders, by key. Repeatable.")
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N selected cases.")]
Samples = Annotated[
    int | None,
    typer.Option("--samples", min=1, max=1000, help="Calls per case and model run, instead of the suite's."),
]
Variables = Annotated[
    list[str] | None,
    typer.Option("--var", metavar="NAME=VALUE", help="Replaces one of the suite's vars. Repeatable."),
]
TrustSuite = Annotated[
    bool,
    typer.Option("--trust-suite", help="Let the suite run its own code and read files outside its folder."),
]
RUNS = Path("runs")


def variables(given: list[str] | None) -> dict[str, str]:
    """``NAME=VALUE`` words as a mapping."""
    found: dict[str, str] = {}
    for word in given or []:
        name, sign, value = word.partition("=")
        if not sign or not name:
            raise UsageError(f"--var {word!r}: write NAME=VALUE")
        found[name] = value
    return found


def selection(
    cases: list[str] | None,
    tags: list[str] | None,
    models: list[str] | None,
    graders: list[str] | None,
    limit: int | None,
) -> Selection:
    """The flags that narrow a run, as the run keeps them."""
    from visioneval.records import Selection

    return Selection(
        cases=tuple(cases or ()),
        tags=tuple(tags or ()),
        models=tuple(models or ()),
        graders=tuple(graders or ()),
        limit=limit,
    )


def load_and_expand(
    path: Path, chosen: Selection, *, given: list[str] | None, trust: bool, samples: int | None, out: Path
) -> tuple[LoadedSuite, Plan]:
    """The first two steps of every command that takes a suite."""
    from visioneval.plan import expand, run_labels
    from visioneval.suite.load import load_suite

    loaded = load_suite(path, trust=trust, variables=variables(given), run_labels=run_labels(out))
    return loaded, expand(loaded, chosen, samples=samples, runs_root=out)


def console(*, errors: bool = False) -> Console:
    """A console on standard output, or on standard error."""
    from rich.console import Console

    return Console(stderr=errors, highlight=False, soft_wrap=False, markup=False)


def say(line: str) -> None:
    """A line for the person at the terminal; standard output is for results."""
    print(line, file=sys.stderr, flush=True)
