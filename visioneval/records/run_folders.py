"""Folders of runs: finding them, their ``run.json`` without checking it, and links in them.

A run may be a stranger's: files outside its folder are neither read nor written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from visioneval.errors import RunFormatError, UsageError
from visioneval.media.urls import public_address

OUTPUTS = "artifacts"
LOGS = ("results", "stale", "preferences", "confirmations", "labels", "anchors", "labeling", "labeling_draws")
"""The files of a run that grow, without ``.jsonl``."""


def read_header(folder: Path) -> dict[str, Any]:
    """The raw contents of ``run.json``. Raises ``RunFormatError``."""
    return parse_header(bytes_of(folder / "run.json"), folder / "run.json")


def bytes_of(path: Path) -> bytes:
    """The content of a file of a run. Raises ``RunFormatError``."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise RunFormatError(f"{path}: {error.strerror or error}") from None


def parse_header(data: bytes, path: Path) -> dict[str, Any]:
    """The JSON object in ``run.json``. Raises ``RunFormatError``."""
    try:
        header = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RunFormatError(f"{path}: not JSON: {error}; restore this file, or run the suite again") from None
    if not isinstance(header, dict):
        raise RunFormatError(f"{path}: not a run; restore this file, or run the suite again")
    return header


def list_runs(root: Path) -> list[tuple[Path, dict[str, Any]]]:
    """All runs in a folder with the raw contents of ``run.json``, oldest first. Skips invalid runs."""
    runs = []
    for path in sorted(root.glob("*/run.json")):
        try:
            runs.append((path.parent, read_header(path.parent)))
        except RunFormatError:
            continue
    return sorted(runs, key=lambda run: (str(run[1].get("started_at")), run[0].name))


def choose_run(name: str, run_ids: Sequence[str], where: str) -> str:
    """The run whose ID is ``name``, or the only one whose ID starts with it. Raises ``UsageError``."""
    matches = [run_id for run_id in run_ids if run_id.startswith(name)]
    if name in matches:
        return name
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UsageError(f"{name!r} is ambiguous: it matches {len(matches)} runs: {', '.join(matches[:5])}")
    raise UsageError(f"{public_address(name)!r}: no such run in {where}: list runs with 'visioneval runs'")


_FILES = (OUTPUTS, *(f"{log}.jsonl" for log in LOGS), "diversity.jsonl", "questions.json", "summary.json", "run.json")
"""What commands read or write in the folder of a run."""


def check_run_folder(folder: Path) -> Path:
    """The folder of a run.

    Raises ``RunFormatError`` if a file that commands read or write links out of the run, or ``artifacts`` is no folder.
    """
    for name in _FILES:
        if (folder / name).is_symlink() and not is_inside(folder, name):
            raise RunFormatError(
                f"{folder / name}: is a link to a file outside the run: replace it with the file itself"
            )
    artifacts = folder / OUTPUTS
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
