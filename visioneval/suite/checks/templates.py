"""Checks that the templates of judges show what was asked, and that they use no variable that a judge must not see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visioneval.errors import TemplateError
from visioneval.suite.entries.judge_prompt import JudgeTemplate
from visioneval.templates.usage import TemplateUsage, template_usage

RULES = "rules"
_MEANT = {"image_description": "prompt"}
"""Names that other tools use for a variable."""


@dataclass(frozen=True, slots=True)
class TemplateFinding:
    """Something wrong with a template. A run with it is possible unless it is an error."""

    message: str
    is_error: bool


def template_findings(
    template: JudgeTemplate, folders: tuple[Path, ...], variables: Mapping[str, Any]
) -> list[TemplateFinding]:
    """The findings about a readable template; none if it cannot be parsed, which rendering reports."""
    try:
        usage = template_usage(template.name, folders)
    except TemplateError:
        return []
    findings = [*_literals(template, usage), *_rules(template, usage, variables)]
    named = {_variable(literal) for literal in usage.literals}
    return [*findings, *(finding for finding in _unshown(template, usage, named))]


def _literals(template: JudgeTemplate, usage: TemplateUsage) -> Iterator[TemplateFinding]:
    """Names in single braces, which a judge would see as they are."""
    for literal in usage.literals:
        variable = _variable(literal)
        if variable in template.hidden:
            advice = f"remove it, because this grader does not show {variable!r}"
        else:
            advice = f"write '{{{{ {variable} }}}}'"
        is_needed = variable in (*template.must_show, *template.instead)
        message = f"{template.name}: '{{{literal}}}' is not replaced: {advice}"
        yield TemplateFinding(message, is_error=is_needed and variable not in usage.shown)


def _variable(literal: str) -> str:
    return _MEANT.get(literal, literal)


def _rules(template: JudgeTemplate, usage: TemplateUsage, variables: Mapping[str, Any]) -> Iterator[TemplateFinding]:
    if RULES in usage.used and RULES not in variables:
        message = f"{template.name}: {RULES!r} is not set: verdict rules are never shown to a judge"
        yield TemplateFinding(message, is_error=True)


def _unshown(template: JudgeTemplate, usage: TemplateUsage, named: set[str]) -> Iterator[TemplateFinding]:
    """What was asked for and is not shown, without what ``named`` reports in single braces."""
    missing = [name for name in template.must_show if name not in usage.shown]
    enough = {*template.must_show, *template.instead}
    if not usage.is_complete:
        return
    if missing and not enough & usage.shown:
        if not enough & named:
            yield TemplateFinding(f"{template.name}: {_shows_nothing(template)}", is_error=True)
        return
    for name in missing:
        if name not in named:
            rest = ", ".join(shown for shown in template.show if shown != name)
            intended = f" (if that is intended: 'show: [{rest}]')" if rest else ""
            message = f"{template.name}: does not show {name!r}, so the judge never sees it{intended}"
            yield TemplateFinding(message, is_error=False)


def _shows_nothing(template: JudgeTemplate) -> str:
    first, *others = (*template.must_show, *template.instead)
    names = f"shows neither {first!r} nor {' nor '.join(map(repr, others))}" if others else f"does not show {first!r}"
    intended = " (a judge of the output alone needs 'show: [output]')" if template.show else ""
    return f"{names}, so the judge never sees what was asked{intended}"
