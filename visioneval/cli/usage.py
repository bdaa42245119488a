"""Usage errors as one line."""

from __future__ import annotations

from typing import Any

import typer

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
