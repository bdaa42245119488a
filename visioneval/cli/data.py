"""The commands ``cache info``, ``cache verify``, ``cache prune``, ``cache clear`` and ``plugins``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visioneval.cli import options
from visioneval.cli.help import Command, HelpWithoutTypes
from visioneval.errors import ExitCode, UsageError, count_of
from visioneval.settings import RUNS

if TYPE_CHECKING:
    from visioneval.api.cache import StoredCache
    from visioneval.suite.plugins import CheckedPlugin

app = typer.Typer(
    cls=HelpWithoutTypes,
    no_args_is_help=True,
    help="Inspect, check, prune or clear the cache of paid answers and local measurements.",
)
Days = Annotated[
    float | None, options.value("--older-than", "DAYS", "Only answers older than this many days.", min=0, max=100_000)
]


def _open(folder: Path | None) -> StoredCache:
    from visioneval.api.cache import open_stored

    return open_stored(folder)


@app.command(cls=Command)
def info(cache: options.CacheFolder = None) -> None:
    """Show the cache's folder, number of answers and size.

    Examples:
        visioneval cache info
        visioneval cache info --cache visioneval-cache
    """
    opened = _open(cache)
    contents = opened.read()
    kinds = Counter(entry.kind for entry in contents.answers.values())
    oldest = min((entry.stored_at for entry in contents.answers.values()), default=None)
    limit = f" of at most {opened.max_bytes / 1e9:,g} GB" if opened.max_bytes is not None else ""
    print(f"folder        {opened.name}")
    print(f"generations   {kinds['generate']:,}")
    print(f"judgments     {kinds['judge']:,}")
    print(f"measurements  {kinds['measure']:,}")
    print(f"size          {contents.size / 1e6:,.1f} MB{limit}")
    print(f"oldest        {_seconds(oldest) if oldest else '-'}")


@app.command(cls=Command)
def verify(cache: options.CacheFolder = None) -> None:
    """Check every file of the cache.

    Exits 1 if a file is damaged, missing or not a file of a cache. Also lists questions with several answers, of
    which the newest is read.

    Examples:
        visioneval cache verify
        visioneval cache verify --cache visioneval-cache
    """
    opened = _open(cache)
    contents = opened.read()
    wrong = list(opened.problems(contents))
    for line in wrong:
        print(f"{opened.name}/{line}")
    for key, entries in contents.repeated().items():
        times = ", ".join(f"{_seconds(entry.stored_at)} ({entry.run_id})" for entry in entries)
        print(f"{key}: {len(entries)} answers, the newest is read: {times}")
    print(
        f"{opened.name}: {count_of(len(contents.answers), 'answer')}, {count_of(len(contents.images), 'image')},"
        f" {count_of(len(contents.repeated()), 'question')} with several answers,"
        f" {count_of(len(wrong), 'problem')}"
    )
    if wrong:
        raise typer.Exit(ExitCode.GATE_FAILED)


@app.command(cls=Command)
def prune(
    keep: Annotated[
        list[Path] | None, options.value("--keep", "SUITE", "Keep what an offline run of this suite reads. Repeatable.")
    ] = None,
    cache: options.CacheFolder = None,
    older_than: Annotated[
        float, options.value("--older-than", "DAYS", "Only answers older than this many days.", min=0, max=100_000)
    ] = 30,
    var: options.Variables = None,
    runs: options.RunsFolder = RUNS,
    trust_suite: options.TrustSuite = False,
) -> None:
    """Delete answers and images that no offline run of the suites reads.

    Runs the suites offline into a temporary folder. Deletes nothing if a suite does not load or lacks an answer.

    Examples:
        visioneval cache prune --keep suite.yaml
        visioneval cache prune --keep a.yaml --keep b.yaml --older-than 0
        visioneval cache prune --keep suite.yaml --cache visioneval-cache
    """
    from visioneval.api.cache import read_answers
    from visioneval.api.options import run_options

    if not keep:
        raise UsageError("--keep SUITE: name each suite whose answers are needed; 'cache clear' deletes all answers")
    opened = _open(cache)
    before = datetime.now(UTC) - timedelta(days=older_than)
    settings = run_options(
        cache=opened.folder,
        offline=True,
        runs=runs,
        variables=options.pairs("--var", "NAME=VALUE", var),
        trust_suite=trust_suite,
    )
    reads = read_answers(keep, settings, options.say)
    contents = opened.read()
    deleted = opened.prune(contents, reads, before)
    remaining = len(contents.answers) - deleted
    print(
        f"deleted {count_of(deleted, 'answer')} from {opened.name}; kept {remaining:,}, of which"
        f" an offline run reads {len(reads):,}"
    )


@app.command(cls=Command)
def clear(
    cache: options.CacheFolder = None,
    older_than: Days = None,
    yes: Annotated[bool, options.flag("--yes", "Delete all answers without confirmation.")] = False,
) -> None:
    """Delete cached answers and measurements.

    Later runs make, and pay, these calls again. Without --older-than, deletes all answers and asks first.

    Examples:
        visioneval cache clear
        visioneval cache clear --older-than 90
        visioneval cache clear --cache visioneval-cache --yes
    """
    opened = _open(cache)
    contents = opened.read()
    before = datetime.now(UTC) - timedelta(days=older_than) if older_than else None  # 0 days is no filter
    if (
        before is None
        and not yes
        and not options.is_confirmed(
            f"delete all answers ({len(contents.answers):,}) in {opened.name}",
            "Calls that need them will be billed again.",
            ", or --older-than DAYS for old answers only",
        )
    ):
        print("nothing was deleted")
        return
    print(f"deleted {opened.clear(contents, before):,} answers from {opened.name}")


def _seconds(stored_at: str) -> str:
    return datetime.fromisoformat(stored_at).isoformat(timespec="seconds")


def plugins(
    as_json: Annotated[bool, options.flag("--json", "Print a list of objects as one line of JSON.")] = False,
) -> None:
    """List the graders, providers and judges of installed packages.

    Imports each. Exits 1 if one cannot be used.

    Examples:
        visioneval plugins
        visioneval plugins --json
    """
    from visioneval.report.text import clean
    from visioneval.running.sanitize import Sanitizer
    from visioneval.suite.plugins import checked_plugins

    with options.prints_on_stderr():
        checked = checked_plugins()
    data = [
        {
            "kind": entry.plugin.kind,
            "name": entry.plugin.name,
            "version": entry.version,
            "distribution": entry.plugin.distribution,
            "distribution_version": entry.plugin.version,
            "editable": entry.plugin.is_editable,
            "class": entry.plugin.target,
            "problem": entry.problem,
        }
        for entry in checked
    ]
    lines = [json.dumps(data)] if as_json else _table(checked)
    hidden = Sanitizer.around()  # an error of a package may have a key in its message
    for line in lines:
        print(clean(hidden.text(line)))
    if any(entry.problem for entry in checked):
        raise typer.Exit(ExitCode.GATE_FAILED)


def _table(checked: Sequence[CheckedPlugin]) -> list[str]:
    if not checked:
        return ["no installed package has plug-ins"]
    rows = [("kind", "name", "version", "package")]
    rows += [(e.plugin.kind, e.plugin.name, e.version or "-", e.plugin.package) for e in checked]
    notes = ["", *(entry.problem or ("editable" if entry.plugin.is_editable else "") for entry in checked)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in rows]
    return [f"{row}  {note}".rstrip() for row, note in zip(cells, notes, strict=True)]
