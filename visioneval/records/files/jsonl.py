"""JSON Lines files to which several processes append concurrently, and which survive a kill at any moment."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from visioneval.errors import StorageError

_BLOCK = 64 * 1024


def append_lines(path: Path, lines: Sequence[bytes]) -> None:
    """Appends lines, all or none, and syncs them to disk.

    Each line is JSON without a newline. First removes a last line that a crash truncated, or ends a complete one that
    only lacks its newline. A file lock makes other writers wait. Raises ``StorageError``.
    """
    if not lines:
        return
    data = b"".join(line + b"\n" for line in lines)
    try:
        with locked(path) as file:
            start = repair_last_line(file)
            try:
                _write(file, data)
                os.fsync(file.fileno())
            except OSError:
                file.truncate(start)
                raise
    except OSError as error:
        raise StorageError(f"{path}: cannot write: {error.strerror or error}") from error


@contextmanager
def locked(path: Path) -> Iterator[BinaryIO]:
    """Opens the file with an exclusive lock, creating it if needed. Raises ``OSError``.

    The owner of the lock may replace the file; waiting writers then lock the new file.
    """
    while True:
        with path.open("ab+", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_at(file, path):
                yield file
                return


def _is_at(file: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _write(file: BinaryIO, data: bytes) -> None:
    written = 0
    while written < len(data):
        written += file.write(data[written:]) or 0


def repair_last_line(file: BinaryIO) -> int:
    """Removes a truncated last line, or adds the newline to a complete one. Returns the new end of the file."""
    end = file.seek(0, os.SEEK_END)
    last = partial_line(file, end)
    if not last:
        return end
    try:
        json.loads(last)
    except (ValueError, RecursionError):
        file.truncate(end - len(last))
        return end - len(last)
    _write(file, b"\n")
    return end + 1


def partial_line(file: BinaryIO, end: int) -> bytes:
    """The bytes after the last newline."""
    tail = b""
    while end > 0 and b"\n" not in tail:
        start = max(0, end - _BLOCK)
        file.seek(start)
        tail = file.read(end - start) + tail
        end = start
    return tail[tail.rfind(b"\n") + 1 :]
