"""Finds runs by name in a local folder or in a store, brings what is read up to date, and adds what people answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from visioneval.errors import RunFormatError, UsageError
from visioneval.media.urls import is_url, public_address
from visioneval.records import run_folders
from visioneval.records.stores.locations import copies_at, copies_of, display_name, runs_folder
from visioneval.records.stores.store import in_threads
from visioneval.records.writer import append_lines


def find_run(name: str, root: Path) -> Path:
    """Finds a run by path, ID, unique ID prefix, or ``latest``. Raises ``UsageError`` and ``RunFormatError``.

    A URL is refused: a suite, which may be a stranger's, must not choose a store.
    """
    if is_url(name):
        raise UsageError(f"{public_address(name)}: is a URL: only runs in local folders and below --runs can be read")
    if (Path(name) / "run.json").is_file():
        return run_folders.check_run_folder(Path(name))
    copies = copies_at(root)
    where = str(root) if copies is None else copies.url
    if name == "latest":
        runs = list_runs(root)
        if not runs:
            raise UsageError(f"{where}: contains no runs")
        run_id = runs[-1][0].name
    else:
        local = (path.parent.name for path in sorted(root.glob("*/run.json")))
        run_id = run_folders.choose_run(name, list(local) if copies is None else copies.run_ids(), where)
    return run_folders.check_run_folder(root / run_id) if copies is None else copies.refresh(run_id)


def find_named_run(name: str, root: Path) -> Path:
    """Like ``find_run``, for a name that a user typed: it can also be the URL of a run."""
    if not name.startswith(("s3://", "gs://")):
        return find_run(name, root)
    url, _, run_id = name.rstrip("/").rpartition("/")
    copies = None if url.endswith(":/") else copies_at(runs_folder(url))
    if copies is None:  # what comes before an @, which also separates a run and a label, may be credentials
        start = name if name.count(":") == 1 else f"{name[:5]}..."
        raise UsageError(f"{start}: is not the URL of a run: write s3://BUCKET/RUNS/ID or gs://BUCKET/RUNS/ID")
    return copies.refresh(run_folders.choose_run(run_id, copies.run_ids(), url))


def list_runs(root: Path) -> list[tuple[Path, dict[str, Any]]]:
    """All runs in a folder with the raw contents of ``run.json``, oldest first. Skips invalid runs."""
    copies = copies_at(root)
    if copies is not None:
        copies.refresh_headers()
    return run_folders.list_runs(root)


def refresh_runs(folders: Sequence[Path]) -> dict[Path, str]:
    """Brings the copies of listed runs up to date. Returns why some of them cannot be read; local runs can."""
    copies = copies_at(folders[0].parent) if folders else None
    if copies is None:
        return {}

    def problem(folder: Path) -> str | None:
        try:
            copies.refresh(folder.name)
        except (RunFormatError, UsageError) as error:
            return str(error)
        return None

    problems = zip(folders, in_threads(problem, folders), strict=True)
    return {folder: text for folder, text in problems if text is not None}


def fetch_outputs(folder: Path) -> None:
    """Downloads the outputs of a run in a store, before they are read; nothing to do for a local run.

    ``folder`` can also be the one that a run is written in, which lacks what workers of a cluster have sent.
    """
    if (copies := copies_of(folder)) is not None:
        copies.fetch_outputs(folder)


def append_shared(path: Path, lines: Sequence[bytes]) -> None:
    """Appends lines to a file in the folder of a run, all or none; to a copy, after they are in the store.

    Several people and machines may do this at once. Each line is JSON without a newline. Raises ``StorageError``.
    """
    copies = copies_at(path.parent.parent)
    if copies is None:
        append_lines(path, lines)
    else:
        copies.append(path.parent.name, path.name.removesuffix(".jsonl"), lines)


__all__ = ["display_name", "fetch_outputs", "find_named_run", "find_run", "list_runs", "refresh_runs", "runs_folder"]
