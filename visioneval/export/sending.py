"""Sends a run to the tracker that a target names, with one line for whatever goes wrong.

Each tracker's module has a class with the calls of its client, which is an extra and is imported there only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from visioneval.analysis.run_lookup import Warn
from visioneval.analysis.summary.summary import Summary
from visioneval.errors import TrackerError, VisionEvalError
from visioneval.export.tracked import TrackedEntry, TrackedRun, tracked_run
from visioneval.records.model import RunInfo
from visioneval.records.stores.lookup import fetch_outputs
from visioneval.report.text import one_line
from visioneval.suite.tracking import BaseTracking

_CREDENTIALS = re.compile(r"(?<=://)[^/?#\s]*@")


class Tracker(Protocol):
    """Sends one run. Its errors are ``TrackerError`` and those of its client."""

    def send(self, entry: TrackedEntry, folder: Path) -> None:
        """Creates an entry, or updates that of an earlier export. ``folder`` is empty, for files on their way."""

    def finish(self) -> str:
        """Deletes what an earlier export had more. Returns where the run can be seen."""


Connect = Callable[[Any, TrackedRun], AbstractContextManager[Tracker]]
"""What the module of each tracker has as ``connect``."""


def send_to_tracker(
    target: BaseTracking, folder: Path, info: RunInfo, summary: Summary, warn: Warn, redact: tuple[str, ...] = ()
) -> str:
    """Sends a run, or updates what an earlier export sent. Returns where it can be seen, without credentials.

    ``info`` and ``summary`` are redacted by the tags ``redact``, as the cells will be. ``warn`` gets what is left out.
    Raises ``TrackerError``, also if the tracker cannot be reached, and ``RunFormatError`` for a damaged run.
    """
    if problem := target.missing_client:
        raise TrackerError(problem)
    connect: Connect = import_module(f"visioneval.export.{target.to}").connect
    try:
        fetch_outputs(folder)
        run = tracked_run(
            folder,
            info,
            summary,
            experiment=target.experiment,
            rows=target.rows,
            has_report=target.report,
            redact=redact,
        )
        if run.cells is not None and run.cells.left_out is not None:
            warn(f"{target.to}: {run.cells.left_out}")
        with connect(target, run) as tracker:
            for entry in run.entries:
                with TemporaryDirectory() as name:
                    tracker.send(entry, Path(name))
            return _without_credentials(tracker.finish())
    except VisionEvalError:
        raise
    except Exception as error:  # clients raise anything; whatever it is, only the export failed
        message = _without_credentials(str(error) or type(error).__name__)
        raise TrackerError(f"{target.to}: {one_line(message)}") from error


def _without_credentials(text: str) -> str:
    """Text without users and passwords in addresses: that of the environment may have them, and errors repeat it."""
    return _CREDENTIALS.sub("", text)


@contextmanager
def client_environment(settings: Mapping[str, str], defaults: Mapping[str, str]) -> Iterator[None]:
    """Sets variables that a client reads. ``defaults`` are for those that the user has not set."""
    changed = {**{name: value for name, value in defaults.items() if name not in os.environ}, **settings}
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
