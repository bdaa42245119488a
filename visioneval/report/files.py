"""Writing reports to files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from visioneval.errors import UsageError


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
    """Opens a file for writing, or gives standard output if ``path`` is ``None``. Raises ``UsageError``."""
    if path is None:
        yield sys.stdout
        return
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            yield file
    except OSError as error:
        raise UsageError(f"{path}: cannot write: {error.strerror or error}") from None


def write_report(path: Path, text: str) -> None:
    """Writes a report and creates missing parent folders. Raises ``UsageError``."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(f"{path}: cannot write: {error.strerror or error}") from None
