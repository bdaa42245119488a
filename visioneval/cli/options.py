"""Options that several commands share, and what they become."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visioneval.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rich.console import Console

    from visioneval.engine.calls import Drawings, Reuse
    from visioneval.engine.session import Session
    from visioneval.plan import Plan
    from visioneval.records import RunInfo, Selection
    from visioneval.suite.load import LoadedSuite

NARROW = "What to run"
RESULT = "What comes out"
CALLS = "How providers are called"


def flag(name: str, text: str, panel: str | None = None) -> Any:
    """An option that is there or not; the empty metavar keeps its type out of the help."""
    return typer.Option(name, metavar="", help=text, rich_help_panel=panel)


def value(name: str, metavar: str, text: str, panel: str | None = None, **more: Any) -> Any:
    """An option with a value; ``name`` may hold a short form after a slash."""
    return typer.Option(
        *name.split("/"), metavar=metavar, help=text, rich_help_panel=panel, parser=_parser(metavar), **more
    )


def word(metavar: str, text: str) -> Any:
    """An argument."""
    return typer.Argument(metavar=metavar, show_default=False, help=text, parser=_parser(metavar))


def local_path(text: str | Path) -> Path:
    """A path of this machine, as typed or a default.

    Raises ``UsageError`` for a URL, which ``Path`` would make a folder named ``s3:`` of.
    """
    from visioneval.urls import is_url_like

    if is_url_like(str(text)):
        raise UsageError(f"{text}: is a URL, and this is read or written on this machine only: give a path")
    return Path(text)


def _parser(metavar: str) -> Callable[[str | Path], Path] | None:
    """What is called DIR, FILE or SUITE is a path."""
    return local_path if metavar.strip("[].") in ("DIR", "FILE", "SUITE") else None


Suites = Annotated[list[Path], word("SUITE", "Suite files.")]
OptionalSuites = Annotated[list[Path] | None, word("[SUITE]...", "Suite files; with --resume none or one.")]
RunName = Annotated[str, word("RUN", "Path, id, unique prefix or 'latest'; RUN@LABEL for one model run.")]
Out = Annotated[Path, value("--out", "DIR", "The folder of runs.", RESULT)]
RunsFolder = Annotated[Path, value("--out", "DIR", "The folder of runs.")]
Cases = Annotated[list[str] | None, value("--case", "GLOB", "Only these cases. Repeatable.", NARROW)]
Tags = Annotated[list[str] | None, value("--tag", "TAG", "Only cases with one of these tags. Repeatable.", NARROW)]
Models = Annotated[list[str] | None, value("--model", "GLOB", "Only these model runs, by label. Repeatable.", NARROW)]
Graders = Annotated[list[str] | None, value("--grader", "GLOB", "Only these graders, by key. Repeatable.", NARROW)]
Limit = Annotated[int | None, value("--limit", "N", "Only the first N selected cases.", NARROW, min=1)]
Samples = Annotated[
    int | None,
    value("--samples", "N", "Calls per case and model run, instead of the suite's.", NARROW, min=1, max=1000),
]
Variables = Annotated[
    list[str] | None, value("--var", "NAME=VALUE", "Replaces one of the suite's vars. Repeatable.", NARROW)
]
Judges = Annotated[
    list[str] | None,
    value("--judge", "NAME=PROVIDER:MODEL", "Replaces one of the suite's judges. Repeatable.", NARROW),
]
RunId = Annotated[str | None, value("--run-id", "ID", "Instead of a generated id.", RESULT)]
Note = Annotated[str | None, value("--note", "TEXT", "Kept with the run and listed by 'runs'.", RESULT)]
AsJson = Annotated[bool, flag("--json", "The summary as a line of JSON per suite on standard output.", RESULT)]
Quiet = Annotated[bool, flag("--quiet", "Only the last line.", RESULT)]
Junit = Annotated[Path | None, value("--junit", "FILE", "Also as JUnit XML.", RESULT)]
Markdown = Annotated[Path | None, value("--markdown", "FILE", "Also as Markdown, for a job summary.", RESULT)]
NoFail = Annotated[bool, flag("--no-fail", "Exit 0 where a gate does not hold (and only then).", RESULT)]
TrustSuite = Annotated[bool, flag("--trust-suite", "Let the suite run its own code and read files outside its folder.")]
RUNS = Path("runs")


class Reused(StrEnum):
    """What ``--reuse`` takes."""

    all = "all"
    judges = "judges"
    none = "none"


ReuseAnswers = Annotated[
    Reused,
    value("--reuse", "WHAT", "Answers to take from the cache: all, judges (to identical pictures) or none.", CALLS),
]
Offline = Annotated[bool, flag("--offline", "Call nobody: take all answers from the cache; needs no key.", CALLS)]
CacheFolder = Annotated[Path | None, value("--cache", "DIR", "The folder of kept answers, not your own one.", CALLS)]
BudgetUsd = Annotated[
    float | None,
    value("--budget", "USD", "Begin no call that would cost more in all, for each start.", CALLS, min=0.000001),
]
MaxConcurrency = Annotated[
    int,
    value(
        "--max-concurrency", "N", "Calls at once to one model, drawings and judgements each.", CALLS, min=1, max=4096
    ),
]
LogFile = Annotated[
    Path | None,
    value("--log-file", "FILE", "Append a line of JSON for each call: how it went, not what was said.", CALLS),
]
Debug = Annotated[bool, flag("--debug", "Tell each call and each unexpected error in full on standard error.", CALLS)]


@dataclass(frozen=True, slots=True)
class SuiteFlags:
    """What the flags change about a suite, how far it is trusted, and where other runs are found."""

    out: Path
    trust: bool
    variables: dict[str, str]
    judges: dict[str, str]
    samples: int | None = None

    @classmethod
    def of(
        cls, out: Path, *, trust: bool, var: list[str] | None, judge: list[str] | None, samples: int | None = None
    ) -> SuiteFlags:
        """The flags as they were typed. Raises ``UsageError``."""
        return cls(
            out, trust, pairs("--var", "NAME=VALUE", var), pairs("--judge", "NAME=PROVIDER:MODEL", judge), samples
        )


def pairs(flag: str, form: str, given: list[str] | None) -> dict[str, str]:
    """Repeated ``NAME=VALUE`` words. Raises ``UsageError`` for one without a name or a sign, or given twice."""
    found: dict[str, str] = {}
    for word in given or []:
        name, sign, value = word.partition("=")
        if not sign or not name:
            raise UsageError(f"{flag} {word!r}: write {form}")
        if name in found:
            raise UsageError(f"{flag} {name}: given twice")
        found[name] = value
    return found


def selection(
    cases: list[str] | None,
    tags: list[str] | None,
    models: list[str] | None,
    graders: list[str] | None,
    limit: int | None,
) -> Selection:
    """The flags that narrow a run, as the run keeps them."""
    from visioneval.records import Selection

    return Selection(
        cases=tuple(cases or ()),
        tags=tuple(tags or ()),
        models=tuple(models or ()),
        graders=tuple(graders or ()),
        limit=limit,
    )


def load_and_expand(path: Path, chosen: Selection, flags: SuiteFlags) -> tuple[LoadedSuite, Plan]:
    """The first two steps of every command that takes a suite."""
    from visioneval.plan import expand, run_labels
    from visioneval.suite.load import load_suite

    loaded = load_suite(
        path, trust=flags.trust, variables=flags.variables, judges=flags.judges, run_labels=run_labels(flags.out)
    )
    return loaded, expand(loaded, chosen, samples=flags.samples, runs_root=flags.out)


def load_all(paths: list[Path], chosen: Selection, flags: SuiteFlags) -> list[tuple[LoadedSuite, Plan]]:
    """The first two steps for several suites: the last is known to be right before the first is run."""
    from visioneval.errors import Problem, SuiteError

    found = []
    problems: list[Problem] = []
    for path in paths:
        try:
            found.append(load_and_expand(path, chosen, flags))
        except SuiteError as error:
            problems.extend(error.problems)
    if problems:
        raise SuiteError(problems)
    return found


def load_held(folder: Path, chosen: Selection, flags: SuiteFlags) -> tuple[LoadedSuite, Plan]:
    """The suite that a run holds, as it was resolved, checked and expanded again."""
    from visioneval.plan import expand, run_labels
    from visioneval.records import read_info
    from visioneval.suite.load import held_suite

    info = read_info(folder)
    check_secrets(folder, info.hidden_vars, flags)
    loaded = held_suite(
        info.suite,
        Path(info.suite_path),
        source_sha256=info.source_sha256,
        trust=flags.trust,
        variables=flags.variables,
        judges=flags.judges,
        hidden=info.hidden_vars,
        run_labels=run_labels(flags.out),
    )
    return loaded, expand(loaded, chosen, samples=flags.samples, runs_root=flags.out)


def hidden_vars(folder: Path) -> tuple[str, ...]:
    """The variables of a run's suite whose values it does not hold."""
    from visioneval.records import read_info

    return read_info(folder).hidden_vars


