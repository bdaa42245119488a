"""Writing reports to files."""

from __future__ import annotations

from pathlib import Path

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


def write_report(path: Path, text: str) -> None:
    """Writes a report and creates missing parent folders. Raises ``UsageError``."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(f"{path}: cannot write: {error.strerror or error}") from None
