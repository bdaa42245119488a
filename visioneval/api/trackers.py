"""Exports of runs to experiment trackers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from visioneval.analysis.run_lookup import Warn
from visioneval.api.runs import LOG, Run, load_run
from visioneval.errors import TrackerError, UsageError, did_you_mean
from visioneval.running.sanitize import Sanitizer
from visioneval.settings import RUNS
from visioneval.suite.load import HIDDEN
from visioneval.suite.loading.document import parse_scalar
from visioneval.suite.messages import explain
from visioneval.suite.tracking import TRACKERS, BaseTracking

_NOT_TEXT = ("rows", "report")
"""The options that YAML would not read as text."""


def track(
    name: Run | Path | str,
    *,
    to: str,
    redact: Sequence[str] = (),
    runs: Path | str = RUNS,
    warn: Warn = LOG.warning,
    **options: Any,
) -> str:
    """Sends a run to ``mlflow``, ``wandb`` or ``vertex``, or updates what an earlier call sent.

    ``options`` are those of the tracker, as in ``tracking:`` of a suite; ``redact`` is that of ``load_run``, in
    addition to the tags with which a ``Run`` was loaded. Returns where the run can be seen. Raises ``UsageError``, and
    ``TrackerError`` if the tracker does not accept it.
    """
    if isinstance(name, Run) and not isinstance(redact, str):  # which load_run refuses
        redact = (*redact, *name.redact)
    return send_run(str(name), tracking_of_options(to, options), Path(runs), warn, redact)


def send_run(name: str, target: BaseTracking, runs: Path, warn: Warn, redact: Sequence[str] = ()) -> str:
    """Sends a run to a tracker. Raises ``UsageError`` and ``TrackerError``."""
    from visioneval.export.tracked import send_to_tracker

    run = load_run(name, redact=redact, runs=runs, warn=warn)
    if run.label is not None:
        raise UsageError(f"{name}: a tracker gets whole runs: leave out @{run.label}")
    try:
        return send_to_tracker(target, run.folder, run.info, run.summary, warn, run.redact)
    except TrackerError as error:
        raise TrackerError(Sanitizer.around().text(error)) from error


def tracking_of_options(tracker: str, options: Mapping[str, Any]) -> BaseTracking:
    """The target that ``export --to`` names. Options may be text. Raises ``UsageError``."""
    if tracker not in TRACKERS:
        raise UsageError(f"--to {tracker}: no such tracker{did_you_mean(tracker, TRACKERS)}")
    model = TRACKERS[tracker]
    names = model.model_fields.keys() - {"to"}
    for name in options:
        if name not in names:
            raise UsageError(f"--option {name}: {tracker} has no such option{did_you_mean(name, names)}")
    parsed = {name: parse_scalar(options[name]) for name in _NOT_TEXT if isinstance(options.get(name), str)}
    try:
        return model.model_validate({"to": tracker, **options, **parsed})
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        name = ".".join(map(str, problem["loc"]))
        if problem["type"] == "missing":
            raise UsageError(f"--to {tracker} needs --option {name}=...") from None
        if name == "uri":
            problem["input"] = HIDDEN  # it may contain a password
        message = explain(problem, model.model_json_schema()).removeprefix(f"{name}: ")
        raise UsageError(f"--option {name}: {message}") from None
