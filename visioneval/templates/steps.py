"""The bounds of templates: of their text, of what they compute, and of the work of rendering, in steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from visioneval.bounds import TEMPLATE_STEPS
from visioneval.errors import TemplateError

MAX_CHARACTERS = 1_000_000
"""Of a template with plain expressions only, and of what a template renders."""
MAX_EXPRESSIONS = 2000
MAX_TEMPLATE = 100_000
"""Maximum length in characters of a template with more than plain expressions."""
MAX_TOKENS = 20_000
MAX_BITS = 4096
MAX_PRECISION = 100
MAX_PADDING = 100
"""Characters of a padded number."""
CHARACTERS_PER_STEP = 16
SUITE_TEMPLATES = 50
CASE_STEPS = 4000
"""Steps that each case adds to the suite's budget: a template may be rendered more than once for a case."""

_COLLECTIONS: Any = (dict, list, tuple, set, frozenset, range, type({}.keys()), type({}.values()), type({}.items()))


class TooMuchWorkError(TemplateError):
    """A template, or all templates of a suite together, that exceeds its budget of steps."""

    def __init__(self, message: str, *, is_of_suite: bool) -> None:
        super().__init__(message)
        self.is_of_suite = is_of_suite


class Steps:
    """A budget of steps."""

    def __init__(self, limit: int, *, is_of_suite: bool) -> None:
        self.remaining, self._limit, self._is_of_suite = limit, limit, is_of_suite

    @property
    def taken(self) -> int:
        """The steps that were charged, at most the whole budget: work that would exceed it is not done."""
        return self._limit - max(self.remaining, 0)

    def take(self, steps: int) -> None:
        """Charges the budget. Raises ``TooMuchWorkError`` if it is exhausted."""
        self.remaining -= steps
        if self.remaining < 0:
            subject = "the suite's templates take" if self._is_of_suite else "it takes"
            message = f"{subject} more than {self._limit:,} steps of work ({TEMPLATE_STEPS.hint})"
            raise TooMuchWorkError(message, is_of_suite=self._is_of_suite)


_steps: ContextVar[Steps | None] = ContextVar("steps", default=None)
_suite: ContextVar[Steps | None] = ContextVar("suite", default=None)


@contextmanager
def counted() -> Iterator[None]:
    """Gives all rendering inside the block one budget of steps, and charges the suite at the end for what was taken.

    Raises ``TooMuchWorkError`` if the suite's budget is exhausted, before any rendering or after it.
    """
    take_from_suite(0)
    budget = Steps(TEMPLATE_STEPS.limit, is_of_suite=False)
    token = _steps.set(budget)
    try:
        yield
    finally:
        _steps.reset(token)
        take_from_suite(budget.taken)


@contextmanager
def suite_counted(cases: int) -> Iterator[None]:
    """Gives all templates rendered inside the block one shared budget, which grows with the number of cases."""
    most = max(SUITE_TEMPLATES * TEMPLATE_STEPS.limit, CASE_STEPS * cases)
    token = _suite.set(Steps(most, is_of_suite=True))
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
    if (budget := _steps.get()) is None:
        return
    total, todo = 0, list(values)
    while todo and total <= budget.remaining:  # else it exceeds the budget anyway
        item = todo.pop()
        if isinstance(item, str):
            total += 1 + len(item) // CHARACTERS_PER_STEP
        elif isinstance(item, _COLLECTIONS):
            total += 1 + len(item)
            if total <= budget.remaining and not isinstance(item, range):
                todo += item
                if isinstance(item, dict):
                    todo += item.values()
        else:
            total += 1 + (item.bit_length() // 64 if isinstance(item, int) else 0)
    budget.take(total * times)


def check_numbers(operator: str, integers: list[int]) -> None:
    """Raises ``OverflowError`` for an operation whose result has too many bits."""
    bits = [side.bit_length() for side in integers]
    if len(integers) == 2 and operator == "**":
        bits.append(bits[0] * abs(integers[1]))
    elif operator == "*":
        bits.append(sum(bits))
    if max(bits, default=0) > MAX_BITS:
        raise OverflowError(f"a number has more than {MAX_BITS:,} bits")
