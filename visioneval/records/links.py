"""Links in a run, which may be a stranger's: nothing is read or written by one that leads out of its folder."""

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
    "preferences.jsonl",
    "questions.json",
    "run.json",
)


def check_links(folder: Path) -> Path:
    """The folder of a run. Raises ``RunFormatError`` where a file that commands read or append to is a link out."""
    for name in _FILES:
        if (folder / name).is_symlink() and not is_inside(folder, name):
            raise RunFormatError(f"{folder / name}: is a link that leads out of the run: put the file itself there")
    return folder


def is_inside(folder: Path, relative: str) -> bool:
    """Whether a path from ``folder``, links followed, ends in it; it need not exist."""
    try:
        real, top = os.path.realpath(folder / relative), os.path.realpath(folder)
    except (OSError, ValueError):
        return False
    return real.startswith(top.rstrip(os.sep) + os.sep)


def file_inside(folder: Path, relative: str | None) -> Path | None:
    """A file of a run; ``None`` where there is none, or a link leads out of the run."""
    if not relative or not is_inside(folder, relative):
        return None
    path = folder / relative
    return path if path.is_file() else None
