"""Which folders on this machine stand for a URL, and how messages name them."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from visioneval.errors import UsageError
from visioneval.media.urls import is_url_like, public_address, unreadable
from visioneval.records.stores.copies import RunCopies, folder_for
from visioneval.records.stores.store import ObjectStore

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


def shown_message(text: str) -> str:
    """A message in which copies are named by their URLs; a folder that a run is written in stays, for what is lost."""
    for copies in _COPIES.values():
        text = text.replace(str(copies.root), copies.url)
    for folder, url in _CACHES.items():
        text = text.replace(str(folder), url)
    return text
