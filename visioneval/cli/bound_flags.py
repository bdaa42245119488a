"""Flags that change a bound, for commands that read suites and images."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

from visioneval import bounds
from visioneval.bounds import Bound
from visioneval.cli import options

PANEL = "Bounds"


def bounded(*flags: Bound) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds flags for these bounds to a command. The environment applies without a flag."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)

        @wraps(command)
        def run(**arguments: Any) -> None:
            for bound in flags:
                bound.override = arguments.pop(_name(bound))
            try:
                command(**arguments)
            finally:
                _reset()

        extra = [
            inspect.Parameter(_name(bound), inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_option(bound))
            for bound in flags
        ]
        run.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*signature.parameters.values(), *extra]
        )
        return run

    return decorate


def _name(bound: Bound) -> str:
    return bound.flag.removeprefix("--").replace("-", "_")


def _option(bound: Bound) -> Any:
    text = f"{bound.help} Default: {bound.default:,}, or {bound.variable}."
    return Annotated[int | None, options.value(bound.flag, "N", text, PANEL, min=1)]


def _reset() -> None:
    """Removes the flags, for the next command of this process."""
    for bound in bounds.ALL:
        bound.override = None
