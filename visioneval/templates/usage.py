"""The variables that a template uses, from its syntax tree and all that it includes or extends, without rendering."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

import jinja2
from jinja2 import meta, nodes
from jinja2.visitor import NodeTransformer

from visioneval.templates.render import Templates, template_errors

_LITERAL = re.compile(r"(?<!\{)\{\s?(prompt|criteria|image_description)\s?\}(?!\})")


@dataclass(frozen=True, slots=True)
class TemplateUsage:
    """The variables of a template and of all that it includes or extends."""

    used: frozenset[str] = frozenset()
    literals: tuple[str, ...] = ()
    """Names in single braces, such as ``{prompt}``, which Jinja leaves as they are."""

    def __or__(self, other: TemplateUsage) -> TemplateUsage:
        literals = tuple(dict.fromkeys((*self.literals, *other.literals)))
        return TemplateUsage(self.used | other.used, literals)


_CACHED = 256
"""The most templates whose variables are cached."""
_cache: dict[tuple[str, str], tuple[Mapping[str, str], TemplateUsage]] = {}
"""By name and text of a template: the texts by name of all that were read, itself first, and its variables."""


def template_usage(name: str, templates: Templates) -> TemplateUsage:
    """The variables that a template uses. Raises ``TemplateError`` if it, or one that it names, cannot be read.

    Cached while all texts are equal: a suite is checked several times, and most suites use the built-in templates.
    """
    with template_errors(f"template {name!r}"):
        key = (name, templates.text(name))
        texts, usage = _cache.get(key, ({}, TemplateUsage()))
        if texts and all(templates.text(part) == text for part, text in texts.items()):
            return usage
        read: dict[str, str] = {}
        usage = _usage(name, templates, {}, read)
        if len(_cache) >= _CACHED:
            _cache.clear()
        _cache[key] = (read, usage)
        return usage


def _usage(name: str, templates: Templates, known: dict[str, TemplateUsage], read: dict[str, str]) -> TemplateUsage:
    """The variables of a template. ``read`` gets the texts of all templates that were read.

    ``known`` gets the variables of each, as a template may be included any number of times.
    """
    if name in known:
        return known[name]
    known[name] = TemplateUsage()  # while it is read: rendering reports a recursion
    chain = list(_chain(name, templates, read))
    tree = _MergeBlocks([tree for tree, _ in chain]).visit(chain[-1][0])
    literals = tuple(dict.fromkeys(literal for _, text in chain for literal in _literals(templates.environment, text)))
    usage = TemplateUsage(frozenset(meta.find_undeclared_variables(tree)), literals)
    for include in tree.find_all(nodes.Include):
        for included in _names(include.template):
            inner = _usage(included, templates, known, read)
            usage |= inner if include.with_context else replace(inner, used=frozenset())
    known[name] = usage
    return usage


def _chain(name: str, templates: Templates, read: dict[str, str]) -> Iterator[tuple[nodes.Template, str]]:
    """The tree and the text of a template, of the one that it extends, and so on."""
    todo, passed = [name], set[str]()
    while todo and todo[0] not in passed:
        passed.add(current := todo.pop(0))
        text = read[current] = templates.text(current)
        tree = templates.environment.parse(text, current)
        yield tree, text
        todo = [parent for extends in tree.find_all(nodes.Extends) for parent in _names(extends.template)]


def _names(template: nodes.Expr) -> list[str]:
    """The names of a template that is included or extended."""
    items = template.items if isinstance(template, (nodes.Tuple, nodes.List)) else [template]
    return [item.value for item in items if isinstance(item, nodes.Const) and isinstance(item.value, str)]


def _literals(environment: jinja2.Environment, text: str) -> Iterator[str]:
    for _, kind, value in environment.lex(text):
        if kind == "data":
            yield from _LITERAL.findall(value)


class _MergeBlocks(NodeTransformer):
    """Replaces the blocks of the outermost template by the content that rendering gives them."""

    def __init__(self, trees: list[nodes.Template]) -> None:
        self._bodies: dict[str, list[list[nodes.Node]]] = {}
        self._active: set[str] = set()
        for tree in trees:
            for block in tree.find_all(nodes.Block):
                self._bodies.setdefault(block.name, []).append(block.body)

    def visit_Block(self, node: nodes.Block) -> list[nodes.Node]:  # noqa: N802 - the visitor's naming
        if node.name in self._active:
            return []
        self._active.add(node.name)
        content = nodes.Template(self._content(self._bodies[node.name]), lineno=node.lineno)
        content.set_environment(cast("jinja2.Environment", node.environment))
        merged: list[nodes.Node] = self.generic_visit(content).body  # type: ignore[attr-defined]
        self._active.discard(node.name)
        return merged

    def _content(self, bodies: list[list[nodes.Node]]) -> list[nodes.Node]:
        """The innermost body, and the one that it overrides if it calls ``super()``."""
        body, *overridden = bodies
        names = (name.name for node in body for name in node.find_all(nodes.Name))
        return [*body, *self._content(overridden)] if overridden and "super" in names else [*body]
