"""Help without Python types, and errors as one line each.

Values are named by what they are, such as ``FILE``, and flags have none. ``--help`` shows what people use,
``--help-all`` also the flags of clusters, bounds and debugging. Problems of a suite are shown with the line that each
is about.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from inspect import Parameter
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from visioneval.errors import Problem
from visioneval.settings import ADVANCED

WRONG_USAGE: type[Exception] = typer.BadParameter.__bases__[0]
"""The base class of typer's usage errors, which has no public name."""
ENV_FILE = "--env-file"
"""The option of the program itself that users most often write after the command."""
_FORMS = {
    "int_parsing": "{input!r} is not a whole number",
    "int_from_float": "{input!r} is not a whole number",
    "float_parsing": "{input!r} is not a number",
    "greater_than_equal": "{input} is less than {ge}",
    "less_than_equal": "{input} is more than {le}",
}


def usage_message(error: Any, command: str | None) -> str | None:
    """``visioneval COMMAND: what is wrong; see visioneval COMMAND --help``; ``None`` if help was printed instead.

    ``command`` is the name of the command, for errors that do not know it.
    """
    message = _value_message(error) or error.format_message().rstrip(".")
    if not message:
        return None
    names = _command_names(error.ctx) or ([command] if command else [])
    if names and getattr(error, "option_name", None) == ENV_FILE:
        message = f"{ENV_FILE} goes before the command: visioneval {ENV_FILE} FILE {' '.join(names)} ..."
    name = " ".join(["visioneval", *names])
    return f"{name}: {' '.join(message.split())}; see {name} --help"


def _command_names(context: Any) -> list[str]:
    """The names of a command, without the program."""
    if context is None or context.parent is None:
        return []
    return [*_command_names(context.parent), str(context.info_name)]


def _value_message(error: Any) -> str:
    """The option and the problem with its value; empty for other errors."""
    problems: list[dict[str, Any]] = getattr(error.__cause__, "errors", list)()
    if not problems:
        return ""
    problem = problems[0]
    form = _FORMS.get(problem["type"])
    bounds = {name: f"{bound:f}".rstrip("0").rstrip(".") for name, bound in problem.get("ctx", {}).items() if form}
    text = form.format(input=problem["input"], **bounds) if form else error.message
    name = error.param.opts[0] if error.param.opts[0].startswith("-") else error.param.make_metavar(error.ctx)
    return f"{name}: {text.removeprefix('Value error, ').rstrip('.')}"


MAX_EXCERPTS = 20
"""Problems with an excerpt, so that many problems stay readable."""
_MAX_LINE_BYTES = 100_000
_MARGIN = 8
"""Columns for the line number and the bar."""


def with_excerpts(problems: Iterable[Problem], width: int) -> Iterator[str]:
    """The lines of each problem: its message, and for the first ``MAX_EXCERPTS`` the source line with a caret.

    ``width`` is in columns; longer source lines are cut around the caret. A line that may contain a key is left out.
    """
    for number, problem in enumerate(problems):
        yield str(problem)
        if number < MAX_EXCERPTS and (source := _source_line(problem)) is not None:
            yield from _excerpt(source, problem, max(20, width - _MARGIN))


def _source_line(problem: Problem) -> str | None:
    """The line of a problem as printable text; ``None`` if there is no such line, or a key may be in it."""
    from visioneval.suite.remote import SECRET_NAME

    if not problem.line or not Path(problem.file).is_file():
        return None
    try:
        with Path(problem.file).open("rb") as file:
            line = next(islice(iter(lambda: file.readline(_MAX_LINE_BYTES), b""), problem.line - 1, None), b"")
    except OSError:
        return None
    text = line.decode("utf-8-sig", errors="replace").rstrip()
    words = text.replace('"', " ").replace("'", " ").replace(":", " ").replace("=", " ").split()
    if not text or any(map(SECRET_NAME.fullmatch, words)):
        return None
    return "".join(sign if sign.isprintable() else " " for sign in text)


