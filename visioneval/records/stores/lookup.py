"""Which folders on this machine stand for a URL, and the runs in them.

Finds runs by name, brings what is read up to date, and adds what people answer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from visioneval.errors import RunFormatError, UsageError
from visioneval.media.urls import is_url, is_url_like, public_address, unreadable
from visioneval.records.stores.copies import RunCopies, folder_for
from visioneval.records.stores.store import ObjectStore, in_threads
from visioneval.records.untrusted import check_run_folder, choose_run
from visioneval.records.untrusted import list_runs as list_local_runs
from visioneval.records.writer import append_lines
from visioneval.settings import RUNS

_STORES = ("s3://", "gs://")
_COPIES: dict[Path, RunCopies] = {}
"""By the folder of the copies. Only flags, keywords and names that a user typed add to it."""
_CACHES: dict[Path, str] = {}


def runs_folder(location: Path | str) -> Path:
    """The folder that stands for a location of runs: a folder itself, or that of the copies of a URL.

    Makes no call. Raises ``UsageError`` for a URL that cannot be used.
    """
    if (url := _store_url(location)) is None:
        return Path(location)
    copies = RunCopies(url)
    return _COPIES.setdefault(copies.root, copies).root


def cache_folder(location: Path | str) -> Path:
    """The folder that stands for the location of a cache: a folder itself, or that in front of a URL.

    Makes no call. Raises ``UsageError`` for a URL that cannot be used.
    """
    if (url := _store_url(location)) is None:
        return Path(location)
    url = ObjectStore(url).url
    folder = folder_for(url) / "cache-3"  # "cache" has the layout of earlier versions
    _CACHES[folder] = url
    return folder


def cache_url(folder: Path) -> str | None:
    """The URL of the cache that a folder stands for; ``None`` for a local cache."""
    return _CACHES.get(folder)


def _store_url(location: Path | str) -> str | None:
    """The URL of a store; ``None`` for a folder.

    Raises ``UsageError`` for a URL that no store has, and for one that became a path.
    """
    text = str(location)
    if not text.startswith(_STORES):
        if not is_url_like(text):
            return None
        written = ", as a string" if isinstance(location, Path) else ""
        lowered = text[:5].lower()
        hint = f": write {lowered}{text[5:]}" if lowered in _STORES else ""
        shown = public_address(text)
        raise UsageError(
            f"{shown}: runs and caches can be in a local folder, or at an s3:// or gs:// URL{written}{hint}"
        )
    if "@" in text:
        raise UsageError(f"{text[:5]}...: a store's URL must not contain credentials: set them in the environment")
    if problem := unreadable(text):
        raise UsageError(problem)
    parts = urlsplit(text)
    if parts.query or parts.fragment or any(part in (".", "..") for part in parts.path.split("/")):
        raise UsageError(f"{public_address(text)!r}: write s3://BUCKET/FOLDER or gs://BUCKET/FOLDER, without a query")
    return text


def copies_at(root: Path) -> RunCopies | None:
    """The copies whose folder this is; ``None`` for a local folder of runs."""
    return _COPIES.get(root)


def copies_of(folder: Path) -> RunCopies | None:
    """The copies that a run's folder belongs to, also a folder that it is written in; ``None`` for a local run."""
    return next((copies for copies in _COPIES.values() if folder.parent in (copies.root, copies.work)), None)


def display_name(folder: Path | str) -> str:
    """The name of a folder for the user: a folder that stands for a URL is named by its URL."""
    text = shown_message(str(folder))
    for copies in _COPIES.values():
        text = text.replace(str(copies.work), copies.url)
    return text


def name_of_run(folder: Path, default: Path = RUNS) -> str:
    """What commands take as the name of a run: its ID in the ``default`` folder, else its path."""
    return folder.name if folder.parent == default else display_name(folder)


def shown_message(text: str) -> str:
    """A message in which copies are named by their URLs; a folder that a run is written in stays, for what is lost."""
    for copies in _COPIES.values():
        text = text.replace(str(copies.root), copies.url)
    for folder, url in _CACHES.items():
        text = text.replace(str(folder), url)
    return text


def find_run(name: str, root: Path) -> Path:
    """Finds a run by path, ID, unique ID prefix, or ``latest``. Raises ``UsageError`` and ``RunFormatError``.

    A URL is refused: a suite, which may be a stranger's, must not choose a store.
    """
    if is_url(name):
        raise UsageError(f"{public_address(name)}: is a URL: only runs in local folders and below --runs can be read")
    if (Path(name) / "run.json").is_file():
        return check_run_folder(Path(name))
    copies = copies_at(root)
    where = str(root) if copies is None else copies.url
    if name == "latest":
        runs = list_runs(root)
        if not runs:
            raise UsageError(f"{where}: contains no runs")
        run_id = runs[-1][0].name
    else:
        local = (path.parent.name for path in sorted(root.glob("*/run.json")))
        run_id = choose_run(name, list(local) if copies is None else copies.run_ids(), where)
    return check_run_folder(root / run_id) if copies is None else copies.refresh(run_id)


def find_named_run(name: str, root: Path) -> Path:
    """Like ``find_run``, for a name that a user typed: it can also be the URL of a run."""
    if not name.startswith(("s3://", "gs://")):
        return find_run(name, root)
    url, _, run_id = name.rstrip("/").rpartition("/")
    copies = None if url.endswith(":/") else copies_at(runs_folder(url))
    if copies is None:  # what comes before an @, which also separates a run and a label, may be credentials
        start = name if name.count(":") == 1 else f"{name[:5]}..."
        raise UsageError(f"{start}: is not the URL of a run: write s3://BUCKET/RUNS/ID or gs://BUCKET/RUNS/ID")
    return copies.refresh(choose_run(run_id, copies.run_ids(), url))


def list_runs(root: Path) -> list[tuple[Path, dict[str, Any]]]:
    """All runs in a folder with the raw contents of ``run.json``, oldest first. Skips invalid runs."""
    copies = copies_at(root)
    if copies is not None:
        copies.refresh_headers()
    return list_local_runs(root)


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


def fetch_outputs(folder: Path, paths: Collection[str | None] | None = None) -> None:
    """Downloads the outputs of a run in a store, before they are read; nothing to do for a local run.

    With ``paths``, which are relative to the run, only these. ``folder`` can also be the one that a run is written in,
    which lacks what workers of a cluster have sent.
    """
    if (copies := copies_of(folder)) is not None:
        copies.fetch_outputs(folder, paths)


def append_shared(path: Path, lines: Sequence[bytes]) -> None:
    """Appends lines to a file in the folder of a run, all or none; to a copy, after they are in the store.

    Several people and machines may do this at once. Each line is JSON without a newline. Raises ``StorageError``.
    """
    copies = copies_at(path.parent.parent)
    if copies is None:
        append_lines(path, lines)
    else:
        copies.append(path.parent.name, path.name.removesuffix(".jsonl"), lines)
