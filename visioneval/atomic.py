"""Whole files, written so that a reader sees the old or the new content, never a part."""

from __future__ import annotations

import os
import secrets
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from visioneval.errors import UsageError


def write_whole(path: Path, data: bytes | str) -> None:
    """Writes or replaces a file atomically; text is UTF-8. On ``OSError``, an existing file stays unchanged."""
    part = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.part")
    try:
        part.write_bytes(data.encode() if isinstance(data, str) else data)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def create_whole(path: Path, data: bytes) -> bool:
    """Creates a file atomically, unless it exists. Returns whether this call created it.

    Needs hard links. Any number of machines may do this at once. Raises ``OSError``.
    """
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        part.write_bytes(data)
        path.hardlink_to(part)
    except FileExistsError:
        return False
    finally:
        part.unlink(missing_ok=True)
    return True


def check_writable(path: Path) -> None:
    """Raises ``UsageError`` if a report cannot be written, before any paid call."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists()
        path.open("ab").close()
        if is_new:
            path.unlink()
    except OSError as error:
        raise UsageError(f"{path}: cannot write: {error.strerror or error}") from None


@contextmanager
def open_output(path: Path | None) -> Iterator[TextIO]:
    """Opens a file for writing, or gives standard output if ``path`` is ``None``. Raises ``UsageError``.

    An existing file is replaced at the end, and stays as it is if there is an error before.
    """
    if path is None:
        yield sys.stdout
        return
    with part_of(path) as part, part.open("w", encoding="utf-8", newline="") as file:
        yield file


@contextmanager
def part_of(path: Path) -> Iterator[Path]:
    """The path of a new file, which replaces ``path`` at the end unless there is an error. Raises ``UsageError``.

    What is no regular file, such as a pipe, is written directly.
    """
    target = path.resolve()
    part = (
        target if target.exists() and not target.is_file() else target.with_name(f".{target.name}.{os.getpid()}.part")
    )
    try:
        yield part
        if part != target:
            part.replace(target)
    except OSError as error:
        raise UsageError(f"{path}: cannot write: {error.strerror or error}") from None
    finally:
        if part != target:
            part.unlink(missing_ok=True)


def write_report(path: Path, text: str) -> None:
    """Writes a report and creates missing parent folders. Raises ``UsageError``."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(f"{path}: cannot write: {error.strerror or error}") from None
