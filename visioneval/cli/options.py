"""Command-line options that several commands share."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visioneval.cli import completion
from visioneval.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

SELECTION = "Selection"
_RUNS_HELP = "The folder of runs, or its s3:// or gs:// URL."
OUTPUT = "Output"
CALLS = "Caching, resume, rate limits and cost"
CLUSTER = "Cluster"
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
    from visioneval.records.stores.locations import runs_folder

    return runs_folder(str(text))


def cache_location(text: str | Path) -> Path:
    """A cache folder on this machine, or the one that stands for a URL. Raises ``UsageError``."""
    if not _is_url(text):
        return Path(text)
    from visioneval.records.stores.locations import cache_folder

    return cache_folder(str(text))


def _is_url(text: str | Path) -> bool:
    from visioneval.media.urls import is_url_like

    return is_url_like(str(text))


def _parser(metavar: str) -> Callable[[str | Path], Path] | None:
    """Values named DIR, FILE, PATH or SUITE are paths."""
    return local_path if metavar.strip("[].") in ("DIR", "FILE", "PATH", "SUITE") else None


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
Runs = Annotated[Path, value("--runs", "DIR|URL", _RUNS_HELP, OUTPUT, parser=runs_location)]
RunsFolder = Annotated[Path, value("--runs", "DIR|URL", _RUNS_HELP, parser=runs_location)]
Cases = Annotated[
    list[str] | None,
    value("--case", "GLOB", "Only these cases. Repeatable.", SELECTION, autocompletion=completion.case_ids),
]
Tags = Annotated[
    list[str] | None,
    value(
        "--tag", "TAG", "Only cases with one of these tags. Repeatable.", SELECTION, autocompletion=completion.case_tags
    ),
]
Models = Annotated[
    list[str] | None,
    value(
        "--model",
        "GLOB",
        "Only these model runs, by label. Repeatable.",
        SELECTION,
        autocompletion=completion.model_labels,
    ),
]
Graders = Annotated[
    list[str] | None,
    value(
        "--grader", "GLOB", "Only these graders, by key. Repeatable.", SELECTION, autocompletion=completion.grader_keys
    ),
]
Limit = Annotated[int | None, value("--limit", "N", "Only the first N selected cases.", SELECTION, min=1)]
Samples = Annotated[
    int | None,
    value("--samples", "N", "Samples per case and model run; default: the suite's.", SELECTION, min=1, max=1000),
]
ShardOfCases = Annotated[
    str | None,
    value(
        "--shard",
        "I/N",
        "Only shard I of N of the selected cases, such as 1/4. 'visioneval merge' combines all shards into one run.",
        SELECTION,
    ),
]
Variables = Annotated[
    list[str] | None, value("--var", "NAME=VALUE", "Override one of the suite's vars. Repeatable.", SELECTION)
]
Judges = Annotated[
    list[str] | None,
    value("--judge", "NAME=PROVIDER:MODEL", "Override one of the suite's judges. Repeatable.", SELECTION),
]
ModelMap = Annotated[
    list[str] | None,
    value("--map", "OLD=NEW", "Pair the model run OLD of A with NEW of B. Repeatable.", SELECTION),
]
RunId = Annotated[str | None, value("--run-id", "ID", "Use this ID instead of a generated one.", OUTPUT)]
Note = Annotated[
    str | None, value("--note", "TEXT", "A note that is stored with the run and listed by 'runs'.", OUTPUT)
]
AsJson = Annotated[bool, flag("--json", "Print the summary as one line of JSON per suite.", OUTPUT)]
Quiet = Annotated[bool, flag("--quiet", "Print only where the run is.", OUTPUT)]
Junit = Annotated[Path | None, value("--junit", "FILE", "Also write JUnit XML.", OUTPUT)]
Markdown = Annotated[Path | None, value("--markdown", "FILE", "Also write Markdown, for a job summary.", OUTPUT)]
NoFail = Annotated[bool, flag("--no-fail", "Exit 0 instead of 1 if a gate fails.", OUTPUT)]
Port = Annotated[
    int | None,
    value("--port", "PORT", "The port; default: 8377, or a free port if that is in use.", min=0, max=65535),
]
Host = Annotated[str, value("--host", "ADDRESS", "The address to listen on; it must be local to this machine.")]
OpenBrowser = Annotated[
    bool | None,
    typer.Option(
        "--open/--no-open", metavar="", help="Open a browser; default: only on a terminal.", show_default=False
    ),
]
TrustSuite = Annotated[
    bool, flag("--trust-suite", "Allow the suite to run its own code and to read files outside its folder.")
]


class ReuseFlag(StrEnum):
    """The values of ``--reuse``."""

    all = "all"
    judges = "judges"
    none = "none"


ReuseAnswers = Annotated[
    ReuseFlag,
    value(
        "--reuse",
        "WHAT",
        "Cached answers to reuse: all, judges (only judges' answers about identical images, and measurements) or none.",
        CALLS,
    ),
]
Offline = Annotated[bool, flag("--offline", "Make no network calls; take all answers from the cache.", CALLS)]
CacheFolder = Annotated[
    Path | None,
    value(
        "--cache",
        "DIR|URL",
        "The cache folder, or the s3:// or gs:// URL of a shared cache; default: the user's.",
        CALLS,
        parser=cache_location,
    ),
]
BudgetUsd = Annotated[
    float | None,
    value(
        "--budget",
        "USD",
        "Maximum spend of this command, in US dollars; default: the suite's budget_usd.",
        CALLS,
        min=0.000001,
    ),
]
MaxConcurrency = Annotated[
    int,
    value(
        "--max-concurrency",
        "N",
        "Maximum concurrent calls per model, counted separately for generation and judging.",
        CALLS,
        min=1,
        max=4096,
    ),
]
LogFile = Annotated[
    Path | None,
    value("--log-file", "FILE", "Append one line of JSON per call to this file, without the call's content.", CALLS),
]
Debug = Annotated[bool, flag("--debug", "Print each call, and full tracebacks of unexpected errors.", CALLS)]


@dataclass(frozen=True, slots=True)
class ResultOptions:
    """How the result of a run is printed."""

    as_json: bool = False
    quiet: bool = False


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
    return typer.Exit(ExitCode.PASSED if no_fail and code == ExitCode.GATE_FAILED else code)


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
