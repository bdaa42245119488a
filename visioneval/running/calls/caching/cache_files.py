"""The files of a cache on this machine, and videos that were downloaded because they are too large for memory."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from hashlib import file_digest, sha256
from pathlib import Path

from visioneval.atomic import write_whole
from visioneval.records.stores.store import StoredObject

Content = bytes | Path
"""A file to store: its bytes, or a file with them that does not change."""
_SCRATCH = ".download-"
_SCRATCH_S = 86_400.0
"""After a day, no process can still be downloading."""


class LocalFolder:
    """The files below a folder, with the methods of ``ObjectStore`` that the upkeep of a cache needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __str__(self) -> str:
        return str(self.folder)

    def walk(self, folder: str) -> list[StoredObject]:
        """All files below a folder, by key. Follows no links, as they may lead anywhere."""
        items = []
        for parent, _, names in os.walk(self.folder / folder):
            key = Path(parent).relative_to(self.folder).as_posix()
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    state = os.lstat(f"{parent}/{name}")
                    modified = datetime.fromtimestamp(state.st_mtime, UTC)
                    items.append(StoredObject(f"{key}/{name}", False, state.st_size, modified=modified))
        return sorted(items, key=lambda item: item.key)

    def read_in_order(self, items: Sequence[StoredObject]) -> Iterator[bytes]:
        """The contents of listed files; nothing of those that cannot be read."""
        for item in items:
            try:
                yield (self.folder / item.key).read_bytes()
            except OSError:
                yield b""

    def delete(self, key: str) -> None:
        """Deletes a file, if it exists."""
        (self.folder / key).unlink(missing_ok=True)


def content_size(content: Content) -> int:
    """The number of bytes."""
    return content.stat().st_size if isinstance(content, Path) else len(content)


def content_digest(content: Content) -> str:
    """The SHA-256 by which a content is stored."""
    if isinstance(content, bytes):
        return sha256(content).hexdigest()
    with content.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def store_content(path: Path, content: Content) -> None:
    """Writes a file of the cache, unless it is there; a damaged one is replaced. Raises ``OSError``."""
    if isinstance(content, Path):
        _take(content, path)
        return
    with contextlib.suppress(FileNotFoundError):
        if path.read_bytes() == content:
            with contextlib.suppress(OSError):  # a file of another user
                os.utime(path)  # so that the upkeep of another process does not take it for abandoned
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content)


def _take(source: Path, path: Path) -> None:
    """Links a file to its place, or copies it where that does not work."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        try:
            part.hardlink_to(source)
        except OSError:
            shutil.copyfile(source, part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)  # linked to the same file, replace() did nothing


@contextlib.contextmanager
def scratch_folder(parent: Path | None) -> Iterator[Path]:
    """A folder for files that are to be cached, in ``parent`` or the system's folder. It is deleted at the end."""
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=parent, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def clear_scratch(parent: Path) -> None:
    """Deletes what killed processes have left."""
    for folder in parent.glob(f"{_SCRATCH}*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > _SCRATCH_S:
                shutil.rmtree(folder, ignore_errors=True)
