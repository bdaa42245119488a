"""The command line that resumes a run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from visioneval import bounds
from visioneval.errors import RunFormatError
from visioneval.records.model import RunInfo, read_info
from visioneval.records.stores.locations import display_name
from visioneval.settings import SELECTION, SETTINGS, GradeKeywords, settings_of
from visioneval.suite.load import HIDDEN

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
