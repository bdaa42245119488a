"""Help without Python types: values are named by what they are, such as ``FILE``, and flags have none.

``--help`` shows what people use, ``--help-all`` also the flags of clusters, bounds and debugging.
"""

from __future__ import annotations

from collections.abc import Iterable
from inspect import Parameter
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from visioneval.settings import ADVANCED


class Command(TyperCommand):
    """A command whose help leaves out advanced groups of flags, and says so in its last line."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Prints the help."""
        groups: dict[Any, str | None] = {
            parameter: getattr(parameter, "rich_help_panel", None) for parameter in self.params
        }
        left_out = [] if ctx.meta.get(__name__) else [name for name in ADVANCED if name in groups.values()]
        for parameter, group in groups.items():
            parameter.hidden = group in left_out
        self.epilog = f"--help-all also shows the flags of these groups: {', '.join(left_out)}." if left_out else None
        super().format_help(ctx, formatter)
        for parameter in groups:
            parameter.hidden = False  # for the shell's completion


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