def secrets_to_give(info: RunInfo, plan: Plan) -> list[str]:
    """The secret variables of a run that the plan's suite has too, and has no secret for."""
    from visioneval.engine.bench import secrets_around

    plain, own = secrets_around(plan), plan.suite.vars
    return [name for name in info.hidden_vars if name in own and not plain.hides(own[name])]


def check_secrets(folder: Path, wanted: Iterable[str], flags: SuiteFlags) -> None:
    """Raises ``UsageError`` where a secret variable of a run is not given again: no file holds its value."""
    missing = [name for name in wanted if name not in flags.variables]
    if missing:
        again = " ".join(f"--var {name}=VALUE" for name in missing)
        raise UsageError(f"{folder}: a run does not keep the value of a secret variable: give it again, {again}")


def held_selection(folder: Path, chosen: Selection) -> Selection:
    """The flags that narrowed a run which is gone on with. Raises ``UsageError`` for others: they would drop cells."""
    from visioneval.records import read_info

    if chosen.narrows:
        raise UsageError("--resume goes on with a whole run: leave out --case, --tag, --model, --grader and --limit")
    return read_info(folder).selection


def check_same_suite(folder: Path, plan: Plan, flags: SuiteFlags) -> None:
    """Raises ``UsageError`` where a run is of another suite, or of other secrets: its cells would all be set aside."""
    from visioneval.records import read_info

    info = read_info(folder)
    check_secrets(folder, secrets_to_give(info, plan), flags)
    held = info.suite.name
    if held != plan.suite.name:
        raise UsageError(f"{folder}: is a run of the suite {held!r}, not of {plan.suite.name!r}: --resume keeps to one")


