"""Checks that the templates of judges show what was asked, and that they use no variable that a judge must not see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from visioneval.errors import TemplateError
from visioneval.suite.entries.judge_prompt import JudgeTemplate
from visioneval.templates.render import Templates
from visioneval.templates.usage import TemplateUsage, template_usage

RULES = "rules"
_MEANT = {"image_description": "prompt"}
"""Names that other tools use for a variable."""


@dataclass(frozen=True, slots=True)
class TemplateFinding:
    """Something wrong with a template. A run with it is possible unless it is an error."""

    message: str
    is_error: bool


@dataclass(slots=True)
class ShownVariables:
    """What a template shows of a case in any of its calls."""

    has_value: set[str] = field(default_factory=set)
    shown: set[str] = field(default_factory=set)

    @property
    def unshown(self) -> set[str]:
        """Variables with a value that the judge of the case never sees."""
        return self.has_value - self.shown


def template_findings(
    template: JudgeTemplate,
    templates: Templates,
    variables: Mapping[str, Any],
    cases: Mapping[str, ShownVariables],
) -> list[TemplateFinding]:
    """The findings about a readable template; none if it cannot be parsed, which rendering reports.

    ``cases`` are those that it was rendered for.
    """
    try:
        usage = template_usage(template.name, templates)
    except TemplateError:
        return []
    return [
        *_literals(template, usage, cases),
        *_rules(template, usage, variables),
        *_unshown(template, cases, {_variable(literal) for literal in usage.literals}),
    ]


def _literals(
    template: JudgeTemplate, usage: TemplateUsage, cases: Mapping[str, ShownVariables]
) -> Iterator[TemplateFinding]:
    """Names in single braces, which a judge would see as they are."""
    for literal in usage.literals:
        variable = _variable(literal)
        if variable in template.hidden:
            advice = f"remove it, because this grader does not show {variable!r}"
        else:
            advice = f"write '{{{{ {variable} }}}}'"
        is_needed = variable in (*template.must_show, *template.instead)
        is_missing = any(variable in case.unshown for case in cases.values())
        message = f"{template.name}: '{{{literal}}}' is not replaced: {advice}"
        yield TemplateFinding(message, is_error=is_needed and is_missing)


def _variable(literal: str) -> str:
    return _MEANT.get(literal, literal)


def _rules(template: JudgeTemplate, usage: TemplateUsage, variables: Mapping[str, Any]) -> Iterator[TemplateFinding]:
    if RULES in usage.used and RULES not in variables:
        message = f"{template.name}: {RULES!r} is not set: verdict rules are never shown to a judge"
        yield TemplateFinding(message, is_error=True)


def _unshown(
    template: JudgeTemplate, cases: Mapping[str, ShownVariables], named: set[str]
) -> Iterator[TemplateFinding]:
    """What was asked for and is not shown, without what ``named`` reports in single braces.

    A message names a case only if other cases are not affected.
    """
    enough = {*template.must_show, *template.instead}
    asked = [case for case, variables in cases.items() if variables.has_value & enough]
    blind = [case for case in asked if not cases[case].shown & enough]
    if template.must_show and blind:
        if not enough & named:
            yield TemplateFinding(f"{template.name}: {_shows_nothing(template)}{_of(blind, asked)}", is_error=True)
        return
    for name in template.must_show:
        asked = [case for case, variables in cases.items() if name in variables.has_value]
        missing = [case for case in asked if name in cases[case].unshown]
        if missing and name not in named:
            rest = ", ".join(shown for shown in template.show if shown != name)
            intended = f" (if that is intended: 'show: [{rest}]')" if rest else ""
            message = f"{template.name}: does not show {name!r}, so the judge never sees it{intended}"
            yield TemplateFinding(f"{message}{_of(missing, asked)}", is_error=False)
    for name in template.ids:
        if missing := [case for case, variables in cases.items() if name in variables.unshown]:
            variable, _, key = name.partition(".")
            message = (
                f"{template.name}: does not show the {key!r} of all {variable}, which the judge's answers must name"
            )
            yield TemplateFinding(f"{message}{_of(missing, list(cases))}", is_error=True)


def _of(affected: Sequence[str], cases: Sequence[str]) -> str:
    """The first affected case, unless all cases are affected."""
    return f" (case {affected[0]!r})" if len(affected) < len(cases) else ""


def _shows_nothing(template: JudgeTemplate) -> str:
    first, *others = (*template.must_show, *template.instead)
    names = f"shows neither {first!r} nor {' nor '.join(map(repr, others))}" if others else f"does not show {first!r}"
    intended = " (a judge of the output alone needs 'show: [output]')" if template.can_hide_all else ""
    return f"{names}, so the judge never sees what was asked{intended}"
