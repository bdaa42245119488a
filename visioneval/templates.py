"""Jinja, sandboxed and strict: an undefined variable is an error, never an empty string."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from visioneval.errors import TemplateError

MAX_CHARACTERS = 1_000_000
_SIGNS = ("{{", "{%", "{#")
_MAX_RANGE = 10_000


def _range(*bounds: int) -> range:
    span = range(*bounds)
    if len(span) > _MAX_RANGE:
        raise OverflowError(f"range() is limited to {_MAX_RANGE:,} steps")
    return span


@lru_cache(maxsize=1)
def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False
    )
    environment.globals["range"] = _range
    return environment


@lru_cache(maxsize=256)
def _compiled(text: str) -> jinja2.Template:
    return _environment().from_string(text)


def render(text: str, context: Mapping[str, Any]) -> str:
    """Renders a template given as text. Raises ``TemplateError`` in one line, with the template's line."""
    if not any(sign in text for sign in _SIGNS):
        return text
    if len(text) > MAX_CHARACTERS:
        raise TemplateError(f"a template of over {MAX_CHARACTERS:,} characters")
    try:
        rendered = _compiled(text).render(context)
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(f"template line {error.lineno}: {error.message}") from None
    except jinja2.UndefinedError as error:
        raise TemplateError(f"undefined template variable: {error.message}") from None
    except Exception as error:
        raise TemplateError(f"the template does not render: {type(error).__name__}: {error}") from None
    if len(rendered) > MAX_CHARACTERS:
        raise TemplateError(f"the template renders to over {MAX_CHARACTERS:,} characters")
    return rendered
