"""The origin of a run: its ID, time, versions, suite and command line."""

from __future__ import annotations

import platform
import re
import secrets
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from visioneval.engine.cells.context import sanitizer_for
from visioneval.expansion.plan import Plan
from visioneval.records.model import RunInfo
from visioneval.suite.load import HIDDEN, LoadedSuite
from visioneval.version import __version__


def now() -> str:
    """The time as ISO 8601 in UTC, to the millisecond: two runs of a second have an order."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def new_run_id(suite: str) -> str:
    """``YYYYMMDD-HHMMSS-<suite>-<4 hex>``, in local time."""
    stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    return f"{stamp}-{re.sub(r'[^A-Za-z0-9_.-]', '-', suite)}-{secrets.token_hex(2)}"


def describe_run(
    plan: Plan,
    loaded: LoadedSuite,
    *,
    run_id: str | None,
    note: str | None,
    command_line: tuple[str, ...],
) -> RunInfo:
    """The ``run.json`` of a new run. Secrets in variables, the command line and the note are removed."""
    sanitizer = sanitizer_for(plan)
    text = sanitizer.text
    suite = plan.whole_suite
    hidden = tuple(name for name, value in suite.vars.items() if name in plan.secrets or sanitizer.hides(value))
    if hidden:
        suite = suite.model_copy(update={"vars": {**suite.vars, **dict.fromkeys(hidden, HIDDEN)}})
    return RunInfo(
        run_id=new_run_id(plan.suite.name) if run_id is None else run_id,
        state="running",
        started_at=now(),
        planned_cells=plan.cells,
        visioneval_version=__version__,
        python_version=platform.python_version(),
        experiment=plan.suite.experiment,
        note=None if note is None else text(note),
        command_line=without_secrets(command_line, plan, hidden),
        git_commit=_git_commit(loaded.folder),
        suite_path=text(loaded.path),
        source_sha256=loaded.source_sha256,
        selection=plan.selection,
        metrics=plan.metrics,
        hidden_vars=hidden,
        suite=suite,
    )


def without_secrets(words: tuple[str, ...], plan: Plan, hidden: tuple[str, ...]) -> tuple[str, ...]:
    """A command line without keys and the values of ``hidden`` variables."""
    text = sanitizer_for(plan).text
    return tuple(text(_hide_values(word, hidden)) for word in words)


def _hide_values(word: str, hidden: tuple[str, ...]) -> str:
    """An argument of the command line without the value of a hidden variable."""
    for name in hidden:
        for start in (f"{name}=", f"--var={name}="):
            if word.startswith(start):
                return f"{start}{HIDDEN}"
    return word


def resumed_info(stored: RunInfo, current: RunInfo, *, uses_stored_suite: bool) -> RunInfo:
    """The ``run.json`` of a resumed run: the stored one with the current suite and versions.

    With ``uses_stored_suite`` the resume named no suite, so the original command line stays.
    """
    changed = current.model_dump(include=_CURRENT_FIELDS) | {
        "command_line": stored.command_line if uses_stored_suite else current.command_line,
        "suite": current.suite,
        "hidden_vars": current.hidden_vars,
        "metrics": current.metrics,
        "selection": current.selection,
    }
    again = {"state": "running", "ended_at": None, "stopped_by": None, "resumed_at": (*stored.resumed_at, now())}
    return stored.model_copy(update=changed | again)


_CURRENT_FIELDS = {
    "planned_cells",
    "visioneval_version",
    "python_version",
    "experiment",
    "git_commit",
    "suite_path",
    "source_sha256",
}


def _git_commit(folder: Path) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603 - fixed words and the suite's folder
            ["git", "-C", str(folder), "rev-parse", "HEAD"],  # noqa: S607 - the user's own git
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return None if done.returncode else done.stdout.strip()
