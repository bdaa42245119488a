"""The commands ``cache info`` and ``cache clear``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visioneval.cli import options
from visioneval.errors import UsageError

if TYPE_CHECKING:
    from visioneval.engine.cache import Cache

app = typer.Typer(no_args_is_help=True, help="What paid calls answered: where it is kept, and how to drop it.")
Folder = Annotated[Path | None, options.value("--cache", "DIR", "Another folder than your own one.")]


def _opened(folder: Path | None) -> Cache:
    from visioneval.engine.cache import Cache, default_folder

    if folder is not None and not (folder / "index.sqlite").is_file():
        what = "is a file, no cache" if folder.is_file() else "there is no cache here"
        raise UsageError(f"{folder}: {what}: --cache takes the folder that 'run --cache' wrote")
    return Cache(folder or default_folder(), warn=options.say)


@app.command()
def info(cache: Folder = None) -> None:
    """Show where kept answers are, how many, and how much room they take."""
    with _opened(cache) as opened:
        found = opened.info()
    print(f"folder      {found.folder}")
    print(f"drawings    {found.drawings:,}")
    print(f"judgements  {found.judgements:,}")
    print(f"size        {found.bytes / 1e6:,.1f} MB of at most {found.max_bytes / 1e9:,g} GB")
    print(f"oldest      {found.oldest or '-'}")


@app.command()
def clear(
    cache: Folder = None,
    older_than: Annotated[
        float | None,
        options.value("--older-than", "DAYS", "Only answers that are older than so many days.", min=0, max=100_000),
    ] = None,
    yes: Annotated[bool, options.flag("--yes", "Drop all answers without asking first.")] = False,
) -> None:
    """Drop cached answers: what they are needed for again will be called and paid again.

    Without --older-than, or with 0, it drops them all, and asks first.
    """
    from datetime import UTC, datetime, timedelta

    before = None
    if older_than:  # 0 days is no filter
        before = (datetime.now(UTC) - timedelta(days=older_than)).isoformat(timespec="seconds")
    with _opened(cache) as opened:
        if before is None and not yes and not _confirmed(opened):
            print("nothing was dropped")
            return
        print(f"dropped {opened.clear(before):,} answers from {opened.folder}")


def _confirmed(opened: Cache) -> bool:
    """Whether the person at the terminal wants all answers dropped. Raises ``UsageError`` where nobody is there."""
    found = opened.info()
    what = f"all answers ({found.drawings + found.judgements:,}) in {found.folder}"
    if not sys.stdin.isatty():
        raise UsageError(f"this would drop {what}: pass --yes, or --older-than DAYS for old answers only")
    print(
        f"Drop {what}? What they are needed for again will be paid again. [y/N] ", end="", file=sys.stderr, flush=True
    )
    return sys.stdin.readline().strip().lower() in ("y", "yes")
