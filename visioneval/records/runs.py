"""The state of a run, which ``run.json`` cannot know if the writer was killed, how it is resumed, and deleting runs.

None is deleted that something else needs: its own writer, a baseline, another run or a suite.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from visioneval import bounds
from visioneval.errors import RunFormatError, UsageError
from visioneval.records.baselines import FOLDER, read_baseline
from visioneval.records.between_cells import read_preferences
from visioneval.records.model import RunInfo, read_info
from visioneval.records.stores.lookup import copies_at, display_name, list_runs
from visioneval.records.untrusted import read_header
from visioneval.settings import SELECTION, SETTINGS, GradeKeywords, settings_of
from visioneval.suite.files import split_run
from visioneval.suite.load import HIDDEN

ListedRun = tuple[Path, Mapping[str, Any]]
"""The folder of a run, and the raw contents of its ``run.json``."""
_SOURCE = re.compile(r"""\brun["']?\s*:\s*["']?([^\s"'#,}\]]+)""")
_LATEST = "latest"
_DELETING = ".deleted-"


@dataclass(frozen=True, slots=True)
class Deletion:
    """Of all runs in a folder (``total``): the runs to delete, and why others that were chosen must stay."""

    folders: tuple[Path, ...]
    needed: Mapping[Path, str]
    total: int


def plan_deletion(root: Path, experiment: str | None, older_than: float | None, keep: int | None) -> Deletion:
    """Chooses the runs of an experiment, or of all, that are ``older_than`` days and not among the newest to ``keep``.

    Raises ``UsageError`` without either, and for a folder in a store; ``RunFormatError`` as ``needed_runs`` does.
    """
    if older_than is None and keep is None:
        raise UsageError("--delete: say which runs: --older-than DAYS, --keep N, or both")
    if copies_at(root) is not None:
        raise UsageError(f"{display_name(root)}: --delete is for runs in a local folder: delete these in the store")
    listed = list_runs(root)
    chosen = [run for run in listed if experiment in (None, run[1].get("experiment"))]
    chosen = chosen[: max(0, len(chosen) - (keep or 0))]
    if older_than is not None:
        before = datetime.now(UTC) - timedelta(days=older_than)
        chosen = [run for run in chosen if _is_before(run[1], before)]
    needed = needed_runs(listed, chosen)
    return Deletion(tuple(folder for folder, _ in chosen if folder not in needed), needed, len(listed))


def _is_before(info: Mapping[str, Any], before: datetime) -> bool:
    try:
        return datetime.fromisoformat(str(info.get("started_at"))) < before
    except (TypeError, ValueError):  # no time, or one without a zone
        return False


def needed_runs(runs: Sequence[ListedRun], chosen: Sequence[ListedRun]) -> dict[Path, str]:
    """Those of the chosen runs that must stay, and why. ``runs`` are all of the folder, oldest first.

    Suites are all YAML files below the working directory. Raises ``RunFormatError`` for a baseline or a run that cannot
    be read: it could need any of them.
    """
    needed: dict[Path, str] = {}
    baselines = {path: {stored.header.run for stored in read_baseline(path)} for path in sorted(FOLDER.glob("*.jsonl"))}
    texts = dict(_suite_texts({folder.parent.absolute() for folder, _ in runs}))
    ids = [folder.name for folder, _ in runs]
    for folder, info in chosen:
        if current_state(folder, info.get("state")) == "running":
            needed[folder] = "it is in progress"
        elif baseline := next((path for path, stored in baselines.items() if info.get("run_id") in stored), None):
            needed[folder] = f"{baseline} was set from it"
        elif suite := next((path for path, text in texts.items() if _reads(text, folder.name, ids)), None):
            needed[folder] = f"{suite} reads it"
    _add_sources(needed, runs, chosen)
    return needed


def _add_sources(needed: dict[Path, str], runs: Sequence[ListedRun], chosen: Sequence[ListedRun]) -> None:
    """Adds what runs that stay read, and what that reads in turn."""
    candidates = {folder for folder, _ in chosen}
    waiting = [at for at, (folder, _) in enumerate(runs) if folder not in candidates or folder in needed]
    while waiting:
        at = waiting.pop()
        reader, info = runs[at]
        earlier = [folder.name for folder, _ in runs[:at]]
        names = {_resolved(name, earlier) for name in _sources(reader, info)}
        for position, (folder, _) in enumerate(runs):
            if folder.name in names and folder in candidates and folder not in needed:
                needed[folder] = f"the run {reader.name} reads it"
                waiting.append(position)


def _sources(folder: Path, info: Mapping[str, Any]) -> Iterator[str]:
    """The names of the runs whose outputs a run shows or grades."""
    suite = info.get("suite")
    models = suite.get("models") if isinstance(suite, dict) else None
    entries = [entry for entry in models if isinstance(entry, dict)] if isinstance(models, list) else []
    for name in (info.get("graded_from"), *(entry.get("run") for entry in entries)):
        if isinstance(name, str):
            yield split_run(name)[0]
    for preference in read_preferences(folder):
        yield from (split_run(preference.a)[0], split_run(preference.b)[0])


def _resolved(name: str, ids: Sequence[str]) -> str:
    """The ID of a run that a suite or a run names: by its path, ID, prefix or ``latest``."""
    name = Path(name).name
    if name == _LATEST:
        return ids[-1] if ids else name
    return name if name in ids else next((run_id for run_id in ids if run_id.startswith(name)), name)


def _reads(text: str, run_id: str, ids: Sequence[str]) -> bool:
    """Whether a suite names a run, as a source of outputs or in a path."""
    if re.search(rf"/{re.escape(run_id)}(?![\w.-])", text):
        return True
    return any(_resolved(split_run(name)[0], ids) == run_id for name in _SOURCE.findall(text))


def _suite_texts(runs: set[Path]) -> Iterator[tuple[Path, str]]:
    """All YAML files below the working directory, without hidden ones and runs."""
    for parent, folders, names in os.walk(Path()):
        folder = Path(parent)
        folders[:] = [name for name in folders if name[0] != "." and (folder / name).absolute() not in runs]
        for name in names:
            if name[0] != "." and name.endswith((".yaml", ".yml")):
                with suppress(OSError):
                    yield folder / name, (folder / name).read_text(encoding="utf-8", errors="replace")


def delete_run(folder: Path) -> None:
    """Deletes the folder of a run, which is no run any more as soon as this begins. Raises ``UsageError``."""
    try:
        if current_state(folder, read_header(folder).get("state")) == "running":
            raise UsageError(f"{folder}: is in progress: it was resumed since the runs were listed")
        if folder.is_symlink():
            folder.unlink()
            return
        hidden = folder.rename(folder.with_name(f"{_DELETING}{folder.name}"))
        shutil.rmtree(hidden)
    except OSError as error:
        raise UsageError(f"{folder}: cannot delete: {error.strerror or error}") from None


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
    try:
        with suppress(FileNotFoundError), (folder / "results.jsonl").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # locked by its writer, or no lock support or permission: assume a live writer
        return recorded
    again = read_header(folder).get("state")  # the run may have ended since
    return "stopped" if again == "running" else again


_GRADE_FLAGS = {
    "--suite",
    *(setting.flag for setting in settings_of(GradeKeywords).values() if setting.group == SELECTION),
    *(SETTINGS[name].flag for name in ("runs", "cache")),
}
"""The flags of ``grade`` that choose what is asked about which cells, and where runs and answers are."""


def resume_command(
    folder: Path, typed: Sequence[str] = (), suite: Path | None = None, hidden: Sequence[str] = ()
) -> str:
    """The command that resumes a run.

    Keeps those ``typed`` arguments without which the run would stop or pay again. Never pass the arguments stored in a
    run on disk: an untrusted run must not choose what to trust. A ``suite`` outside the working directory is named
    again, with the flags that change it. The values of ``hidden`` variables must be given again: ``***`` replaces them.
    """
    named = [] if suite is None or suite.resolve().is_relative_to(Path.cwd().resolve()) else [str(suite)]
    kinds = ("always", "with_suite") if named else ("always",)
    settings = (*SETTINGS.values(), *(bound.setting for bound in bounds.ALL))
    repeated = {setting.flag: setting.metavar for setting in settings if setting.resumed in kinds}
    before: list[str] = []
    after: list[str] = []
    arguments = iter(typed)
    for argument in arguments:
        name, sign, value = argument.partition("=")
        if repeated.get(argument) == "":
            after.append(argument)
        elif name == "--env-file" or repeated.get(name):
            (before if name == "--env-file" else after).extend((name, value if sign else next(arguments, "")))
    if not named:
        after += [argument for name in hidden for argument in ("--var", f"{name}={HIDDEN}")]
    return shlex.join(("visioneval", *before, "run", *named, "--resume", display_name(folder), *after))


def stopped_text(folder: Path, hint: str | None) -> str:
    """What the user should know if a run ends early."""
    return f"stopped: the records in {display_name(folder)} are complete up to here; {hint}"


def resume_hint(folder: Path, info: RunInfo) -> str | None:
    """How to resume a run that stopped early; ``None`` for a complete or running one."""
    if info.state not in ("stopped", "interrupted"):
        return None
    reasons = {
        "budget": "stopped by its budget",
        "refused_key": "stopped by a refused API key",
        "quota": "stopped by a spent quota",
        None: "interrupted",
    }
    how = "killed" if info.state == "stopped" else reasons[info.stopped_by]
    return f"{display_name(folder)} was {how}; {missing_cells_hint(folder, info)}"


def asking_hint(folder: Path, info: RunInfo, *, lacks_outputs: bool) -> str:
    """How to ask the judges that a run never asked, and how to generate the outputs that it lacks."""
    if info.graded_from is None:
        return missing_cells_hint(folder, info, "to ask")
    first = ""
    if lacks_outputs:
        source = folder.parent / info.graded_from.partition("@")[0]
        first = f"{resume_command(source if source.is_dir() else Path(source.name))}, then "
    return f"to ask: {first}{_grade_command(folder, info)}, as a new run, without --offline"


def _grade_command(folder: Path, info: RunInfo) -> str:
    """The command that grades the same cells in the same way.

    The run may be a stranger's: flags that trust a suite, read keys, spend money or lift limits are left out.
    """
    assert info.graded_from is not None
    words = ["visioneval", "grade", info.graded_from]
    is_suite_of_source = False
    with suppress(RunFormatError):
        source = read_info(folder.parent / info.graded_from.partition("@")[0])
        is_suite_of_source = (source.suite_path, source.source_sha256) == (info.suite_path, info.source_sha256)
    if not info.command_line and not is_suite_of_source:  # of the Python API, which has no command line
        words += ["--suite", info.suite_path]
    arguments = iter(info.command_line)
    for argument in arguments:
        name, sign, value = argument.partition("=")
        if name in _GRADE_FLAGS:
            words += [name, value if sign else next(arguments, "")]
    return shlex.join(words)


def missing_cells_hint(folder: Path, info: RunInfo, purpose: str = "to resume") -> str:
    """How to get the missing cells of a run."""
    if info.graded_from is not None:
        return "grade the source run again, as a new run"
    command = resume_command(folder, hidden=info.hidden_vars)
    has_cache = any(word.partition("=")[0] == "--cache" for word in info.command_line)
    return f"{purpose}: {command}" + (" (with its --cache, or what only that has is paid again)" if has_cache else "")
