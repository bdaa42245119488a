"""The files of a cache: bytes, or files that were downloaded because they are too large for memory."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from visioneval.atomic import read_whole, write_whole

Content = bytes | Path
"""A file to store: its bytes, or a file with them that does not change."""
_SCRATCH = ".download-"
_SCRATCH_S = 86_400.0
"""After a day, no process can still be downloading."""


def content_size(content: Content) -> int:
    """The number of bytes."""
    return content.stat().st_size if isinstance(content, Path) else len(content)


def store_content(file: str, content: Content) -> None:
    """Writes a file of the cache, unless it is there; a damaged one is replaced. Raises ``OSError``."""
    if isinstance(content, Path):
        _take(content, Path(file))
        return
    with contextlib.suppress(FileNotFoundError):
        if read_whole(file) == content:
            return
    path = Path(file)
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
