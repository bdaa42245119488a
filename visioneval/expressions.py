"""Expressions over the scores of a cell: their tree, its value, and the parser, whose errors say where they are. Pure.

A yes-or-no metric counts as 1 or 0 where a number is needed. ``where``, ``and`` and ``or`` read only what decides. Size
and depth are bounded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
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
MEANINGS: Mapping[str, str] = {
    "min(a, ...)": "the lowest value",
    "max(a, ...)": "the highest value",
    "mean(a, ...)": "the mean",
    "gmean(a, ...)": "the geometric mean: 0 if a value is 0",
    "sqrt(a)": "the square root",
    "abs(a)": "the value without its sign",
    "clip(a, low, high)": "`a`, but at least `low` and at most `high`",
    "where(condition, a, b)": "`a` if the condition is true, else `b`; the other one is not evaluated, so "
    "`where(b > 0, a / b, 0)` never divides by 0",
    "tag(name)": "whether the case has the tag",
}
"""What each function is, for the reference, by its form."""


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
    condition = None
    if node.function in ("where", "and", "or") and next(names_in(operands[0]), None) is None:
        with suppress(NoValueError):
            condition = bool(evaluate(operands[0], {}))
    if condition is not None and node.function == "where":
        return operands[1] if condition else operands[2]
    if condition is not None:
        return operands[1] if condition is (node.function == "and") else Number(float(condition))
    return FunctionCall(node.function, operands)


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
    try:
        result = ARITHMETIC[node.function](*map(float, values))
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise NoValueError("the result is too large")
    return result


def _score(name: str, scores: Mapping[str, Score]) -> Value:
    if name not in scores:
        raise NotForCellError(name)
    score = scores[name]
    if score is None or isinstance(score, str):
        reason = "null" if score is None else f"{score!r}, which is no number"
        raise NoValueError(f"{name} is {reason}", frozenset({name}))
    return score


MAX_LENGTH = 1000
"""Maximum length of an expression, in characters."""
MAX_DEPTH = 30
"""Maximum number of parentheses, functions and signs inside each other."""
MAX_TREE = 100
"""Maximum depth of the tree, to which operators in a row add too."""

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.])
    |(?P<word>[A-Za-z_]\w*(?:\.\w+)*)
    |'(?P<single>[^']+)'|"(?P<double>[^"]+)"
    |(?P<sign>\*\*|>=|<=|==|!=|[-+*/<>(),]))""",
    re.VERBOSE | re.ASCII,
)
_LEVELS: tuple[tuple[str, ...], ...] = (("or",), ("and",), COMPARISONS, ("+", "-"), ("*", "/"))
"""Binary operators, from the loosest to the tightest."""
_COMPARING = _LEVELS.index(COMPARISONS)


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression. ``names`` are the metrics and ``tags`` the tags that it reads, in order."""

    text: str
    tree: Node
    names: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


@lru_cache(maxsize=4096)
def parse_expression(text: str) -> Expression:
    """Parses an expression. Raises ``ValueError`` with the position, and if its constants have no value."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"the expression has {len(text):,} characters, over the limit of {MAX_LENGTH:,}")
    tree = _ExpressionParser(list(_tokens(text))).whole()
    level: list[Node] = [tree]
    for _ in range(MAX_TREE):
        level = [operand for node in level if isinstance(node, FunctionCall) for operand in node.operands]
    if level:
        raise ValueError("the expression has too many operators in a row: use a function such as mean")
    names = tuple(dict.fromkeys(names_in(tree)))
    if not names:
        raise ValueError("the expression reads no metric")
    _check_constants(tree)
    return Expression(text.strip(), tree, names, tuple(dict.fromkeys(tags_in(tree))))


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None:
            rest = text[position:].lstrip()
            problem = f"unexpected {rest[:10]!r} (names with special characters need quotes)"
            if rest[0] in "'\"":
                problem = f"the quote {rest[0]} is not closed"
            elif rest[0] == "=":
                problem = "write == to compare"
            raise ValueError(f"character {len(text) - len(rest) + 1} of the expression: {problem}")
        kind = str(match.lastgroup)
        yield _Token("name" if kind in ("single", "double") else kind, match[kind], match.start(kind) + 1)
        position = match.end()


