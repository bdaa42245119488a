"""What happens after a run is recorded: its results are sent to the tracker that its suite names."""

from __future__ import annotations

import shlex
from pathlib import Path

from visioneval.analysis.run_lookup import Warn
from visioneval.analysis.summary.findings import Summary
from visioneval.errors import VisionEvalError
from visioneval.records.model import RunInfo
from visioneval.records.stores.locations import display_name
from visioneval.running.sanitize import Sanitizer
from visioneval.suite.tracking import BaseTracking


def track_finished(
    folder: Path, info: RunInfo, summary: Summary, warn: Warn, *, is_offline: bool = False, is_trusted: bool = False
) -> None:
    """Sends a run to the tracker of its suite, if it names one. Whatever goes wrong is one line, and changes nothing.

    A shard leaves it to ``merge``, and an interrupted run to ``--resume``.
    """
    target = info.suite.tracking
    is_interrupted = info.state != "complete" and info.stopped_by is None
    if target is None or info.selection.shard is not None or is_interrupted:
        return
    from visioneval.export.trackers.sending import send_to_tracker

    later = f"to send them: {_export_command(folder, target)}"
    if is_offline and not target.is_local:
        warn(f"tracking: --offline sends no results; {later}")
        return
    problem = None if is_trusted else target.untrusted_option()
    try:
        if problem is not None:
            warn(f"tracking: {problem[0]}: {problem[1]}")
            return
        warn(f"tracking: {send_to_tracker(target, folder, info, summary, warn)}")
    except VisionEvalError as error:
        warn(f"tracking: the results were not sent: {Sanitizer.around().text(error)}; {later}")


def _export_command(folder: Path, target: BaseTracking) -> str:
    """The command that sends a run to the tracker of its suite."""
    options = target.model_dump(mode="json", exclude_defaults=True, exclude={"to"})
    words = [
        f"--option {shlex.quote(f'{name}={str(value).lower() if value is False else value}')}"
        for name, value in options.items()
    ]
    return " ".join(["visioneval export", shlex.quote(display_name(folder)), f"--to {target.to}", *words])
