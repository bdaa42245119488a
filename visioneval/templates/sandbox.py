"""A Jinja environment for untrusted templates that counts and limits all work.

Jinja's own sandbox limits neither time nor memory. Here, a template has values, filters, ``if`` and ``for``. Every
executed node costs steps, and so does every value that an operator, filter, test, call or output touches. The cost is
the same on every machine. Only Jinja's public interface is used: the syntax tree is changed before compilation, and
the hooks are documented.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from itertools import islice
from math import isfinite
from types import CodeType
from typing import Any, NoReturn, cast

import jinja2
from jinja2 import filters, nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import BlockReference, Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import missing
from jinja2.visitor import NodeTransformer

from visioneval.errors import did_you_mean
from visioneval.templates.steps import (
    CHARACTERS_PER_STEP,
    MAX_PADDING,
    MAX_PRECISION,
    MAX_TEMPLATE,
    MAX_TOKENS,
    check_numbers,
    take,
    take_from_suite,
    weigh,
)

CALL_STEPS = 10
INCLUDE_STEPS = 100
"""An include of an empty template takes as long as so many nodes."""
COMPILING = 100
"""Steps per compiled token, charged to the suite's budget."""

_CHARGE, _CHARGE_LOOP, _CHARGE_VALUE, _JOINED = "the work", "the loop", "the weight", "the joined text"
_REFUSED_FILTERS = {
    *("attr", "batch", "center", "filesizeformat", "format", "indent", "pprint", "random", "slice", "striptags"),
    *("urlize", "wordwrap", "xmlattr"),
}
_BY_ATTRIBUTE = {
    *("groupby", "join", "map", "max", "min", "reject", "rejectattr", "select", "selectattr", "sort", "sum", "unique")
}
_REFUSED_NODES = (
    *(nodes.Assign, nodes.AssignBlock, nodes.Macro, nodes.CallBlock, nodes.FilterBlock, nodes.Import),
    *(nodes.FromImport, nodes.With, nodes.NSRef, nodes.ScopedEvalContextModifier),
)
_METHODS: Mapping[type, frozenset[str]] = {
    str: frozenset(
        {
            *("capitalize", "casefold", "count", "endswith", "find", "index", "isalnum", "isalpha", "isascii"),
            *("isdecimal", "isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper", "lower", "lstrip"),
            *("partition", "removeprefix", "removesuffix", "rfind", "rindex", "rpartition", "rsplit", "rstrip"),
            *("split", "splitlines", "startswith", "strip", "swapcase", "title", "upper"),
        }
    ),
    dict: frozenset({"get", "items", "keys", "values"}),
    list: frozenset({"count", "index"}),
    tuple: frozenset({"count", "index"}),
}


def _charged_call(function: Callable[..., Any], factor: Callable[..., int] | None = None) -> Callable[..., Any]:
    """Wraps a filter or test to charge for its arguments and its result. Evaluates lazy results immediately."""

    @wraps(function)
    def run(*args: Any, **more: Any) -> Any:
        take(CALL_STEPS)
        weigh(*args, *more.values(), times=factor(*args, **more) if factor else 1)
        result = function(*args, **more)
        if isinstance(result, Iterator):
            result = list(result)
        weigh(result)
        return result

    return run


def _path_length(*args: Any, **more: Any) -> int:
    """The depth of an attribute path such as ``a.b.c``, which is resolved for every item."""
    return 1 + sum(value.count(".") for value in (*args, *more.values()) if isinstance(value, str))


_COMPILED: dict[tuple[Any, ...], tuple[int, str | CodeType]] = {}
"""The numbers of tokens of template files, and their code."""
_MAX_COMPILED = 100


class _Missing(jinja2.StrictUndefined):
    __slots__ = ()

    def __init__(
        self, hint: str | None = None, obj: Any = missing, name: str | None = None, exc: Any = jinja2.UndefinedError
    ) -> None:
        message = f"there is no {name!r} in {'a text' if isinstance(obj, str) else 'this value'}"
        if obj is missing:
            message = f"{name!r} is not set"
        elif isinstance(obj, Mapping):
            message = f"there is no {name!r}{did_you_mean(str(name), map(str, obj)) or ' (known: nothing)'}"
        super().__init__(hint or message, obj, name, exc)

    __repr__ = jinja2.StrictUndefined.__str__  # how a list prints what is in it: no prompt must say "Undefined"


