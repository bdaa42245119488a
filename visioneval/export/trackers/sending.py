"""Sends a run to the tracker that a target names, with one line for whatever goes wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from visioneval.analysis.run_lookup import Warn
from visioneval.analysis.summary.summary import Summary
from visioneval.errors import TrackerError, VisionEvalError
from visioneval.export.trackers.cells import cell_table
from visioneval.export.trackers.content import tracked_run
from visioneval.export.trackers.files import TrackedFiles
from visioneval.records.model import RunInfo
from visioneval.records.stores.lookup import fetch_outputs
from visioneval.report.text import one_line
from visioneval.suite.tracking import BaseTracking

_CREDENTIALS = re.compile(r"(?<=://)[^/?#\s]*@")


def send_to_tracker(target: BaseTracking, folder: Path, info: RunInfo, summary: Summary, warn: Warn) -> str:
    """Sends a run, or updates what an earlier export sent. Returns where it can be seen, without credentials.

    ``warn`` gets what is left out. Raises ``TrackerError``, also if the tracker cannot be reached, and
    ``RunFormatError`` for a damaged run.
    """
    if problem := target.missing_client:
        raise TrackerError(problem)
    send: Callable[[Any, Any, Any], str] = import_module(f"visioneval.export.trackers.{target.to}").send
    try:
        fetch_outputs(folder)
        run = tracked_run(info, summary, target.experiment)
        table = cell_table(folder, info, target.rows) if summary.counts.cells else None
        if table is not None and table.left_out is not None:
            warn(f"{target.to}: {table.left_out}")
        return _without_credentials(send(target, run, TrackedFiles(folder, run, table, target.report)))
    except VisionEvalError:
        raise
    except Exception as error:  # clients raise anything; whatever it is, only the export failed
        message = _without_credentials(str(error) or type(error).__name__)
        raise TrackerError(f"{target.to}: {one_line(message)}") from error


def _without_credentials(text: str) -> str:
    """Text without users and passwords in addresses: that of the environment may have them, and errors repeat it."""
    return _CREDENTIALS.sub("", text)
