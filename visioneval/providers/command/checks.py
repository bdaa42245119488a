"""Checks of custom programs. Locations are relative to the entry of ``models:``."""

from __future__ import annotations

import shutil
from pathlib import Path

from visioneval.providers.command.config import CommandProvider
from visioneval.suite.checks.rules import Problems
from visioneval.suite.loading.paths import Trust


def problems(entry: CommandProvider, folder: Path, trust: Trust) -> Problems:  # noqa: ARG001 - trust is checked elsewhere
    """Yields a missing program."""
    if not _is_program(entry.argv[0], folder):
        yield ("argv",), f"program {entry.argv[0]!r} not found on this machine"


def _is_program(name: str, folder: Path) -> bool:
    return shutil.which(name) is not None or ("/" in name and shutil.which(str(folder / name)) is not None)
