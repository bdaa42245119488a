"""Budgets of steps for rendering templates, and the cost of values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from visioneval.bounds import TEMPLATE_STEPS

CHARACTERS_PER_STEP = 16
SUITE_TEMPLATES = 50
CASE_STEPS = 4000
"""Steps that each case adds to the suite's budget: a template may be rendered more than once for a case."""

_COLLECTIONS: Any = (dict, list, tuple, set, frozenset, type({}.keys()), type({}.values()), type({}.items()))
_SINGLE_STEP = frozenset({bool, float, type(None)})


class TooMuchWorkError(Exception):
    """A template, or all templates of a suite together, that exceeds its budget of steps."""


class Steps:
    """A budget of steps. ``above`` is a larger budget that is charged too."""

    def __init__(self, limit: int, subject: str, above: Steps | None = None) -> None:
        self.remaining, self._limit, self._subject, self._above = limit, limit, subject, above

    def take(self, steps: int) -> None:
        """Charges the budget. Raises ``TooMuchWorkError`` if it is exhausted."""
        self.remaining -= steps
        if self.remaining < 0:
            raise TooMuchWorkError(f"{self._subject} more than {self._limit:,} steps of work ({TEMPLATE_STEPS.hint})")
        if self._above is not None:
            self._above.take(steps)


_steps: ContextVar[Steps | None] = ContextVar("steps", default=None)
_suite: ContextVar[Steps | None] = ContextVar("suite", default=None)


@contextmanager
def counted() -> Iterator[None]:
    """Gives all rendering inside the block one budget of steps."""
    token = _steps.set(Steps(TEMPLATE_STEPS.limit, "it takes", _suite.get()))
    try:
        yield
    finally:
        _steps.reset(token)


@contextmanager
def suite_counted(cases: int) -> Iterator[None]:
    """Gives all templates rendered inside the block one shared budget, which grows with the number of cases."""
    most = max(SUITE_TEMPLATES * TEMPLATE_STEPS.limit, CASE_STEPS * cases)
    token = _suite.set(Steps(most, "the suite's templates take"))
    try:
        yield
    finally:
        _suite.reset(token)


def take(steps: int) -> None:
    """Charges steps to the current template. Raises ``TooMuchWorkError``."""
    if (budget := _steps.get()) is not None:
        budget.take(steps)


def take_from_suite(steps: int) -> None:
    """Charges steps to the suite only. Raises ``TooMuchWorkError``."""
    if (budget := _suite.get()) is not None:
        budget.take(steps)


def weigh(*values: Any, times: int = 1) -> None:
    """Charges the cost of traversing ``values`` ``times`` times. Raises ``TooMuchWorkError``."""
    if (budget := _steps.get()) is not None:
        budget.take(_weight(list(values), budget.remaining) * times)


def _weight(todo: list[Any], most: int) -> int:
    """The cost of traversing values; stops counting once it exceeds ``most``."""
    total = 0
    while todo and total <= most:
        item: Any = todo.pop()
        if isinstance(item, str):
            total += 1 + len(item) // CHARACTERS_PER_STEP
        elif type(item) in _SINGLE_STEP:
            total += 1
        elif isinstance(item, _COLLECTIONS):
            total += 1 + len(item)
            if total <= most:
                todo.extend([*item, *item.values()] if isinstance(item, dict) else item)
        elif isinstance(item, range):
            total += 1 + len(item)
        else:
            total += 1 + (item.bit_length() // 64 if isinstance(item, int) else 0)
    return total
