"""Checks of cases: IDs, prompts and the suite's ``prompts``, turns, and cases that use another case's images."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from visioneval.errors import TemplateError, did_you_mean
from visioneval.suite.cases.case import TestCase
from visioneval.suite.cases.prompts import PROMPT_PART, RESERVED, PromptEntry, context, sent_prompt
from visioneval.suite.checks.rules import Problems, SuiteContext, empty_scope
from visioneval.suite.entries.providers import GeneratingProvider
from visioneval.suite.findings import Loc, SuiteWarning
from visioneval.suite.model import Suite
from visioneval.suite.turns import chain_of, first_turn, turn_id
from visioneval.templates.render import render
from visioneval.types import ModelRun, TaskType

CaseTexts = dict[str, tuple[str, str | None]]
"""The prompt and the criteria of each case as rendered, by id; cases whose templates fail are left out."""


def id_problems(suite: Suite) -> Problems:
    """IDs that are repeated. A case and its turns have one name."""
    first: dict[str, str] = {}
    before = ""
    for index, case in enumerate(suite.cases):
        name = chain_of(case.id)
        if case.previous_turn is None:
            if other := first.get(name.lower()):
                same = f"two cases have the ID {name!r}"
                close = f"the IDs {other!r} and {name!r} differ only in upper and lower case"
                yield ("cases", index, "id"), same if other == name else close
            first.setdefault(name.lower(), name)
        elif case.previous_turn != before:
            yield ("cases", index, "id"), f"the turn {case.id!r} does not follow {case.previous_turn!r}"
        before = case.id


def text_problems(suite: Suite, texts: CaseTexts, *, known_models: bool) -> Problems:
    """Prompts and criteria that cannot be rendered, or are empty. Adds the others to ``texts``."""
    if known_models:
        yield from prompt_problems(suite)
    for name in RESERVED:
        if name in suite.vars:
            yield ("vars", name, "[key]"), f"the name {name!r} is reserved for templates: rename the variable"
    for index, case in enumerate(suite.cases):
        values = context(case, suite.vars)
        rendered: dict[str, str | None] = {}
        for key, text in (("prompt", case.prompt), ("criteria", case.criteria)):
            try:
                rendered[key] = render(text, values) if text and "{" in text else text
            except TemplateError as error:
                yield ("cases", index, key), str(error)
        prompt = rendered.get("prompt")
        if case.prompt and prompt is not None and not prompt.strip():
            yield ("cases", index, "prompt"), "the prompt is empty after rendering"
        if prompt is not None and "criteria" in rendered:
            texts[case.id] = prompt, rendered["criteria"]


def prompt_problems(suite: Suite) -> Problems:
    """Cases without a prompt that some model generates or reads images for."""
    for index, case in enumerate(suite.cases):
        if not case.prompt and any(entry.has_outputs and entry.does(case.task_type) for entry in suite.models):
            is_written = "prompt" in case.model_fields_set
            loc: Loc = ("cases", index, "prompt") if is_written else ("cases", index)
            yield loc, "prompt: must not be empty" if is_written else "the key 'prompt' is missing"


_PARAMETER = PROMPT_PART.strip(",=")
_SINGLE_BRACES = re.compile(r"(?<!\{)\{\s?(?:metadata\.)?(\w+)\s?\}(?!\})")
_LITERAL = re.compile(r"(?<!\{)\{\s?((?:case|metadata|expect)\.[\w.]+|prompt)\s?\}(?!\})")


def prompt_entry_problems(suite: Suite, texts: CaseTexts) -> Iterator[tuple[Loc, str] | SuiteWarning]:
    """Yields duplicate labels, unusable templates, and entries of ``models`` that name no prompt of the suite."""
    labels = [entry.label for entry in suite.prompts]
    for index, entry in enumerate(suite.prompts):
        if entry.label in labels[:index]:
            yield ("prompts", index, "label"), f"two prompts are labeled {entry.label!r}"
        if entry.when is not None:
            messages = empty_scope(SuiteContext(suite, ()), entry.when)
            yield from ((("prompts", index, "when"), message) for message in messages)
        yield from _template_problems(entry, suite, texts, ("prompts", index, "template"))
    for index, model in enumerate(suite.models):
        named = (model.prompts or ()) if isinstance(model, GeneratingProvider) else ()
        for position, label in enumerate(named):
            if label not in labels:
                loc: Loc = ("models", index, "prompts", position)
                yield loc, f"the suite has no prompt {label!r}{did_you_mean(label, labels)}"
        if suite.prompts and isinstance(model, GeneratingProvider) and _PARAMETER in model.grid:
            message = f"the grid's {_PARAMETER!r} and the suite's 'prompts' would set the same part of a label"
            yield ("models", index, "grid", _PARAMETER), f"{message}: move these values to 'prompts'"


def _template_problems(
    entry: PromptEntry, suite: Suite, texts: CaseTexts, loc: Loc
) -> Iterator[tuple[Loc, str] | SuiteWarning]:
    """What is wrong with a template, for the first case that shows it."""
    if literal := _LITERAL.search(entry.template):
        name = literal[1] if "." in literal[1] else f"case.{literal[1]}"
        yield loc, f"{literal[0]!r} is not replaced: write '{{{{ {name} }}}}'"
        return
    sent: dict[str, str] = {}
    for case in _prompted_cases(entry, suite):
        if case.id not in texts:
            continue
        prompt = texts[case.id][0]
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


def _prompted_cases(entry: PromptEntry, suite: Suite) -> Iterator[TestCase]:
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
        elif not any(_prompted_cases(entry, suite)):
            yield ("prompts", index, "when"), "no case matches all conditions, so no model run has this prompt"


OWN_IMAGES = ("images", "masks", "outputs")


def output_of_problems(cases: Sequence[TestCase]) -> Iterator[tuple[Loc, str]]:
    """Everything that can be wrong with ``output_of``."""
    by_id = {case.id: case for case in cases}
    for index, case in enumerate(cases):
        if case.output_of is not None:
            for key, message in _output_of(case, by_id):
                yield ("cases", index, key), message


def _output_of(case: TestCase, by_id: Mapping[str, TestCase]) -> Iterator[tuple[str, str]]:
    name = str(case.output_of)
    source = by_id.get(name)
    if source is None and turn_id(name, 1) in by_id:
        yield "output_of", f"{name!r} has turns: name one of them, such as {turn_id(name, 1)!r}"
    elif source is None:
        yield "output_of", f"there is no case {name!r}{did_you_mean(name, by_id)}"
    elif source is case:
        yield "output_of", f"{name!r} is this case: name another case"
    elif source.output_of is not None:
        yield (
            "output_of",
            f"{name!r} generates no image because it has 'output_of' too: name the case that generates the image",
        )
    elif source.task_type != case.task_type:
        yield (
            "task",
            f"the image comes from {name!r}, whose task is {source.task_type}: use the same task or remove 'task'",
        )
    for key in OWN_IMAGES:
        if getattr(case, key):
            yield key, f"this case uses the image of {name!r}: remove {key!r}"
    if case.expect.refusal:
        yield "expect", f"this case generates nothing, so no model can refuse it: move 'refusal' to {name!r}"


def turn_problems(suite: Suite, runs: Sequence[tuple[int, ModelRun]]) -> Iterator[tuple[Loc, str]]:
    """Turns without one output to edit: of a case that is no edit, after a refusal, or of several outputs per call.

    ``runs`` are the model runs, each with the index of its entry.
    """
    edited = {case.previous_turn for case in suite.cases} - {None}
    for index, case in enumerate(suite.cases):
        if "/" in case.id and case.task_type != TaskType.IMAGE_EDITING:
            yield ("cases", index), f"only an edit has turns, but the task of {case.id!r} is {case.task_type}"
        if case.id in edited and case.expect.refusal:
            message = "the next turn edits the output of this one: only the last turn can expect a refusal"
            yield ("cases", index, "expect", "refusal"), message
    for index, run in runs if edited else ():
        outputs, entry = run.config.outputs_per_call(dict(run.params)), suite.models[index]
        if outputs > 1 and entry.does(TaskType.IMAGE_EDITING):
            key = "grid" if isinstance(entry, GeneratingProvider) and "n" in entry.grid else "params"
            message = f"a turn edits one output, but a call of {run.label!r} generates {outputs}"
            yield ("models", index, key, "n"), f"{message}: use 'samples' instead of 'n'"
