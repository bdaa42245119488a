"""What is wrong with a command line, in one line."""

from __future__ import annotations

from typing import Any

import typer

WRONG_USAGE: type[Exception] = typer.BadParameter.__bases__[0]
"""What typer raises for all of it; its name is not public."""
_FORMS = {
    "int_parsing": "{input!r} is not a whole number",
    "int_from_float": "{input!r} is not a whole number",
    "float_parsing": "{input!r} is not a number",
    "greater_than_equal": "{input} is less than {ge}",
    "less_than_equal": "{input} is more than {le}",
}


def told(error: Any, command: str | None) -> str | None:
    """``visioneval COMMAND: what is wrong; see visioneval COMMAND --help``; ``None`` where help was printed instead.

    ``command`` is the first word of the command, for errors that do not know theirs.
    """
    found = _wrong_value(error) or error.format_message().rstrip(".")
    if not found:
        return None
    name = " ".join(["visioneval", *(_words(error.ctx) or ([command] if command else []))])
    return f"{name}: {' '.join(found.split())}; see {name} --help"


def _words(context: Any) -> list[str]:
    """The names of a command, without the program's."""
    if context is None or context.parent is None:
        return []
    return [*_words(context.parent), str(context.info_name)]


def _wrong_value(error: Any) -> str:
    """The option, and what is wrong with its value; empty where something else is."""
    parts: list[dict[str, Any]] = getattr(error.__cause__, "errors", list)()
    if not parts:
        return ""
    part = parts[0]
    form = _FORMS.get(part["type"])
    bounds = {name: f"{bound:f}".rstrip("0").rstrip(".") for name, bound in part.get("ctx", {}).items() if form}
    what = form.format(input=part["input"], **bounds) if form else error.message
    name = error.param.opts[0] if error.param.opts[0].startswith("-") else error.param.make_metavar(error.ctx)
    return f"{name}: {what.removeprefix('Value error, ').rstrip('.')}"
