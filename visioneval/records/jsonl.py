"""Files of one JSON object a line that several programs append to at once, and that may be killed at any moment."""

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
    """Adds lines, all of them or none, and returns when the disk has them.

    Each line is JSON without its end. A last line that a crash cut off is cut away first; one that only lacks its end
    is kept. A lock on the file lets other writers wait. Raises ``StorageError``.
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
    """The file, made where there is none, for this writer alone: others wait. Raises ``OSError``.

    Whoever holds it may put another file in its place; those who waited for the old one then wait for the new one.
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
    """Takes a torn last line away, or ends a whole one, and tells where the file ends now."""
    end = file.seek(0, os.SEEK_END)
    last = _partial_line(file, end)
    if not last:
        return end
    try:
        json.loads(last)
    except (ValueError, RecursionError):
        file.truncate(end - len(last))
        return end - len(last)
    _write(file, b"\n")
    return end + 1


def _partial_line(file: BinaryIO, end: int) -> bytes:
    """What stands after the last line end."""
    tail = b""
    while end > 0 and b"\n" not in tail:
        start = max(0, end - _BLOCK)
        file.seek(start)
        tail = file.read(end - start) + tail
        end = start
    return tail[tail.rfind(b"\n") + 1 :]
