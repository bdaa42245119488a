"""How a run stands: what its ``run.json`` cannot say of a writer that was killed."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import Any

from visioneval.records.model import RunInfo, read_header, read_info


def with_current_state(folder: Path, info: RunInfo) -> RunInfo:
    """A run whose ``state`` is ``stopped`` where ``run.json`` says ``running`` and nobody writes it any more."""
    state = current_state(folder, info.state)
    if state == info.state:
        return info
    return info.model_copy(update={"state": state}) if state == "stopped" else read_info(folder)


def current_state(folder: Path, recorded: Any) -> Any:
    """What has become of a state that was kept: whoever writes a run holds a lock, which ends with its process."""
    if recorded != "running" or _is_written(folder / "results.jsonl"):
        return recorded
    again = read_header(folder).get("state")  # it may have ended between the two looks
    return "stopped" if again == "running" else again


def _is_written(results: Path) -> bool:
    try:
        with results.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:  # held by its writer; or a file system without locks, or no right to look: not known to be dead
        return True
    return False
