"""Checks of the sources of existing outputs. Locations are relative to the entry of ``models:``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from visioneval.errors import UsageError
from visioneval.providers.files.config import FilesProvider
from visioneval.providers.files.dataset import dataset_rows
from visioneval.suite.cases.outputs import split_run
from visioneval.suite.checks.rules import Problems
from visioneval.suite.findings import Loc
from visioneval.suite.loading.datasets.rows import missing_columns
from visioneval.suite.loading.datasets.tables import table_name
from visioneval.suite.loading.paths import Trust


def problems(entry: FilesProvider, folder: Path, trust: Trust) -> Problems:
    """Yields files and runs that the suite may not read."""
    for key, path, start in _named_paths(entry, folder):
        if refusal := trust.refusal(path, start, remote=key != ("run",)):
            yield key, refusal


def run_problems(entry: FilesProvider, folder: Path) -> Problems:
    """Yields missing columns of a readable dataset."""
    if entry.dataset is not None:
        missing = missing_columns(dataset_rows(entry.dataset, folder), entry.dataset.fields)
        yield from ((("dataset", "fields", key), message) for key, message in missing)


def _named_paths(entry: FilesProvider, folder: Path) -> Iterator[tuple[Loc, str, Path]]:
    if entry.path:
        yield ("path",), entry.path.split("{")[0], folder
    if entry.run and ("/" in (run := split_run(entry.run)[0]) or run in (".", "..")):
        yield ("run",), run, Path.cwd()
    if entry.dataset:
        yield ("dataset", "path"), entry.dataset.path, folder
        with suppress(UsageError):  # a folder without metadata is reported when it is read
            yield ("dataset", "path"), table_name(entry.dataset.path, folder), folder
