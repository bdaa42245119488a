"""Ids of cases and turns, and the globs and scopes by which something applies to cases and model runs.

A case with ``turns`` becomes a chain of cases, ``CASE/1``, ``CASE/2`` and so on. Each turn after the first edits the
output of the turn before, of the same model run and sample. No other id has a slash, so an id tells whether its case is
a turn, and of which chain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache

from pydantic import Field

from visioneval.errors import UsageError, count_of, did_you_mean
from visioneval.types import Frozen, TaskType

MAX_TURNS = 99
CASE_ID = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
"""The pattern of an id that a suite may write."""
TURN = r"/[1-9][0-9]?"
"""The pattern of what follows it in the id of a turn."""


def turn_id(chain: str, number: int) -> str:
    """The id of a turn, counted from 1."""
    return f"{chain}/{number}"


def chain_of(case_id: str) -> str:
    """The id of the case with these turns; that of a case which is no turn is its own."""
    return case_id.partition("/")[0]


def previous_turn(case_id: str) -> str | None:
    """The id of the turn before; ``None`` for a first turn, and for a case that is no turn."""
    chain, _, number = case_id.partition("/")
    return turn_id(chain, int(number) - 1) if number and number != "1" else None


def first_turn(case_id: str) -> str:
    """The id of the first turn of a chain; that of a case which is no turn is its own."""
    chain, slash, _ = case_id.partition("/")
    return turn_id(chain, 1) if slash else case_id


def turns_of(case_ids: Iterable[str]) -> tuple[int, int]:
    """The fewest and the most turns of these cases: 1 of a case without turns."""
    numbers = Counter(map(chain_of, case_ids)).values()
    return min(numbers, default=1), max(numbers, default=1)


def show_size(cases: int, turns: tuple[int, int], samples: int) -> str:
    """``3 cases x 2 samples``, ``1 case x 2 turns`` with one sample of each, or ``2 cases x 1 to 3 turns``."""
    fewest, most = turns
    parts = [count_of(cases, "case")]
    if most > 1:
        parts.append(count_of(most, "turn") if fewest == most else f"{fewest} to {most} turns")
    if most == 1 or samples > 1:
        parts.append(count_of(samples, "sample"))
    return " x ".join(parts)


def any_glob(patterns: Iterable[str], text: str) -> bool:
    """Whether ``text`` equals or matches one of the patterns. Brackets are literal, since labels contain them."""
    plain, globs = _split_patterns(tuple(patterns))
    return text in plain or any(fnmatchcase(text, glob) for glob in globs)


def any_case(patterns: Iterable[str], case_id: str) -> bool:
    """Whether one of the patterns is for a case: for its id or, if it is a turn, that of its whole case."""
    patterns = tuple(patterns)
    return any_glob(patterns, case_id) or ("/" in case_id and any_glob(patterns, chain_of(case_id)))


def check_matches(where: str, *filters: tuple[str, Iterable[str], Iterable[str]]) -> None:
    """Raises ``UsageError`` for a pattern that matches nothing. ``filters`` are flags, their patterns, and names."""
    for flag, patterns, names in filters:
        for pattern in patterns:
            if not any(any_glob((pattern,), name) for name in names):
                raise UsageError(f"{flag} {pattern!r}: no match in {where}{did_you_mean(pattern, names)}")


@lru_cache(maxsize=256)
def _split_patterns(patterns: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    """The patterns as a set, and those that are globs. Cached, since a scope may list thousands of ids."""
    globs = tuple(p.replace("[", "[[]") for p in patterns if "*" in p or "?" in p)
    return frozenset(patterns), globs


class When(Frozen):
    """The cases that something applies to. Every list that is set must match."""

    tasks: tuple[TaskType, ...] = Field(default=(), description="Cases with any of these tasks.")
    tags: tuple[str, ...] = Field(default=(), description="Cases with any of these tags.")
    cases: tuple[str, ...] = Field(default=(), description="IDs of cases, or globs.")

    def fits(self, case_id: str, task: TaskType, tags: Iterable[str]) -> bool:
        """Whether a case is in the scope."""
        return (
            (not self.tasks or task in self.tasks)
            and (not self.tags or not set(self.tags).isdisjoint(tags))
            and (not self.cases or any_case(self.cases, case_id))
        )


class Scope(When):
    """The cells that something applies to."""

    models: tuple[str, ...] = Field(default=(), description="Labels of model runs, or globs. Brackets are literal.")

    def covers(self, case_id: str, task: TaskType, tags: Iterable[str], label: str) -> bool:
        """Whether a cell is in the scope."""
        return self.fits(case_id, task, tags) and (not self.models or any_glob(self.models, label))

    @property
    def is_unrestricted(self) -> bool:
        """Whether it includes every cell."""
        return not (self.tasks or self.tags or self.cases or self.models)

    def has_scope_of(self, other: Scope) -> bool:
        """Whether it applies to the same cells as another scope, by the same names."""
        return all(set(getattr(self, name)) == set(getattr(other, name)) for name in Scope.model_fields)
