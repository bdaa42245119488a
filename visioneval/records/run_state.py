"""The current state of a run, which ``run.json`` cannot know if the writer was killed."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import Any

from visioneval.records.files.run_folders import read_header
from visioneval.records.model import RunInfo, read_info
from visioneval.records.stores.locations import copies_at


def with_current_state(folder: Path, info: RunInfo) -> RunInfo:
    """The run with ``state`` set to ``stopped`` if ``run.json`` says ``running`` but no process writes it."""
    state = current_state(folder, info.state)
    if state == info.state:
        return info
    return info.model_copy(update={"state": state}) if state == "stopped" else read_info(folder)


def current_state(folder: Path, recorded: Any) -> Any:
    """The current state for a recorded state: the writer of a run locks it until its process ends.

    In a store, a writer has a claim, which expires.
    """
    if recorded != "running":
        return recorded
    if (copies := copies_at(folder.parent)) is not None:
        return recorded if copies.is_claimed(folder.name) else "stopped"
    if _is_written(folder / "results.jsonl"):
        return recorded
    again = read_header(folder).get("state")  # the run may have ended since
    return "stopped" if again == "running" else again


def _is_written(results: Path) -> bool:
    try:
        with results.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:  # locked by its writer, or no lock support or permission: assume a live writer
        return True
    return False
