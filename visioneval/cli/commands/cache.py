"""The commands ``cache info`` and ``cache clear``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visioneval.cli import options
from visioneval.cli.help_pages import HelpWithoutTypes
from visioneval.errors import UsageError

if TYPE_CHECKING:
    from visioneval.engine.calls.caching.cache import Cache

app = typer.Typer(
    cls=HelpWithoutTypes,
    no_args_is_help=True,
    help="Inspect or clear the cache of paid answers and local measurements.",
)
Folder = Annotated[Path | None, options.value("--cache", "DIR", "The cache folder; default: the user's.")]


def _open(folder: Path | None) -> Cache:
    from visioneval.engine.calls.caching.cache import Cache, default_folder

    if folder is not None and not (folder / "index.sqlite").is_file():
        problem = "is a file, not a cache" if folder.is_file() else "no cache found"
        raise UsageError(f"{folder}: {problem}: --cache takes a folder that 'run --cache' wrote")
    return Cache(folder or default_folder(), warn=options.say)


@app.command()
def info(cache: Folder = None) -> None:
    """Show the cache's folder, number of entries and size."""
    with _open(cache) as opened:
        state = opened.info()
    print(f"folder        {state.folder}")
    print(f"generations   {state.generations:,}")
    print(f"judgments     {state.judgements:,}")
    print(f"measurements  {state.measurements:,}")
    print(f"size          {state.bytes / 1e6:,.1f} MB of at most {state.max_bytes / 1e9:,g} GB")
    print(f"oldest        {state.oldest or '-'}")


@app.command()
def clear(
    cache: Folder = None,
    older_than: Annotated[
        float | None,
        options.value("--older-than", "DAYS", "Only answers older than this many days.", min=0, max=100_000),
    ] = None,
    yes: Annotated[bool, options.flag("--yes", "Delete all answers without confirmation.")] = False,
) -> None:
    """Delete cached answers and measurements. Calls that need them are made, and paid, again.

    Without --older-than, or with 0, deletes all answers after a confirmation.
    """
    from datetime import UTC, datetime, timedelta

    before = None
    if older_than:  # 0 days is no filter
        before = (datetime.now(UTC) - timedelta(days=older_than)).isoformat(timespec="seconds")
    with _open(cache) as opened:
        if before is None and not yes and not _is_confirmed(opened):
            print("nothing was deleted")
            return
        print(f"deleted {opened.clear(before):,} answers from {opened.folder}")


def _is_confirmed(opened: Cache) -> bool:
    """Asks at the terminal whether to delete all answers. Raises ``UsageError`` without a terminal."""
    state = opened.info()
    what = f"all answers ({state.entries:,}) in {state.folder}"
    if not sys.stdin.isatty():
        raise UsageError(f"this would delete {what}: add --yes, or --older-than DAYS for old answers only")
    print(f"Delete {what}? Calls that need them will be billed again. [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
