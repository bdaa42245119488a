"""Jinja, sandboxed, strict and bounded: an undefined variable is an error, and no template can eat the machine.

A suite may come from a stranger, and Jinja's sandbox bounds neither time nor memory. So templates get values, filters,
``if`` and ``for``, but nothing that could grow a value from statement to statement (``set``, macros); what can make
something enormous in one expression is refused or checked, and all loops of a template share one budget of steps.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, reduce
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import jinja2
from jinja2 import filters, meta, nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import missing
from jinja2.visitor import NodeTransformer

from visioneval.errors import TemplateError

MAX_CHARACTERS = 1_000_000
MAX_GROWN = 100_000
"""Characters of a value that an operator or a filter makes, and of a template that has more than plain expressions."""
MAX_REPEATED = 10_000
MAX_STEPS = 100_000
MAX_RANGE = 10_000
MAX_BITS = 4096
_SIGNS = ("{{", "{%", "{#")
_EXPRESSION = re.compile(r"((?<!\{)\{\{(?!-)[^{}]*(?<!-)\}\}(?!\}))")
_BUDGET, _STEPS, _JOINED = "the steps left", "taking steps", "joined to one text"
_GROWING_METHODS = {"center", "expandtabs", "format", "format_map", "join", "ljust", "replace", "rjust", "zfill"}
_GROWING_FILTERS = {
    *("attr", "batch", "center", "filesizeformat", "format", "indent", "pprint", "random", "slice", "urlize"),
    *("wordwrap", "xmlattr"),
}
_REFUSED = (
    *(nodes.Assign, nodes.AssignBlock, nodes.Macro, nodes.CallBlock, nodes.FilterBlock, nodes.Import),
    *(nodes.FromImport, nodes.With, nodes.NSRef),
)

Folders = tuple[Path, ...]


class _Missing(jinja2.StrictUndefined):
    __slots__ = ()

    @property
    def _undefined_message(self) -> str:
        name, above = self._undefined_name, self._undefined_obj
        if self._undefined_hint or above is missing:
            return self._undefined_hint or f"{name!r} is not set"
        if isinstance(above, Mapping):
            return f"there is no {name!r} (there is: {', '.join(map(str, list(above)[:20])) or 'nothing'})"
        return f"there is no {name!r} in {'a text' if isinstance(above, str) else 'what is asked for it'}"


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(("*", "**", "%", "+"))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        sizes = [_size(side) for side in (left, right) if not isinstance(side, (int, float))]
        whole = [side for side in (left, right) if isinstance(side, int)]
        if sizes and operator == "%":
            raise OverflowError("'%' is for numbers: join texts with '~'")
        if sizes and operator == "*":
            _fits(sum(sizes) * max(whole, default=1), MAX_REPEATED)
        elif sizes:
            _fits(sum(sizes))
        elif len(whole) == 2 and operator in ("*", "**"):
            bits = left.bit_length() * abs(right) if operator == "**" else left.bit_length() + right.bit_length()
            if bits > MAX_BITS:
                raise OverflowError(f"a number of over {MAX_BITS:,} bits")
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return attr not in _GROWING_METHODS and super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> None:  # noqa: ARG002 - makes str.format an attribute like any other
        return None

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        if len(source) > MAX_GROWN:
            raise jinja2.TemplateSyntaxError(f"a template of over {MAX_GROWN:,} characters", 1, name, filename)
        tree = super()._parse(source, name, filename)
        for node in tree.find_all(_REFUSED):
            what = f"{type(node).__name__.lower()!r} is not for a suite's templates"
            raise jinja2.TemplateSyntaxError(what, node.lineno, name, filename)
        for loop in tree.find_all(nodes.For):
            if loop.recursive:
                raise jinja2.TemplateSyntaxError("a loop cannot be recursive", loop.lineno, name, filename)
            loop.iter = self._checked(loop.iter, _STEPS)
        return cast("nodes.Template", _Joins(self).visit(tree))

    def _checked(self, node: nodes.Node, name: str) -> nodes.Filter:
        inner = cast("nodes.Expr", node)
        return nodes.Filter(inner, name, [], [], None, None, lineno=node.lineno, environment=self)


class _Joins(NodeTransformer):
    """Puts a check into every ``~``, of which the environment is not asked."""

    def __init__(self, environment: _Environment) -> None:
        self.environment = environment

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:  # noqa: N802 - the visitor's naming
        self.generic_visit(node)
        return cast("nodes.Filter", reduce(self._pair, node.nodes))

    def _pair(self, left: nodes.Expr, right: nodes.Expr) -> nodes.Expr:
        parts = nodes.List([left, right], lineno=left.lineno, environment=self.environment)
        return self.environment._checked(parts, _JOINED)  # noqa: SLF001 - its other half


def _size(value: Any) -> int:
    """Roughly how many characters a value prints as, counted no further than past the limit."""
    total, todo = 0, [value]
    while todo and total <= MAX_CHARACTERS:
        item = todo.pop()
        if isinstance(item, str):
            total += len(item)
        elif isinstance(item, (dict, list, tuple)):
            total += 2 + len(item)
            todo.extend([*item, *item.values()] if isinstance(item, dict) else item)
        else:
            total += 1
    return total


def _fits(size: int, limit: int = MAX_GROWN) -> None:
    if size > limit:
        raise OverflowError(f"a value of over {limit:,} characters")


def _fitting(value: Any) -> Any:
    _fits(_size(value), MAX_CHARACTERS)
    return value


@jinja2.pass_context
def _steps(context: Context, items: Iterable[Any]) -> list[Any]:
    taken: list[Any] = _fitting(list(items))
    budget = context.get(_BUDGET) or [0]
    budget[0] -= len(taken)
    if budget[0] < 0:
        raise OverflowError(f"loops of over {MAX_STEPS:,} steps in all")
    return taken


def _joined(parts: list[Any]) -> str:
    _fits(_size(parts))
    return "".join(map(str, parts))


def _replace(text: Any, old: str, new: str, count: int = -1) -> str:
    whole = str(_fitting(text))
    _fits(len(whole) + whole.count(old) * len(new))
    return whole.replace(old, new, count)


@jinja2.pass_eval_context
def _join(context: nodes.EvalContext, items: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
    parts = list(items)
    _fits(_size(parts) + len(parts) * len(str(d)))
    return str(filters.do_join(context, parts, d, attribute))


def _string(value: Any) -> str:
    return str(_fitting(value))


def _tojson(value: Any) -> str:
    return json.dumps(_fitting(value), ensure_ascii=False)


def _range(*bounds: int) -> range:
    span = range(*bounds)
    if len(span) > MAX_RANGE:
        raise OverflowError(f"range() is limited to {MAX_RANGE:,} steps")
    return span


@lru_cache(maxsize=16)
def _environment(folders: Folders = ()) -> _Environment:
    made = _Environment(
        undefined=_Missing,
        finalize=_fitting,
        loader=jinja2.FileSystemLoader(folders) if folders else None,
        keep_trailing_newline=not folders,
        trim_blocks=bool(folders),
        lstrip_blocks=bool(folders),
        autoescape=False,
        auto_reload=False,  # a run renders by the words that its records name, and does not look for new ones each time
    )
    made.globals = {"range": _range}
    kept = {name: filter_ for name, filter_ in made.filters.items() if name not in _GROWING_FILTERS}
    own = {"join": _join, "replace": _replace, "string": _string, "tojson": _tojson, _STEPS: _steps, _JOINED: _joined}
    made.filters = {**kept, **own}
    return made


@lru_cache(maxsize=256)
def _compiled(text: str) -> jinja2.Template:
    return _environment().from_string(text)


def render(text: str, context: Mapping[str, Any]) -> str:
    """Renders a template given as text. Raises ``TemplateError`` in one line, with the template's line."""
    if not any(sign in text for sign in _SIGNS):
        return text
    if len(text) > MAX_CHARACTERS:
        raise TemplateError(f"a template of over {MAX_CHARACTERS:,} characters")
    return _rendered("template", lambda: _parts(text), context)