class _ExpressionParser:
    """A recursive descent over the tokens."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens, self._next, self._depth = tokens, 0, 0

    def whole(self) -> Node:
        tree = self._binary(0)
        if (token := self._peek()) is not None:
            raise self._error(token, f"expected the end of the expression, not {token.text!r}")
        return tree

    def _nested(self, parse: Callable[[], Node]) -> Node:
        """Parses one level deeper. Bounded, so that no text can exhaust the stack."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ValueError(f"the expression is nested over {MAX_DEPTH} levels deep")
        node = parse()
        self._depth -= 1
        return node

    def _binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self._unary()
        if level == _COMPARING and self._accept("word", ("not",)):
            return FunctionCall("not", (self._nested(lambda: self._binary(level)),))
        node = self._binary(level + 1)
        is_compared = False
        while token := self._accept("word" if level < _COMPARING else "sign", _LEVELS[level]):
            if is_compared:
                raise self._error(token, "two comparisons in a row: join them with 'and'")
            is_compared = level == _COMPARING
            node = FunctionCall(token.text, (node, self._binary(level + 1)))
        return node

    def _unary(self) -> Node:
        if self._accept("sign", ("-",)):
            return FunctionCall("negative", (self._nested(self._unary),))
        base = self._operand()
        if self._accept("sign", ("**",)):
            return FunctionCall("**", (base, self._nested(self._unary)))
        return base

    def _operand(self) -> Node:
        token = self._peek()
        if token is None:
            raise ValueError("the expression ends too early")
        self._next += 1
        if token.kind == "number":
            return self._number(token)
        if token.kind == "name":
            return Name(token.text)
        if token.kind == "word" and token.text not in ("and", "or", "not"):
            return self._call(token) if self._accept("sign", ("(",)) else Name(token.text)
        if token.text == "(":
            node = self._nested(lambda: self._binary(0))
            self._expect(")")
            return node
        raise self._error(token, f"expected a metric, a number or a function, not {token.text!r}")

    def _number(self, token: _Token) -> Node:
        value = float(token.text)
        if not math.isfinite(value):
            raise self._error(token, f"{token.text} is too large")
        return Number(value)

    def _call(self, token: _Token) -> Node:
        if token.text not in FUNCTIONS:
            close = get_close_matches(token.text, FUNCTIONS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(FUNCTIONS)}"
            raise self._error(token, f"there is no function {token.text!r} ({hint})")
        if token.text == "tag":
            return self._tag(token)
        operands = [self._nested(lambda: self._binary(0))]
        while self._accept("sign", (",",)):
            operands.append(self._nested(lambda: self._binary(0)))
        self._expect(")")
        number = FUNCTIONS[token.text]
        if number is not None and len(operands) != number:
            raise self._error(token, f"{token.text} takes {number} argument{'s' * (number > 1)}, not {len(operands)}")
        return FunctionCall(token.text, tuple(operands))

    def _tag(self, token: _Token) -> Node:
        name = self._peek()
        if name is None or name.kind not in ("name", "word"):
            raise self._error(token, "tag takes the name of a tag, such as tag(photo) or tag('on-brand')")
        self._next += 1
        self._expect(")")
        return Tag(name.text)

    def _peek(self) -> _Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _accept(self, kind: str, texts: tuple[str, ...]) -> _Token | None:
        token = self._peek()
        if token is None or token.kind != kind or token.text not in texts:
            return None
        self._next += 1
        return token

    def _expect(self, sign: str) -> None:
        if not self._accept("sign", (sign,)):
            token = self._peek()
            if token is None:
                raise ValueError(f"the expression ends without {sign!r}")
            raise self._error(token, f"expected {sign!r}, not {token.text!r}")

    @staticmethod
    def _error(token: _Token, message: str) -> ValueError:
        return ValueError(f"character {token.at} of the expression: {message}")


def _check_constants(node: Node) -> None:
    """Raises ``ValueError`` for a part that has no value whatever the scores are, such as a division by 0."""
    if not isinstance(node, FunctionCall):
        return
    for operand in node.operands:
        _check_constants(operand)
    is_division = node.function == "/"
    parts = node.operands[1:] if is_division else (node,)
    for part in parts:
        if next(names_in(part), None) is not None or next(tags_in(part), None) is not None:
            continue
        try:
            value = evaluate(part, {})
        except NoValueError as error:
            raise ValueError(f"the expression has no value: {error}") from None
        if is_division and value == 0:
            raise ValueError("the expression divides by 0")
