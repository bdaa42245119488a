"""The tree of an expression, and its value for the scores of a cell. Pure.

A yes-or-no metric counts as 1 or 0 where a number is needed. ``where``, ``and`` and ``or`` read only what decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from visioneval.rules import is_true
from visioneval.types import Score

Kind = Literal["bool", "number", "one_of"]
Value = bool | float
DIGITS = 6
"""Decimals of a computed score, so that every processor computes the same."""


class NoValueError(Exception):
    """An expression has no value for a cell. ``sources`` are the metrics that were null; empty if it is at fault."""

    def __init__(self, reason: str, sources: frozenset[str] = frozenset()) -> None:
        """Keeps the metrics that were null."""
        super().__init__(reason)
        self.sources = sources


class NotForCellError(Exception):
    """A metric that an expression reads does not apply to a cell."""


@dataclass(frozen=True, slots=True)
class Number:
    """A constant."""

    value: float


@dataclass(frozen=True, slots=True)
class Name:
    """The score of a metric."""

    name: str


@dataclass(frozen=True, slots=True)
class Tag:
    """Whether the case has a tag."""

    tag: str


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function or an operator with its operands."""

    function: str
    operands: tuple[Node, ...]


Node = Number | Name | Tag | FunctionCall


def _divide(a: float, b: float) -> float:
    if b == 0:
        raise NoValueError("division by 0")
    return a / b


def _power(a: float, b: float) -> float:
    if (a < 0 and b != int(b)) or (a == 0 and b < 0):
        raise NoValueError(f"{a:g} ** {b:g} is not a number")
    return math.pow(a, b)


def _sqrt(value: float) -> float:
    if value < 0:
        raise NoValueError(f"sqrt of {value:g}, which is below 0")
    return math.sqrt(value)


def _gmean(*values: float) -> float:
    """The geometric mean; 0 if a value is 0."""
    if min(values) < 0:
        raise NoValueError(f"gmean of {min(values):g}, which is below 0")
    if min(values) == 0:
        return 0.0
    mean = math.exp(math.fsum(map(math.log, values)) / len(values))
    return min(max(mean, min(values)), max(values))


def _clip(value: float, low: float, high: float) -> float:
    if low > high:
        raise NoValueError(f"clip to {low:g} and {high:g}, with the low bound above the high bound")
    return min(max(value, low), high)


ARITHMETIC: Mapping[str, Callable[..., float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _divide,
    "**": _power,
    "negative": lambda a: -a,
    "min": min,
    "max": max,
    "mean": lambda *values: math.fsum(values) / len(values),
    "gmean": _gmean,
    "sqrt": _sqrt,
    "abs": abs,
    "clip": _clip,
}
COMPARISONS = (">=", "<=", "==", "!=", ">", "<")
LOGICAL = ("and", "or", "not")
FUNCTIONS: Mapping[str, int | None] = {
    **dict.fromkeys(("min", "max", "mean", "gmean"), None),
    **dict.fromkeys(("sqrt", "abs", "tag"), 1),
    **dict.fromkeys(("clip", "where"), 3),
}
"""The functions, each with the number of its arguments; ``None`` for one or more."""


def names_in(node: Node) -> Iterator[str]:
    """Every metric that a tree names."""
    return (leaf.name for leaf in _leaves(node) if isinstance(leaf, Name))


def tags_in(node: Node) -> Iterator[str]:
    """Every tag that a tree names."""
    return (leaf.tag for leaf in _leaves(node) if isinstance(leaf, Tag))


def _leaves(node: Node) -> Iterator[Node]:
    if isinstance(node, FunctionCall):
        for operand in node.operands:
            yield from _leaves(operand)
    else:
        yield node


def for_case(node: Node, tags: Collection[str]) -> Node:
    """The tree for a case with these tags: without the branches that its tags rule out."""
    if isinstance(node, Tag):
        return Number(float(node.tag in tags))
    if not isinstance(node, FunctionCall):
        return node
    operands = tuple(for_case(operand, tags) for operand in node.operands)
    condition = _decided(operands[0])
    if condition is not None and node.function == "where":
        return operands[1] if condition else operands[2]
    if condition is not None and node.function in ("and", "or"):
        return operands[1] if condition is (node.function == "and") else Number(float(condition))
    return FunctionCall(node.function, operands)


def _decided(node: Node) -> bool | None:
    """The value of a condition whose tags were replaced; ``None`` if it depends on a metric or has no value."""
    if next(names_in(node), None) is not None:
        return None
    try:
        return bool(evaluate(node, {}))
    except NoValueError:
        return None


def kind_of(node: Node, kinds: Mapping[str, Kind]) -> Kind:
    """Whether a tree gives yes or no, or a number. Raises ``ValueError`` for a number where yes or no is needed."""
    if isinstance(node, Number):
        return "number"
    if isinstance(node, Tag):
        return "bool"
    if isinstance(node, Name):
        if kinds[node.name] == "one_of":
            raise ValueError(f"{node.name!r} is one word of a list, which only verdict rules can read")
        return kinds[node.name]
    operands = [kind_of(operand, kinds) for operand in node.operands]
    if node.function in COMPARISONS:
        return "bool"
    if node.function == "where":
        _need_bool(operands[:1], "the first argument of where")
        return "bool" if operands[1:] == ["bool", "bool"] else "number"
    if node.function in LOGICAL:
        _need_bool(operands, f"'{node.function}'")
        return "bool"
    return "number"


def _need_bool(kinds: Sequence[Kind], what: str) -> None:
    if "number" in kinds:
        raise ValueError(f"{what} needs a yes-or-no value: compare the number, such as 'metric > 0'")


def evaluate(node: Node, scores: Mapping[str, Score], tags: Collection[str] = ()) -> Value:
    """The value of a tree for a cell.

    Raises ``NoValueError`` if a score that it reads is null or an operation has no result, and ``NotForCellError`` if
    such a score is missing.
    """
    if isinstance(node, Number):
        return node.value
    if isinstance(node, Tag):
        return node.tag in tags
    if isinstance(node, Name):
        return _score(node.name, scores)
    if node.function == "where":
        condition, *branches = node.operands
        return evaluate(branches[0 if evaluate(condition, scores, tags) else 1], scores, tags)
    if node.function in ("and", "or"):
        left, right = node.operands
        first = bool(evaluate(left, scores, tags))
        return first if first is (node.function == "or") else bool(evaluate(right, scores, tags))
    values = [evaluate(operand, scores, tags) for operand in node.operands]
    if node.function == "not":
        return not values[0]
    if node.function in COMPARISONS:
        return is_true(float(values[0]), node.function, float(values[1]))
    return _finite(ARITHMETIC[node.function], values)


def _score(name: str, scores: Mapping[str, Score]) -> Value:
    if name not in scores:
        raise NotForCellError(name)
    score = scores[name]
    if score is None:
        raise NoValueError(f"{name} is null", frozenset({name}))
    if isinstance(score, str):
        raise NoValueError(f"{name} is {score!r}, which is no number", frozenset({name}))
    return score


def _finite(function: Callable[..., float], values: Sequence[Value]) -> float:
    try:
        result = function(*map(float, values))
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise NoValueError("the result is too large")
    return result
