"""The ids of turns: a case with ``turns`` becomes a chain of cases, ``CASE/1``, ``CASE/2`` and so on.

Each turn after the first edits the output of the turn before, of the same model run and sample. No other id has a
slash, so an id tells whether its case is a turn, and of which chain.
"""

from __future__ import annotations

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
