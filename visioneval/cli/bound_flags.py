"""The flags that raise or lower a bound, for the commands that read suites and images."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

from visioneval import bounds
from visioneval.bounds import Bound
from visioneval.cli import options

PANEL = "Bounds"


def bounded(*own: Bound) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command the flags of these bounds; without a flag the environment decides."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)

        @wraps(command)
        def run(**given: Any) -> None:
            for bound in own:
                bound.override = given.pop(_name(bound))
            try:
                command(**given)
            finally:
                _forget()

        extra = [
            inspect.Parameter(_name(bound), inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_option(bound))
            for bound in own
        ]
        run.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*signature.parameters.values(), *extra]
        )
        return run

    return decorate


def _name(bound: Bound) -> str:
    return bound.flag.removeprefix("--").replace("-", "_")


def _option(bound: Bound) -> Any:
    text = f"{bound.help} {bound.default:,}, or {bound.variable}."
    return Annotated[int | None, options.value(bound.flag, "N", text, PANEL, min=1)]


def _forget() -> None:
    """The next command of this process has flags of its own."""
    for bound in bounds.ALL:
        bound.override = None
