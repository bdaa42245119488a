"""Checks of the suite's ``prompts``: labels, templates, and the cases and model runs that they are for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress

from visioneval.errors import TemplateError, did_you_mean
from visioneval.suite.cases.case import TestCase
from visioneval.suite.cases.prompts import rendered, sent_prompt
from visioneval.suite.checks.rules import SuiteContext, empty_scope
from visioneval.suite.entries.prompts import PROMPT_PART, PromptEntry
from visioneval.suite.entries.providers import BaseProvider, GeneratingProvider
from visioneval.suite.loading.messages import Loc, SuiteWarning
from visioneval.suite.model import Suite
from visioneval.suite.turns import first_turn

_PARAMETER = PROMPT_PART.strip(",=")
_SINGLE_BRACES = re.compile(r"(?<!\{)\{\s?(?:metadata\.)?(\w+)\s?\}(?!\})")
_LITERAL = re.compile(r"(?<!\{)\{\s?((?:case|metadata|expect)\.[\w.]+|prompt)\s?\}(?!\})")


def prompt_entry_problems(suite: Suite) -> Iterator[tuple[Loc, str] | SuiteWarning]:
    """Yields duplicate labels, unusable templates, and entries of ``models`` that name no prompt of the suite."""
    labels = [entry.label for entry in suite.prompts]
    own_prompts = _own_prompts(suite) if suite.prompts else {}
    for index, entry in enumerate(suite.prompts):
        if entry.label in labels[:index]:
            yield ("prompts", index, "label"), f"two prompts are labeled {entry.label!r}"
        if entry.when is not None:
            messages = empty_scope(SuiteContext(suite, ()), entry.when)
            yield from ((("prompts", index, "when"), message) for message in messages)
        yield from _template_problems(entry, suite, own_prompts, ("prompts", index, "template"))
    for index, model in enumerate(suite.models):
        for position, label in enumerate(_named(model)):
            if label not in labels:
                loc: Loc = ("models", index, "prompts", position)
                yield loc, f"the suite has no prompt {label!r}{did_you_mean(label, labels)}"
        if suite.prompts and isinstance(model, GeneratingProvider) and _PARAMETER in model.grid:
            message = f"the grid's {_PARAMETER!r} and the suite's 'prompts' would set the same part of a label"
            yield ("models", index, "grid", _PARAMETER), f"{message}: move these values to 'prompts'"


def _named(model: BaseProvider) -> tuple[str, ...]:
    return (model.prompts or ()) if isinstance(model, GeneratingProvider) else ()


def _own_prompts(suite: Suite) -> dict[str, str]:
    """The cases' own prompts, as rendered, by id. Problems with these are reported at the case."""
    prompts: dict[str, str] = {}
    for case in suite.cases:
        with suppress(TemplateError):
            prompts[case.id], _ = rendered(case, suite.vars)
    return prompts


def _template_problems(
    entry: PromptEntry, suite: Suite, own_prompts: Mapping[str, str], loc: Loc
) -> Iterator[tuple[Loc, str] | SuiteWarning]:
    """What is wrong with a template, for the first case that shows it."""
    if literal := _LITERAL.search(entry.template):
        name = literal[1] if "." in literal[1] else f"case.{literal[1]}"
        yield loc, f"{literal[0]!r} is not replaced: write '{{{{ {name} }}}}'"
        return
    sent: dict[str, str] = {}
    for case in _cases(entry, suite):
        if (prompt := own_prompts.get(case.id)) is None:
            continue
        try:
            sent[prompt] = sent_prompt(entry.template, case, prompt, suite.vars)
        except TemplateError as error:
            yield loc, f"{error} (case {case.id!r})"
            return
        if prompt and not sent[prompt].strip():
            yield loc, f"the prompt of the case {case.id!r} is empty after rendering"
            return
    if len(sent) > 1 == len(set(sent.values())):
        message = f"all {len(sent):,} prompts are the same when rendered"
        yield SuiteWarning(loc, f"{message}: write '{{{{ case.prompt }}}}' for a case's own prompt")


def _cases(entry: PromptEntry, suite: Suite) -> Iterator[TestCase]:
    """The cases for which a template is rendered."""
    generating = {case.id: case for case in suite.cases if case.output_of is None}
    for case in suite.cases:
        source = generating.get(first_turn(case.output_of or case.id))
        if source is not None and entry.is_for(source) and (case.output_of is None or entry.graded_as == "sent"):
            yield case


def brace_warnings(suite: Suite) -> Iterator[tuple[Loc, str]]:
    """Yields prompts of cases that name a variable in single braces, where each name is first."""
    reported: set[str] = set()
    for index, case in enumerate(suite.cases):
        if "{" not in case.prompt:
            continue
        replaced = {name: name for name in suite.vars} | {name: f"metadata.{name}" for name in case.metadata}
        for literal in _SINGLE_BRACES.finditer(case.prompt):
            name = replaced.get(literal[1])
            if name is not None and name not in reported:
                reported.add(name)
                yield ("cases", index, "prompt"), f"{literal[0]!r} is not replaced: write '{{{{ {name} }}}}'"


def prompt_warnings(suite: Suite) -> Iterator[tuple[Loc, str]]:
    """Yields prompts that no model is sent."""
    used = {prompt.label for model in suite.models for prompt in suite.prompts_of(model)}
    if suite.prompts and not used:
        yield ("prompts",), "no model of this suite generates, so these prompts are never sent"
        return
    for index, entry in enumerate(suite.prompts):
        if entry.label not in used:
            yield ("prompts", index), f"no model uses the prompt {entry.label!r}"
        elif not any(_cases(entry, suite)):
            yield ("prompts", index, "when"), "no case matches all conditions, so no model run has this prompt"
