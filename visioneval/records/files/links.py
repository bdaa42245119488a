"""The folder of an untrusted run, and links in it: files outside the folder are neither read nor written."""

from __future__ import annotations

import os
from pathlib import Path

from visioneval.errors import RunFormatError

_FILES = (
    "artifacts",
    "results.jsonl",
    "stale.jsonl",
    "labels.jsonl",
    "anchors.jsonl",
    "labeling.jsonl",
    "labeling_draws.jsonl",
    "preferences.jsonl",
    "diversity.jsonl",
    "confirmations.jsonl",
    "questions.json",
    "run.json",
)


def check_run_folder(folder: Path) -> Path:
    """The folder of a run.

    Raises ``RunFormatError`` if a file that commands read or write links out of the run, or ``artifacts`` is no folder.
    """
    for name in _FILES:
        if (folder / name).is_symlink() and not is_inside(folder, name):
            raise RunFormatError(
                f"{folder / name}: is a link to a file outside the run: replace it with the file itself"
            )
    artifacts = folder / "artifacts"
    if os.path.lexists(artifacts) and not artifacts.is_dir():
        raise RunFormatError(f"{artifacts}: is not a folder: restore the folder of outputs, or run the suite again")
    return folder


def is_inside(folder: Path, relative: str) -> bool:
    """Whether a path relative to ``folder`` stays inside it after resolving links; it need not exist."""
    try:
        real, top = os.path.realpath(folder / relative), os.path.realpath(folder)
    except (OSError, ValueError):
        return False
    return real.startswith(top.rstrip(os.sep) + os.sep)


def file_inside(folder: Path, relative: str | None) -> Path | None:
    """A file of a run; ``None`` if it does not exist or links out of the run."""
    if not relative or not is_inside(folder, relative):
        return None
    path = folder / relative
    return path if path.is_file() else None