def _parts(text: str) -> list[str | jinja2.Template]:
    """The template cut at its ``{{ expressions }}``, where it has no other sign: prompts share and compile those."""
    parts = _EXPRESSION.split(text)
    if len(parts) > 1 and not any(sign in part for part in parts[::2] for sign in _SIGNS):
        with suppress(jinja2.TemplateSyntaxError):
            return [_compiled(part) if index % 2 else part for index, part in enumerate(parts)]
    return [_compiled(text)]


def render_file(name: str, folders: Folders, context: Mapping[str, Any]) -> str:
    """Renders a template file, from the first of the folders that has it. Raises ``TemplateError`` in one line."""
    return _rendered(f"template {name!r}", lambda: [_environment(folders).get_template(name)], context)


def template_files(name: str, folders: Folders) -> dict[str, Path]:
    """The file of a template and of every template that it names, by name. Raises ``TemplateError``."""
    environment, found, todo = _environment(folders), dict[str, Path](), [name]
    try:
        while todo:
            if (current := todo.pop()) in found:
                continue
            text, path, _ = cast("jinja2.BaseLoader", environment.loader).get_source(environment, current)
            found[current] = Path(str(path))
            todo += _named_in(text)
    except jinja2.TemplateNotFound as error:
        raise TemplateError(f"there is no template {error.name!r} beside the suite or built in") from None
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(f"{current} line {error.lineno}: {error.message}") from None
    return found


@lru_cache(maxsize=256)
def _named_in(text: str) -> tuple[str, ...]:
    """The templates that a template names. Raises ``TemplateSyntaxError``."""
    return tuple(filter(None, meta.find_referenced_templates(_environment().parse(text))))


@lru_cache(maxsize=256)
def template_digest(names: tuple[str, ...], folders: Folders) -> str:
    """SHA-256 over the text of some templates and of all that they name: what a judge's answers depend on."""
    files = {file: path for name in names for file, path in template_files(name, folders).items()}
    texts = {file: path.read_text(encoding="utf-8") for file, path in sorted(files.items())}
    return sha256(json.dumps(texts).encode()).hexdigest()


def _rendered(name: str, find: Callable[[], list[str | jinja2.Template]], context: Mapping[str, Any]) -> str:
    try:
        return "".join(_bounded(find(), {**context, _BUDGET: [MAX_STEPS]}))
    except TemplateError:
        raise
    except jinja2.TemplateNotFound as error:
        raise TemplateError(f"there is no template {error.name!r} beside the suite or built in") from None
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(f"{error.name or name} line {error.lineno}: {error.message}") from None
    except jinja2.UndefinedError as error:
        known = f" (known: {', '.join(sorted(context)[:20])})" if "is not set" in str(error.message) else ""
        raise TemplateError(f"undefined template variable: {error.message}{known}") from None
    except RecursionError:
        raise TemplateError(f"the {name} is nested too deeply") from None
    except Exception as error:
        why = "a number of too many digits" if "digits" in str(error) else str(error) or type(error).__name__
        raise TemplateError(f"the {name} does not render: {why}") from None


def _bounded(parts: list[str | jinja2.Template], context: Mapping[str, Any]) -> Iterator[str]:
    size = 0
    for part in parts:
        for piece in [part] if isinstance(part, str) else part.generate(context):
            size += len(piece)
            if size > MAX_CHARACTERS:
                raise TemplateError(f"the template renders to over {MAX_CHARACTERS:,} characters")
            yield piece