def run_folder(name: str, out: Path) -> Path:
    """The folder of a run by its name. Raises ``UsageError``."""
    from visioneval.records import find_run

    return find_run(name, out)


def reuse_of(reused: Reused, *, offline: bool, resuming: bool) -> Reuse:
    """What is taken from the cache: offline all, and in a run that is gone on with whatever it paid for itself."""
    from visioneval.engine.calls import Reuse

    drawings: Drawings = "all" if offline or reused is Reused.all else "own" if resuming else "none"
    return Reuse(drawings, offline or reused is not Reused.none, offline)


def session(
    reuse: Reuse,
    cache: Path | None,
    budget: float | None,
    most: int,
    log_file: Path | None,
    *,
    debug: bool,
) -> Session:
    """How providers are called. Raises ``UsageError``."""
    from math import isfinite

    from visioneval.engine.session import Session

    if budget is not None and not isfinite(budget):
        raise UsageError(f"--budget {budget}: not a sum of money")
    return Session(most, cache, reuse, budget, log_file, debug)


def console(*, errors: bool = False) -> Console:
    """A console on standard output, or on standard error."""
    from rich.console import Console

    class Told(Console):
        def on_broken_pipe(self) -> None:
            """Left to us: rich would end the program with exit 1, which says that a gate does not hold."""
            raise BrokenPipeError

    return Told(stderr=errors, highlight=False, soft_wrap=False, markup=False)


@contextmanager
def closed_output_is_no_fault() -> Iterator[None]:
    """For what is printed of work that is done: a reader who has left, such as ``head``, changes no exit code."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        leave_output()


def leave_output() -> None:
    """Lets what is still to be printed go nowhere, where nobody reads it any more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(line: str) -> None:
    """A line for the person at the terminal; standard output is for results."""
    print(line, file=sys.stderr, flush=True)
