"""The command line: a thin layer over the API. Heavy modules are imported where they are used."""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import os
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from visioneval.bounds import check_environment
from visioneval.cli import compare, data, inspect, judges, label, options, run, start
from visioneval.cli.help import WRONG_USAGE, Command, HelpWithoutTypes, usage_message, with_excerpts
from visioneval.errors import ExitCode, SuiteError, UsageError, VisionEvalError
from visioneval.version import __version__

_MAX_ENV_FILE_BYTES = 1_000_000
CLOSED_PIPE = 141
"""What shells report for a program that writes to a closed pipe."""


COMMANDS: dict[str, dict[str, Callable[..., None] | typer.Typer]] = {
    "Start": {
        "init": start.init,
        "validate": start.validate,
        "plan": start.plan,
        "schema": start.schema,
        "plugins": data.plugins,
    },
    "Run": {"run": run.run, "grade": run.grade, "merge": run.merge},
    "Inspect": {
        "show": inspect.show,
        "runs": inspect.list_all,
        "report": inspect.report,
        "view": inspect.view,
        "site": inspect.site,
        "export": inspect.export,
    },
    "Compare": {"compare": compare.compare, "baseline": compare.app},
    "Judges": {
        "questions": judges.questions,
        "label": label.label,
        "agreement": judges.agreement,
        "pairwise": judges.pairwise,
        "rank": judges.rank,
        "probe": judges.probe,
    },
    "Data": {"cache": data.app},
}
"""All commands, by group and in the order of the help."""
EXAMPLES = """\b
visioneval init demo       # write a suite that needs no key
visioneval run demo        # grade every image and check the gates
visioneval report --open   # see the images, scores and reasons
"""


class ErrorLines(HelpWithoutTypes):
    """The one place where our errors become one line and an exit code."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """In the order of the groups."""
        return [name for commands in COMMANDS.values() for name in commands]

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Parses the options before the command."""
        try:
            return super().make_context(*args, **kwargs)
        except WRONG_USAGE as error:
            raise _usage_exit(error, None) from None
        except VisionEvalError as error:
            raise _error_exit(error) from None

    def invoke(self, ctx: Any) -> Any:
        """Runs a command."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            from visioneval.cli.options import discard_output

            discard_output()
            raise typer.Exit(CLOSED_PIPE) from None
        except WRONG_USAGE as error:
            raise _usage_exit(error, ctx.invoked_subcommand) from None
        except VisionEvalError as error:
            raise _error_exit(error) from None
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        else:
            return result


def _error_exit(error: VisionEvalError) -> Exception:
    """Prints an error of ours as one line, and on a terminal the source of each problem of a suite.

    Returns the exception that ends the program.
    """
    from visioneval.records.stores.lookup import shown_message
    from visioneval.report.text import clean
    from visioneval.running.sanitize import Sanitizer

    message = str(error)
    if isinstance(error, SuiteError) and sys.stderr.isatty():
        message = "\n".join(with_excerpts(error.listed(), shutil.get_terminal_size().columns))
    print(clean(shown_message(Sanitizer.around().text(message))), file=sys.stderr)
    return typer.Exit(error.exit_code)


def _usage_exit(error: Exception, command: str | None) -> Exception:
    """Prints a usage error as one line. Returns the exception that ends the program."""
    line = usage_message(error, command)
    if line is None:  # no command: the help is shown
        return error
    from visioneval.report.text import clean

    print(clean(line), file=sys.stderr)
    return typer.Exit(UsageError.exit_code)


app = typer.Typer(
    cls=ErrorLines,
    name="visioneval",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help=f"Run image generation and editing suites, grade every image, and check gates.\n\n{EXAMPLES}",
    epilog="Exit codes: 0 all gates passed; 1 a gate failed; 2 usage or suite error; 3 incomplete, not measured or "
    "cannot tell; 130 interrupted.",
)


def _version(asked: bool) -> None:
    if asked:
        print(f"visioneval {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[  # noqa: ARG001 - its callback has printed it by now
        bool, typer.Option("--version", metavar="", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    env_file: Annotated[
        Path | None,
        options.value(
            "--env-file",
            "FILE",
            "Read keys from a file of NAME=VALUE lines; existing environment variables take precedence.",
        ),
    ] = None,
) -> None:
    if env_file is not None:
        from dotenv import dotenv_values

        try:
            values = (
                dotenv_values(env_file, encoding="utf-8") if env_file.stat().st_size < _MAX_ENV_FILE_BYTES else None
            )
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--env-file {env_file}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None
        if values is None or not env_file.is_file():
            raise UsageError(f"--env-file {env_file}: is not a file of NAME=VALUE lines")
        for name, value in values.items():
            if value is not None:
                os.environ.setdefault(name, value)
    check_environment()


for _panel, _commands in COMMANDS.items():
    for _name, _command in _commands.items():
        if isinstance(_command, typer.Typer):
            app.add_typer(_command, name=_name, rich_help_panel=_panel)
        else:
            app.command(_name, cls=Command, rich_help_panel=_panel)(_command)


def main() -> None:
    """The ``visioneval`` command."""
    # With Python's 700, what a large report has read is searched again and again, which takes a fifth of its time.
    gc.set_threshold(10_000)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - for the whole process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # characters that a terminal cannot show must not end a run
            stream.reconfigure(errors="replace")
    try:
        app()
    except SystemExit as end:
        _end_despite_threads(end.code)
        raise
    except Exception as error:  # an internal error must not look like a failed gate (exit 1)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EIO):
            from visioneval.cli.options import discard_output

            print(f"cannot write to standard output: {error.strerror}", file=sys.stderr)
            discard_output()
        else:
            traceback.print_exc()
        _end_despite_threads(ExitCode.INCOMPLETE)
        raise SystemExit(ExitCode.INCOMPLETE) from None
    finally:
        gc.freeze()  # else Python searches all objects for cycles at its end: a fifth of the time of a local command


def _end_despite_threads(code: int | str | None) -> None:
    """Ends the process if an interrupted run has left a thread at work, which Python would wait for: OCR cannot be
    stopped, and other people's code may wait forever."""
    from visioneval.threads import is_any_busy

    if not is_any_busy():
        return
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))