class Sandbox(ImmutableSandboxedEnvironment):
    """The Jinja environment. Render its templates within ``counted``."""

    intercepted_binops = frozenset(("*", "**", "%", "+", "-", "/", "//"))

    def __init__(self, loader: jinja2.BaseLoader | None = None) -> None:
        super().__init__(
            undefined=_Missing,
            finalize=_finalize,
            loader=loader,
            keep_trailing_newline=loader is None,
            trim_blocks=loader is not None,
            lstrip_blocks=loader is not None,
            autoescape=False,
            optimized=False,  # constant folding would escape the counting
        )
        overrides = {"join": _join, "replace": _replace, "round": _round, "string": str, "sum": _sum}
        overrides |= {"fromjson": _fromjson, "pad": _pad, "tojson": _tojson, "zip": _zip}
        allowed = {
            name: function for name, function in (self.filters | overrides).items() if name not in _REFUSED_FILTERS
        }
        factors = dict.fromkeys(_BY_ATTRIBUTE, _path_length)
        self.globals = {"range": _range}
        tests: Mapping[str, Any] = self.tests
        self.tests = {name: _charged_call(test) for name, test in tests.items()}
        self.filters = {
            name: _charged_call(cast("Callable[..., Any]", function), factors.get(name))
            for name, function in allowed.items()
        }
        self.filters |= {_CHARGE: _charge, _CHARGE_LOOP: _charge_loop, _CHARGE_VALUE: _charge_value, _JOINED: _joined}

    def compile(
        self,
        source: str | nodes.Template,
        name: str | None = None,
        filename: str | None = None,
        raw: bool = False,
        defer_init: bool = False,
    ) -> Any:
        """Checks a template and adds the counting before compilation.

        A file is compiled once in a process, as the suites of every folder use the built-in ones. Each use is charged
        like a compilation.
        """
        if not isinstance(source, str):
            return super().compile(source, name, filename, raw, defer_init)  # type: ignore[call-overload]
        key = (source, name, filename, raw, defer_init)
        tokens, code = _COMPILED.get(key) or (self._tokens(source, name, filename), None)
        take_from_suite(COMPILING * tokens)
        if code is None:
            tree = self._instrumented(source, name, filename)
            code = super().compile(tree, name, filename, raw, defer_init)  # type: ignore[call-overload]
            if filename is not None and len(_COMPILED) < _MAX_COMPILED:
                _COMPILED[key] = (tokens, code)
        return code

    def _instrumented(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super().parse(source, name, filename)
        for node in tree.find_all(_REFUSED_NODES):
            message = f"{type(node).__name__.lower()!r} is not allowed in a suite's templates"
            raise jinja2.TemplateSyntaxError(message, node.lineno, name, filename)
        for loop in tree.find_all(nodes.For):
            if loop.recursive:
                raise jinja2.TemplateSyntaxError("recursive loops are not allowed", loop.lineno, name, filename)
        return cast("nodes.Template", _ChargeInserter(self).visit(tree))

    def parse(self, source: str, name: str | None = None, filename: str | None = None) -> nodes.Template:
        """The unchanged syntax tree of a template, within the length limits."""
        self._tokens(source, name, filename)
        return super().parse(source, name, filename)

    def _tokens(self, source: str, name: str | None, filename: str | None) -> int:
        """The number of tokens of a template. Raises ``TemplateSyntaxError`` if there are too many."""
        if len(source) > MAX_TEMPLATE:
            raise jinja2.TemplateSyntaxError(
                f"the template has more than {MAX_TEMPLATE:,} characters", 1, name, filename
            )
        tokens = sum(1 for _ in islice(self.lex(source, name, filename), MAX_TOKENS + 1))
        if tokens > MAX_TOKENS:
            raise jinja2.TemplateSyntaxError(f"the template has more than {MAX_TOKENS:,} tokens", 1, name, filename)
        return tokens

    def is_safe_callable(self, obj: Any) -> bool:
        """Allows ``range``, blocks, loops, and cheap methods of plain values."""
        if obj is _range or isinstance(obj, (BlockReference, jinja2.Undefined)):
            return True
        owner, name = getattr(obj, "__self__", None), getattr(obj, "__name__", "")
        if isinstance(owner, LoopContext):
            return name in ("changed", "cycle")
        return name in _METHODS.get(type(owner), ())

    def call(self, context: Context, obj: Any, /, *args: Any, **more: Any) -> Any:
        """Calls a method or ``range``, charged like a filter."""
        if not self.is_safe_callable(obj):
            name = getattr(obj, "__name__", type(obj).__name__)
            raise SecurityError(f"{name!r} cannot be called in a template")
        take(CALL_STEPS)
        weigh(*args, *more.values())
        owner = getattr(obj, "__self__", None)
        if type(owner) is not dict:  # its methods touch none of its values
            weigh(owner)
        result = super().call(context, obj, *args, **more)
        if type(owner) is not dict:
            weigh(result)
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Applies an operator after charging for the size of its result."""
        sides = (left, right)
        integers = [side for side in sides if isinstance(side, int)]
        if all(isinstance(side, (int, float)) for side in sides):
            check_numbers(operator, integers)
        elif operator == "%":
            raise OverflowError("'%' works only with numbers: use '~' to join text")
        else:
            sized = [side for side in sides if not isinstance(side, (int, float))]
            weigh(*sized, times=max(1, *integers) if operator == "*" and integers else 1)
        return super().call_binop(context, operator, left, right)


_WEIGHED: Mapping[type[nodes.Node], tuple[str, ...]] = {
    nodes.Compare: ("expr",),
    nodes.Operand: ("expr",),
    nodes.Getitem: ("arg",),
    nodes.Pair: ("key",),
}
"""By node: its parts whose values an operation traverses."""


class _ChargeInserter(NodeTransformer):
    """Adds charges to a syntax tree: for the nodes of templates, blocks and loops, and for values."""

    def __init__(self, environment: Sandbox) -> None:
        self._environment = environment

    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        super().generic_visit(node, *args, **kwargs)
        for name in _WEIGHED.get(type(node), ()):
            value = getattr(node, name)
            if not isinstance(value, nodes.Const):
                setattr(node, name, self._filter(value, _CHARGE_VALUE))
        return node

    def visit_Template(self, node: nodes.Template | nodes.Block) -> nodes.Node:  # noqa: N802 - the visitor's naming
        self.generic_visit(node)
        nothing = nodes.Const(None, lineno=node.lineno, environment=self._environment)
        paid = self._filter(nothing, _CHARGE, _count_nodes(node.body))
        node.body.insert(0, nodes.ExprStmt(paid, lineno=node.lineno, environment=self._environment))
        return node

    visit_Block = visit_Template  # noqa: N815

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802
        self.generic_visit(node)
        steps = _count_nodes([*node.body, *([node.test] if node.test else [])])
        node.iter = self._filter(node.iter, _CHARGE_LOOP, 1 + steps)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:  # noqa: N802
        self.generic_visit(node)
        return self._filter(nodes.List(node.nodes, lineno=node.lineno, environment=self._environment), _JOINED)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        is_slice = isinstance(node.arg, nodes.Slice)
        visited = super().generic_visit(node) if is_slice else self.generic_visit(node)
        return self._filter(visited, _CHARGE_VALUE) if is_slice else visited

    def _filter(self, node: nodes.Node, name: str, *values: int) -> nodes.Filter:
        args = [nodes.Const(value, lineno=node.lineno, environment=self._environment) for value in values]
        return nodes.Filter(
            cast("nodes.Expr", node), name, args, [], None, None, lineno=node.lineno, environment=self._environment
        )


def _count_nodes(parts: Iterable[nodes.Node]) -> int:
    """The cost of the nodes that run once per execution. Bodies of inner loops and blocks are charged separately."""
    total, todo = 0, list(parts)
    while todo:
        node = todo.pop()
        total += INCLUDE_STEPS if isinstance(node, nodes.Include) else 1
        if not isinstance(node, nodes.Block):
            todo.extend(node.iter_child_nodes(exclude=("body", "test") if isinstance(node, nodes.For) else None))
    return total


def _charge(_: None, steps: int) -> None:
    take(steps)


def _charge_value(value: Any) -> Any:
    weigh(value)
    return value


def _charge_loop(items: Iterable[Any], steps: int) -> list[Any]:
    """The items of a loop, charged with ``steps`` each. What the loop does with an item is charged there."""
    values = list(items)
    take(steps * len(values))
    return values


@jinja2.pass_context  # a pass_context function is not evaluated during compilation
def _finalize(_: Context, value: Any) -> Any:
    """Charges for a value that is printed. Refuses methods, whose text has an address that differs in each process."""
    weigh(value)
    if type(value) is not str and callable(value) and not isinstance(value, jinja2.Undefined):
        name = getattr(value, "__name__", "")
        raise TypeError(f"{name!r} is a method: write ['{name}'] for the value of that name, or {name}() to call it")
    return value


def _joined(parts: list[Any]) -> str:
    weigh(parts)
    return "".join(map(str, parts))


def _replace(text: Any, old: str, new: str, count: int = -1) -> str:
    source = str(text)
    take(source.count(old) * len(new) // CHARACTERS_PER_STEP)
    return source.replace(old, new, count)


@jinja2.pass_eval_context
def _join(context: nodes.EvalContext, items: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
    parts = list(items)
    take(len(parts) * len(str(d)) // CHARACTERS_PER_STEP)
    return str(filters.do_join(context, parts, d, attribute))


def _round(value: float, precision: int = 0, method: Any = "common") -> float:
    if abs(precision) > MAX_PRECISION:
        raise OverflowError(f"round() has more than {MAX_PRECISION} digits")
    return filters.do_round(value, precision, method)


@jinja2.pass_environment
def _sum(environment: Sandbox, items: Iterable[Any], attribute: str | int | None = None, start: Any = 0) -> Any:
    parts = list(items)
    values = parts if attribute is None else list(map(filters.make_attrgetter(environment, attribute), parts))
    if not all(isinstance(value, (int, float)) for value in [*values, start]):
        raise TypeError("sum() works only with numbers")
    return sum(values, start)


def _tojson(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _fromjson(text: str) -> Any:
    """The data in a text that is JSON."""

    def finite(number: str) -> float:
        return float(number) if isfinite(float(number)) else _no_json(number)

    if not isinstance(text, str):
        raise TypeError("fromjson() needs a text")
    try:
        return json.loads(text, parse_constant=_no_json, parse_float=finite)
    except json.JSONDecodeError:
        _no_json(text)


def _no_json(text: str) -> NoReturn:
    raise ValueError(f"fromjson() of what is not JSON: {text:.60}")


def _pad(number: Any, width: int = 2, *more: Any) -> str:
    """A whole number, or a text, with zeros before it."""
    if more:
        raise TypeError("pad() takes one number, the number of characters")
    if not isinstance(width, int) or isinstance(width, bool) or not 0 <= width <= MAX_PADDING:
        raise ValueError(f"pad() needs a whole number of characters from 0 to {MAX_PADDING}, not {width!r:.60}")
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    return str(number).zfill(width)


def _zip(first: Iterable[Any], *others: Iterable[Any]) -> list[list[Any]]:
    """Lists of the first items, the second items and so on of lists of equal length."""
    if any(isinstance(items, str) or not isinstance(items, Iterable) for items in (first, *others)):
        raise TypeError("zip() needs lists; use fromjson for a list in a text")
    lists = [list(items) for items in (first, *others)]
    if len({len(items) for items in lists}) > 1:
        raise ValueError(f"zip() of lists with {' and '.join(str(len(items)) for items in lists)} items")
    return [list(items) for items in zip(*lists, strict=True)]


def _range(*bounds: int) -> range:
    span = range(*bounds)
    take(len(span))
    return span
