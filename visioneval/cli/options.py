"""Command-line options that several commands share."""

from __future__ import annotations

import inspect
import os
import sys
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visioneval.cli import completion
from visioneval.cli.help import HELP_ALL
from visioneval.errors import ExitCode, UsageError
from visioneval.settings import ADVANCED, OUTPUT, SELECTION, SETTINGS, Setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console

    from visioneval.bounds import Bound

HOST = "127.0.0.1"


def flag(name: str, text: str, panel: str | None = None) -> Any:
    """An option without a value; the empty metavar hides its type in the help."""
    return typer.Option(name, metavar="", help=text, rich_help_panel=panel)


def value(name: str, metavar: str, text: str, panel: str | None = None, **settings: Any) -> Any:
    """An option with a value; ``name`` can have a short form after a slash."""
    settings.setdefault("parser", _parser(metavar))
    return typer.Option(*name.split("/"), metavar=metavar, help=text, rich_help_panel=panel, **settings)


def argument(metavar: str, text: str, **settings: Any) -> Any:
    """A positional argument."""
    return typer.Argument(metavar=metavar, show_default=False, help=text, parser=_parser(metavar), **settings)


def local_path(text: str | Path) -> Path:
    """A path on this machine, as typed or a default.

    Raises ``UsageError`` for a URL, which ``Path`` would turn into a folder named ``s3:``.
    """
    if _is_url(text):
        from visioneval.media.urls import public_address

        raise UsageError(f"{public_address(str(text))}: is a URL, but this must be a path on this machine")
    return Path(text)


def runs_location(text: str | Path) -> Path:
    """A folder of runs on this machine, or the one that stands for a URL. Raises ``UsageError``."""
    if not _is_url(text):
        return Path(text)
    from visioneval.records.stores.lookup import runs_folder

    return runs_folder(str(text))


def cache_location(text: str | Path) -> Path:
    """A cache folder on this machine, or the one that stands for a URL. Raises ``UsageError``."""
    if not _is_url(text):
        return Path(text)
    from visioneval.records.stores.lookup import cache_folder

    return cache_folder(str(text))


def _is_url(text: str | Path) -> bool:
    from visioneval.media.urls import is_url_like

    return is_url_like(str(text))


def _parser(metavar: str) -> Callable[[str | Path], Path] | None:
    """Values named DIR, FILE, PATH or SUITE are paths."""
    return local_path if metavar.strip("[].") in ("DIR", "FILE", "PATH", "SUITE") else None


_COMPLETIONS = {
    "cases": completion.case_ids,
    "tags": completion.case_tags,
    "models": completion.model_labels,
    "graders": completion.grader_keys,
    "resume": completion.run_names,
}
_LOCATIONS = {"runs": runs_location, "cache": cache_location}


def setting_option(name: str) -> Any:
    """The flag of a setting of runs."""
    return _option(SETTINGS[name])


def _option(setting: Setting) -> Any:
    if not setting.metavar:
        return flag(setting.flag, setting.help, setting.group)
    text = setting.help
    if setting.environment is not None:
        text = f"{text} Default: {setting.default:,}, or {setting.environment}."
    return value(
        setting.flag,
        setting.metavar,
        text,
        setting.group,
        min=setting.minimum,
        max=setting.maximum,
        parser=_LOCATIONS.get(setting.name) or _parser(setting.metavar),
        autocompletion=_COMPLETIONS.get(setting.name),
    )


def _type(setting: Setting) -> Any:
    """What the command line makes of the value of a flag."""
    if setting.type is bool or setting.choices:
        return setting.type
    if setting.is_list or setting.is_mapping:
        return list[str] | None
    if setting.type == Path | str:
        return (Path if setting.name in _LOCATIONS or _parser(setting.metavar) else str) | None
    return setting.type | None


