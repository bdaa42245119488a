"""Help without Python types: values are named by what they are, such as ``FILE``, and flags have none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from typer.core import TyperArgument, TyperGroup


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
