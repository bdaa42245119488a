"""Checks of what is generated: cases and their prompts, the suite's ``prompts``, ``models``, limits and prices."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from visioneval.errors import Problem, SuiteError, TemplateError, VisionEvalError, did_you_mean
from visioneval.plugins import PROVIDERS, check_of
from visioneval.suite.case import RESERVED, SIZE, TestCase, context
from visioneval.suite.checks.rules import Problems, SuiteContext, empty_scope
from visioneval.suite.entries import CustomEntry
from visioneval.suite.entries.providers import BaseProvider, GeneratingProvider, Price
from visioneval.suite.files import RunLabels, Trust
from visioneval.suite.filters import chain_of, first_turn, turn_id
from visioneval.suite.messages import Loc, SuiteWarning, untrusted_code_message
from visioneval.suite.model import Suite
from visioneval.suite.prompts import PROMPT_PART, PromptEntry, sent_prompt
from visioneval.suite.runs import grid_problems, model_runs
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
    """Prompts that are missing although a model generates or reads images for their case, and prompts and criteria that
    cannot be rendered, or are empty. Adds the others to ``texts``.
    """
    for index, case in enumerate(suite.cases if known_models else ()):
        if not case.prompt and any(entry.has_outputs and entry.does(case.task_type) for entry in suite.models):
            is_written = "prompt" in case.model_fields_set
            loc: Loc = ("cases", index, "prompt") if is_written else ("cases", index)
            yield loc, "prompt: must not be empty" if is_written else "the key 'prompt' is missing"
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
            for message in empty_scope(SuiteContext(suite, ()), entry.when):
                yield ("prompts", index, "when"), message
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


def brace_warnings(suite: Suite) -> Problems:
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


def prompt_warnings(suite: Suite) -> Problems:
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


def output_of_problems(cases: Sequence[TestCase]) -> Problems:
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
        reason = f"{name!r} generates no image because it has 'output_of' too"
        yield "output_of", f"{reason}: name the case that generates the image"
    elif source.task_type != case.task_type:
        reason = f"the image comes from {name!r}, whose task is {source.task_type}"
        yield "task", f"{reason}: use the same task or remove 'task'"
    for key in ("images", "masks", "outputs"):
        if getattr(case, key):
            yield key, f"this case uses the image of {name!r}: remove {key!r}"
    if case.expect.refusal:
        yield "expect", f"this case generates nothing, so no model can refuse it: move 'refusal' to {name!r}"


def turn_problems(suite: Suite, runs: Sequence[tuple[int, ModelRun]]) -> Problems:
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


_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LONGEST_LABEL = 200


def expand_models(
    suite: Suite,
    folder: Path,
    trust: Trust,
    run_labels: RunLabels,
    broken: frozenset[str],
    runs: list[tuple[int, ModelRun]],
) -> Iterator[tuple[Loc, str] | Problem]:
    """Problems of the entries of ``models``. Adds their model runs to ``runs``, unless there are too many."""
    too_many = list(grid_problems(suite))
    yield from too_many
    for index, entry in enumerate(suite.models):
        loc = ("models", index)
        refusals = []
        if entry.needs_trust and not trust.everything:
            message = untrusted_code_message(entry.provider_name, getattr(entry, "options", None))
            refusals.append(((*loc, "provider"), message))
        if check := check_of(PROVIDERS, entry.provider_name, "problems"):
            refusals += [((*loc, *key), message) for key, message in check(entry, folder, trust)]
        yield from refusals
        if refusals or too_many:
            continue
        try:
            entry_runs = model_runs(entry, suite, folder, run_labels)
        except SuiteError as error:
            yield from error.problems
        except VisionEvalError as error:
            key, message = entry.source_problem(str(error))
            yield (*loc, *key), message
        else:
            if check := check_of(PROVIDERS, entry.provider_name, "run_problems"):
                yield from (((*loc, *key), message) for key, message in check(entry, folder))
            yield from _run_problems(entry, entry_runs, loc, is_complete="cases" not in broken)
            runs.extend((index, run) for run in entry_runs)


def _run_problems(entry: BaseProvider, runs: Sequence[ModelRun], loc: Loc, *, is_complete: bool) -> Problems:
    if not runs and is_complete:
        reason = f"no output is labeled {entry.label!r}" if entry.label else "no case has an existing output"
        if isinstance(entry, GeneratingProvider):
            reason = "none of its prompts applies to a case of its tasks"
        yield loc, f"this entry has no model run: {reason}"
    grid = getattr(entry, "grid", {})
    for name, message in dict.fromkeys(problem for run in runs for problem in entry.param_problems(run.params)):
        yield (*loc, "grid" if name in grid else "params", name), message


def run_label_problems(runs: Sequence[tuple[int, ModelRun]]) -> Problems:
    first: dict[str, int] = {}
    for (index, label), count in Counter((index, run.label) for index, run in runs).items():
        loc = ("models", index)
        if _CONTROL.search(label) or label != label.strip() or not label:
            yield loc, f"the label {label!r} must be one line of text without leading or trailing spaces"
        elif len(label) > _LONGEST_LABEL:
            message = f"the label {label[:40]!r}... is over {_LONGEST_LABEL} characters long"
            yield loc, f"{message}: shorten the label or the grid"
        elif label in first:
            yield loc, f"two model runs are labeled {label!r}: set a different 'label' for each entry"
        elif count > 1:
            yield loc, f"two model runs are labeled {label!r}: remove the duplicate value from the grid"
        first.setdefault(label, index)


def task_problems(view: SuiteContext) -> Problems:
    is_supported = {task: any(run.config.does(task) for run in view.runs) for task in TaskType}
    covered = frozenset[int]().union(*(cases for _, cases in view.labels))
    for index, entry in enumerate(view.suite.models):
        if impossible := [task for task in entry.tasks if not entry.does(task)]:
            yield ("models", index, "tasks"), f"this provider does not support {', '.join(impossible)}"
        elif not any(entry.does(task) for task in {case.task_type for case in view.suite.cases}):
            yield ("models", index), "this model supports no task of this suite's cases"
    for index, case in enumerate(view.suite.cases):
        if not is_supported[case.task_type]:
            message = f"no model of this suite supports {case.task_type}"
            yield ("cases", index), f"{message}: add such a model or remove the case"
        elif index not in covered and case.output_of is None:
            yield ("cases", index), "no entry of 'prompts' applies to this case: add one without 'when'"
        if case.task_type == TaskType.IMAGE_EDITING and not case.edits_image and not case.output_of:
            yield ("cases", index), "an editing case needs 'images': the first is the base image"


def generation_problems(context: SuiteContext, entries: Sequence[int]) -> Problems:
    """Yields parameters that do nothing, and images that a model does not take. ``entries`` has the index of each run's
    entry of ``models``.
    """
    suite = context.suite
    tasks = [case.task_type for case in suite.cases]
    with_images = (index for index, case in enumerate(suite.cases) if case.images)
    videos = {index for index in with_images if tasks[index] is TaskType.VIDEO_GENERATION}
    sized = {
        at
        for at, case in enumerate(suite.cases)
        if case.expect.size == "requested"
        and any(grader.is_for(case) and f"{grader.key}.size" in grader.metrics(case) for grader in suite.graders)
    }
    problems: dict[tuple[Loc, str], None] = {}
    for index, run, (_, cases) in zip(entries, context.runs, context.labels, strict=True):
        grid = getattr(suite.models[index], "grid", {})
        for name, message in run.config.unused_params(run.params, {tasks[at] for at in cases}) if cases else ():
            problems[("models", index, "grid" if name in grid else "params", name), message] = None
        for at in sorted(videos & cases):
            if message := run.config.inputs_problem(run.params, suite.cases[at]):
                problems[("cases", at, "images"), message] = None
        problems |= dict.fromkeys(_unknown_sizes(run, sorted(sized & cases)))
    yield from problems


def _unknown_sizes(run: ModelRun, cases: Sequence[int]) -> Problems:
    """Cases that expect the size that was requested, where a model run requests none.

    The mock has a size of its own, and a class may report one.
    """
    size = run.params.get("size")
    is_known = isinstance(size, str) and SIZE.fullmatch(size)
    if run.config.stand_in or isinstance(run.config, CustomEntry) or is_known:
        return
    requests = "no size" if size is None else f"the size {size!r:.60}"
    for at in cases:
        message = f"expect.size is 'requested', but the model run {run.label!r} requests {requests}"
        yield ("cases", at, "expect", "size"), f"{message}: write the size, as in 1024x1536"


def no_image_problems(context: SuiteContext) -> Problems:
    """Graders that need an image where a model run has none."""
    suite = context.suite
    without_images = [run for run in context.runs if not run.config.has_outputs]
    for index, entry in enumerate(suite.models):
        if entry.has_outputs:
            continue
        for grader in suite.graders:
            judges = [suite.judges.get(name) for name in grader.judge_names]
            cases = [case for case in suite.cases if any(run.config.does(case.task_type) for run in without_images)]
            is_recorded = bool(judges) and all(judge is not None and judge.is_recorded for judge in judges)
            reads_records = grader.grades_records and is_recorded
            if not reads_records and any(grader.is_for(case) and grader.metrics(case) for case in cases):
                message = f"the grader {grader.key!r} needs images, but this model has none (outputs: none)"
                yield ("models", index, "outputs"), f"{message}: use only gecko or rubric graders with a recorded judge"


Call = tuple[str, str | None]
"""The provider and the model of a call."""


def limit_problems(suite: Suite, runs: Sequence[ModelRun]) -> Iterator[tuple[Loc, str] | SuiteWarning]:
    """Limits and prices for a provider or model that the suite never calls, and judges priced by image alone."""
    generations: list[Call] = [(entry.provider_name, None) for entry in suite.models]
    generations += [(run.provider, _text(run.params.get("model"))) for run in runs]
    judges = {key: (judge.provider_name, _text(getattr(judge, "model", None))) for key, judge in suite.judges.items()}
    calls = [*generations, *judges.values()]
    providers, models = {provider for provider, _ in calls}, {model for _, model in calls if model}
    both = {f"{provider}:{model}" for provider, model in calls if model}
    for key, entries, allowed in (
        ("limits", suite.limits, providers | both),
        ("prices", suite.prices, providers | both | models),
    ):
        for name in entries:
            if name not in allowed:
                yield (key, name), f"{key}: the suite calls no provider or model {name!r}{did_you_mean(name, allowed)}"
    yield from _image_prices(suite, generations, judges)


def _text(model: Any) -> str | None:
    return str(model) if model else None


def _image_prices(
    suite: Suite, generations: Sequence[Call], judges: Mapping[str, Call]
) -> Iterator[tuple[Loc, str] | SuiteWarning]:
    """Prices per image or second alone that apply to a judge, which generates none: a budget would not count its calls.

    Only a warning if the price is for a model run, too.
    """
    generation_names = {name for call in generations for name in _price_names(call)}
    reported: set[str] = set()
    for key, judge in suite.judges.items():
        names = _price_names(judges[key])
        name = next((name for name in names if name in suite.prices), None)
        if judge.is_free or name is None or name in reported or not _is_per_output_alone(suite.prices[name]):
            continue
        reported.add(name)
        outputs, unit = ("images", "per_image") if suite.prices[name].per_image else ("videos", "per_second")
        message = f"the judge {key!r} generates no {outputs}, so {unit} prices its calls at 0"
        if name in generation_names:
            advice = "add per_call" if name == names[0] else f"add a price for {names[0]!r}"
            yield SuiteWarning(("prices", name), f"{message}: {advice}")
        else:
            yield ("prices", name), f"{message}: set per_call, or a price per token"


def _price_names(call: Call) -> list[str]:
    """The names under which ``prices`` may price a call, in order of precedence."""
    provider, model = call
    return [f"{provider}:{model}", model, provider] if model else [provider]


def _is_per_output_alone(price: Price) -> bool:
    return bool(price.per_image or price.per_second) and all(
        value is None for value in (price.per_call, price.input_per_million, price.output_per_million)
    )