def _excerpt(source: str, problem: Problem, width: int) -> Iterator[str]:
    """The source line, cut to ``width`` around the column, and a caret below the column."""
    from rich.cells import cell_len

    column = min(problem.column, len(source) + 1) - 1
    start = max(0, min(column - width // 2, len(source) - width))
    cut = source[start : start + width]
    if start:
        cut = f"...{cut[3:]}"
    if start + width < len(source):
        cut = f"{cut[:-3]}..."
    yield f"{problem.line:>5} | {cut}"
    yield f"      | {' ' * cell_len(source[start:column])}^"


class Command(TyperCommand):
    """A command whose help leaves out advanced groups of flags, and says so in its last line."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Prints the help."""
        from rich.console import Console

        groups: dict[Any, str | None] = {
            parameter: getattr(parameter, "rich_help_panel", None) for parameter in self.params
        }
        left_out = [] if ctx.meta.get(__name__) else [name for name in ADVANCED if name in groups.values()]
        for parameter, group in groups.items():
            parameter.hidden = group in left_out
        self.epilog = f"--help-all also shows the flags of these groups: {', '.join(left_out)}." if left_out else None
        whole = self.help or ""
        self.help = _with_short_examples(whole, Console().width - _PADDING)
        super().format_help(ctx, formatter)
        self.help = whole
        for parameter in groups:
            parameter.hidden = False  # for the shell's completion


EXAMPLES = "Examples:"
"""The line of a docstring below which each line is a command."""
_WORD = re.compile(r"(?:'[^']*'|\"[^\"]*\"|\S)+")
"""A word of a command, with its quotes."""
_PADDING = 2
"""Columns beside the text of the help."""
_INDENT = "    "


def _with_short_examples(text: str, width: int) -> str:
    """The help with commands that are wider than the terminal broken by backslashes, so that a copy is one command."""
    before, heading, examples = text.rpartition(f"{EXAMPLES}\n")
    commands = (_continued(line, width) for line in examples.splitlines()) if heading else [examples]
    return before + heading + "\n".join(commands)


def _continued(command: str, width: int) -> str:
    if len(command) <= width:
        return command
    lines: list[str] = []
    for word in _WORD.findall(command):
        if lines and len(lines[-1]) + len(f" {word} \\") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(f"{_INDENT * (2 if lines else 1)}{word}")
    return " \\\n".join(lines)


def _unwrapped(text: str) -> str:
    """The help of a command with its paragraphs in one line each, so that the terminal wraps them."""
    parts = text.split("\n\n")
    return "\n\n".join(part if part.startswith(EXAMPLES) else " ".join(part.split()) for part in parts)


def _print_all(ctx: typer.Context, asked: bool) -> None:
    if asked:
        ctx.meta[__name__] = True
        typer.echo(ctx.get_help())
        raise typer.Exit


HELP_ALL = Parameter(
    "help_all",
    Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool,
        typer.Option("--help-all", metavar="", callback=_print_all, is_eager=True, help="Show all flags and exit."),
    ],
)


class HelpWithoutTypes(TyperGroup):
    """A group whose commands print no ``<bool>`` and no ``<list[Path]>`` in their help."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command of the group, or ``None``."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _hide_types(command.get_params(ctx))
            command.help = _unwrapped(command.help or "")
        return command

    def get_params(self, ctx: Any) -> Any:
        """The group's own options, with those that typer adds."""
        parameters = super().get_params(ctx)
        _hide_types(parameters)
        return parameters


def _hide_types(parameters: Iterable[Any]) -> None:
    for parameter in parameters:
        if isinstance(parameter, TyperArgument):
            # typer has no setting for it: an argument's metavar is its name in the first column
            parameter.display_type_rich = lambda ctx: None  # type: ignore[method-assign] # noqa: ARG005
        elif getattr(parameter, "is_flag", False):
            parameter.metavar = ""
