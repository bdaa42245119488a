"""Parses an expression to a tree. Its size and depth are bounded, and every error says where it is."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache

from visioneval.expressions.tree import (
    COMPARISONS,
    FUNCTIONS,
    FunctionCall,
    Name,
    Node,
    NoValueError,
    Number,
    Tag,
    evaluate,
    names_in,
    tags_in,
)

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
    _check_depth(tree)
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
            start = position + len(text[position:]) - len(text[position:].lstrip())
            raise ValueError(f"character {start + 1} of the expression: {_unreadable(text[start:])}")
        kind = str(match.lastgroup)
        yield _Token("name" if kind in ("single", "double") else kind, match[kind], match.start(kind) + 1)
        position = match.end()


def _unreadable(rest: str) -> str:
    if rest[0] in "'\"":
        return f"the quote {rest[0]} is not closed"
    if rest[0] == "=":
        return "write == to compare"
    return f"unexpected {rest[:10]!r} (names with special characters need quotes)"


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


def _check_depth(tree: Node) -> None:
    level: list[Node] = [tree]
    for _ in range(MAX_TREE):
        level = [operand for node in level if isinstance(node, FunctionCall) for operand in node.operands]
    if level:
        raise ValueError("the expression has too many operators in a row: use a function such as mean")


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