def with_settings(*names: str, bounds: Sequence[Bound] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds the flags of settings to a command, and those of bounds.

    The command gets the settings that were given as a dictionary, ``settings``, for ``run_options``. Bounds apply while
    it runs.
    """
    settings = [SETTINGS[name] for name in names]
    all_flags = [*settings, *(bound.setting for bound in bounds)]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)

        @wraps(command)
        def run(**arguments: Any) -> None:
            arguments.pop("help_all", None)
            for bound in bounds:
                bound.override = arguments.pop(bound.setting.name)
            try:
                if settings:
                    values = {setting: arguments.pop(setting.name) for setting in settings}
                    arguments["settings"] = {
                        setting.name: pairs(setting.flag, setting.metavar, given) if setting.is_mapping else given
                        for setting, given in values.items()
                        if given is not None and given != setting.default
                    }
                command(**arguments)
            finally:
                for bound in bounds:
                    bound.override = None

        added = [
            Parameter(
                setting.name,
                Parameter.KEYWORD_ONLY,
                default=None if setting.environment else setting.default,
                annotation=Annotated[_type(setting), _option(setting)],
            )
            for setting in all_flags
        ]
        own = [
            parameter.replace(kind=Parameter.KEYWORD_ONLY)
            for name, parameter in signature.parameters.items()
            if name != "settings"
        ]
        help_all = [HELP_ALL] if any(setting.group in ADVANCED for setting in all_flags) else []
        run.__signature__ = signature.replace(parameters=[*added, *own, *help_all])  # type: ignore[attr-defined]
        return run

    return decorate


Suites = Annotated[list[Path], argument("SUITE", "Suites: files, or folders with a suite.yaml.")]
OptionalSuites = Annotated[
    list[Path] | None,
    argument("[SUITE]...", "Suites: files, or folders with a suite.yaml. With --resume, none or one."),
]
RunName = Annotated[
    str,
    argument(
        "RUN",
        "Path, ID, unique prefix or 'latest'; RUN@LABEL for model runs (globs).",
        autocompletion=completion.run_names,
    ),
]
RunOrLatest = Annotated[
    str,
    argument(
        "RUN",
        "Path, ID, unique prefix or 'latest', the default; RUN@LABEL for model runs (globs).",
        autocompletion=completion.run_names,
    ),
]
RunsOrLatest = Annotated[
    list[str] | None,
    argument(
        "RUN",
        "Runs, named as for 'show'; several are pooled. Default: the latest.",
        autocompletion=completion.run_names,
    ),
]
RunsFolder = Annotated[Path, setting_option("runs")]
Cases = Annotated[list[str] | None, setting_option("cases")]
Tags = Annotated[list[str] | None, setting_option("tags")]
Redact = Annotated[list[str] | None, setting_option("redact")]
Models = Annotated[list[str] | None, setting_option("models")]
Variables = Annotated[list[str] | None, setting_option("variables")]
CacheFolder = Annotated[Path | None, setting_option("cache")]
Note = Annotated[str | None, setting_option("note")]
TrustSuite = Annotated[bool, setting_option("trust_suite")]
ModelMap = Annotated[
    list[str] | None, value("--map", "OLD=NEW", "Pair the model run OLD of A with NEW of B. Repeatable.", SELECTION)
]
AsJson = Annotated[bool, flag("--json", "Print the summary as one line of JSON per suite.", OUTPUT)]
Full = Annotated[bool, flag("--full", "Also print metrics that no rule or gate reads, and where the noise is.", OUTPUT)]
Quiet = Annotated[bool, flag("--quiet", "Print only the location of the run.", OUTPUT)]
Junit = Annotated[Path | None, value("--junit", "FILE", "Also write JUnit XML.", OUTPUT)]
Markdown = Annotated[Path | None, value("--markdown", "FILE", "Also write Markdown, for a job summary.", OUTPUT)]
CodeQuality = Annotated[
    Path | None,
    value("--code-quality", "FILE", "Also write GitLab's code-quality report, an issue per failed cell.", OUTPUT),
]
NoFail = Annotated[bool, flag("--no-fail", "Exit 0 instead of 1 if a gate fails.", OUTPUT)]
Port = Annotated[
    int | None, value("--port", "PORT", "The port; default: 8377, or a free port if that is in use.", min=0, max=65535)
]
Host = Annotated[str, value("--host", "ADDRESS", "The address to listen on; it must be local to this machine.")]
OpenBrowser = Annotated[
    bool | None,
    typer.Option(
        "--open/--no-open", metavar="", help="Open a browser; default: only on a terminal.", show_default=False
    ),
]


@dataclass(frozen=True, slots=True)
class ResultOptions:
    """How the result of a run is printed."""

    as_json: bool = False
    quiet: bool = False
    full: bool = False


def pairs(flag: str, form: str, texts: list[str] | None) -> dict[str, str]:
    """Parses repeated ``NAME=VALUE`` options. Raises ``UsageError`` for an invalid or repeated one."""
    values: dict[str, str] = {}
    for text in texts or []:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError(f"{flag} {text!r}: write {form}")
        if name in values:
            raise UsageError(f"{flag} {name}: given twice")
        values[name] = value
    return values


def exit_with(code: int, *, no_fail: bool) -> typer.Exit:
    """Returns the exception that ends a command. ``--no-fail`` turns 1 into 0, and changes no other exit code."""
    if no_fail and code == ExitCode.GATE_FAILED:
        say("--no-fail: exit code 0, although a gate failed")
        code = ExitCode.PASSED
    return typer.Exit(code)


def is_confirmed(action: str, warning: str, otherwise: str = "") -> bool:
    """Asks at the terminal whether to do something. Raises ``UsageError`` without a terminal."""
    if not sys.stdin.isatty():
        raise UsageError(f"this would {action}: add --yes{otherwise}")
    print(f"{action[:1].upper()}{action[1:]}? {warning} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def console(*, errors: bool = False) -> Console:
    """A console on standard output, or on standard error."""
    from rich.console import Console

    class PipeConsole(Console):
        def on_broken_pipe(self) -> None:
            """Handled by us: rich would exit with 1, which means a failed gate."""
            raise BrokenPipeError

    return PipeConsole(stderr=errors, highlight=False, soft_wrap=False, markup=False)


@contextmanager
def ignore_closed_output() -> Iterator[None]:
    """For output about finished work: a reader that has closed the pipe, such as ``head``, changes no exit code."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()


def discard_output() -> None:
    """Discards the remaining output, because nothing reads it any more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def prints_on_stderr() -> AbstractContextManager[object]:
    """Sends what custom classes print to standard error; standard output is for results."""
    return redirect_stdout(sys.stderr)


def say(line: str) -> None:
    """Prints a message on standard error; standard output is for results."""
    print(line, file=sys.stderr, flush=True)
