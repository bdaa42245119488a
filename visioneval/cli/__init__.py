"""The command line. Commands parse, call, print and exit; what is heavy is imported where it is needed."""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from visioneval import __version__
from visioneval.bounds import check_environment
from visioneval.cli import agreement as agree
from visioneval.cli import baseline, cache, compare, grade, label, options, questions, report, run, runs, suite
from visioneval.cli import pairwise as prefer
from visioneval.cli.usage import WRONG_USAGE, told
from visioneval.errors import UsageError, VisionEvalError

_MOST_ENVIRONMENT = 1_000_000
CLOSED_PIPE = 141
"""What a shell says of a program whose reader has left."""


class ErrorLines(TyperGroup):
    """The one place where an error of ours becomes its line and its exit code."""

    def make_context(self, *words: Any, **more: Any) -> Any:
        """Reads the words before the command."""
        try:
            return super().make_context(*words, **more)
        except WRONG_USAGE as error:
            raise _told(error, None) from None
        except VisionEvalError as error:
            raise _ended(error) from None

    def invoke(self, ctx: Any) -> Any:
        """Runs a command."""
        try:
            done = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            from visioneval.cli.options import leave_output

            leave_output()
            raise typer.Exit(CLOSED_PIPE) from None
        except WRONG_USAGE as error:
            raise _told(error, ctx.invoked_subcommand) from None
        except VisionEvalError as error:
            raise _ended(error) from None
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            raise typer.Exit(130) from None
        else:
            return done


def _ended(error: VisionEvalError) -> Exception:
    """The end of a program that an error of ours ends, once its line is printed."""
    from visioneval.engine.sanitize import Sanitizer
    from visioneval.report.text import clean

    print(clean(Sanitizer.around().text(error)), file=sys.stderr)
    return typer.Exit(error.exit_code)


def _told(error: Exception, command: str | None) -> Exception:
    """The end of a program whose command line is wrong, once it is told why."""
    line = told(error, command)
    if line is None:  # no word at all: the help is shown
        return error
    from visioneval.report.text import clean

    print(clean(line), file=sys.stderr)
    return typer.Exit(UsageError.exit_code)


app = typer.Typer(
    cls=ErrorLines,
    name="visioneval",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Run image generation and editing suites, grade every image, and gate on the verdicts.",
    epilog="Exit codes: 0 gates hold; 1 a gate does not; 2 wrong usage or suite; 3 incomplete; 130 interrupted.",
)


def _version(asked: bool) -> None:
    if asked:
        print(f"visioneval {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[  # noqa: ARG001 - its callback has printed it by now
        bool,
        typer.Option("--version", metavar="", callback=_version, is_eager=True, help="Show the version and exit."),
    ] = False,
    env_file: Annotated[
        Path | None,
        options.value("--env-file", "FILE", "Read keys from NAME=VALUE lines; what is set already wins."),
    ] = None,
) -> None:
    if env_file is not None:
        _read_environment(env_file)
    check_environment()


def _read_environment(path: Path) -> None:
    from dotenv import dotenv_values

    try:
        found = dotenv_values(path, encoding="utf-8") if path.stat().st_size < _MOST_ENVIRONMENT else None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--env-file {path}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None
    if found is None or not path.is_file():
        raise UsageError(f"--env-file {path}: is no file of NAME=VALUE lines")
    for name, value in found.items():
        if value is not None:
            os.environ.setdefault(name, value)


app.command()(suite.init)
app.command()(suite.validate)
app.command()(suite.plan)
app.command("run")(run.run)
app.command()(grade.grade)
app.command()(questions.questions)
app.command("runs")(runs.list_all)
app.command()(runs.show)
app.command()(runs.export)
app.command()(report.report)
app.command()(compare.compare)
app.command()(prefer.prefer)
app.add_typer(baseline.app, name="baseline")
app.command()(agree.agree)
app.add_typer(label.label, name="label")
app.command()(suite.schema)
app.add_typer(cache.app, name="cache")


def main() -> None:
    """The ``visioneval`` command."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who started us
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - for the whole process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what a terminal cannot show must not end a run
            stream.reconfigure(errors="replace")
    try:
        app()
    except Exception as error:  # a fault of ours must not look like a gate that does not hold, which is exit 1
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EIO):
            from visioneval.cli.options import leave_output

            print(f"cannot write to standard output: {error.strerror}", file=sys.stderr)
            leave_output()
        else:
            traceback.print_exc()
        raise SystemExit(3) from None
