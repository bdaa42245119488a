"""Checks of ``models``: what each entry expands to, what it is asked to generate, limits and prices."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from visioneval.errors import Problem, SuiteError, VisionEvalError, did_you_mean
from visioneval.plugins import PROVIDERS, check_of
from visioneval.suite.cases.case import SIZE, TestCase
from visioneval.suite.cases.outputs import RunLabels
from visioneval.suite.checks.rules import Problems, SuiteContext
from visioneval.suite.entries.custom import CustomEntry
from visioneval.suite.entries.limits import Price
from visioneval.suite.entries.providers import BaseProvider, GeneratingProvider
from visioneval.suite.findings import Loc, SuiteWarning, untrusted_code_message
from visioneval.suite.loading.paths import Trust
from visioneval.suite.model import Suite
from visioneval.suite.runs import grid_problems, model_runs
from visioneval.types import ModelRun, TaskType

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
        refusals = list(_entry_problems(entry, folder, trust, loc))
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
            yield from _run_problems(entry, entry_runs, loc, folder, is_complete="cases" not in broken)
            runs.extend((index, run) for run in entry_runs)


def _entry_problems(entry: BaseProvider, folder: Path, trust: Trust, loc: Loc) -> Problems:
    if entry.needs_trust and not trust.everything:
        yield (*loc, "provider"), untrusted_code_message(entry.provider_name, getattr(entry, "options", None))
    if check := check_of(PROVIDERS, entry.provider_name, "problems"):
        yield from (((*loc, *key), message) for key, message in check(entry, folder, trust))


def _run_problems(
    entry: BaseProvider, runs: Sequence[ModelRun], loc: Loc, folder: Path, *, is_complete: bool
) -> Problems:
    if check := check_of(PROVIDERS, entry.provider_name, "run_problems"):
        yield from (((*loc, *key), message) for key, message in check(entry, folder))
    if not runs and is_complete:
        reason = f"no output is labeled {entry.label!r}" if entry.label else "no case has an existing output"
        if isinstance(entry, GeneratingProvider):
            reason = "none of its prompts applies to a case of its tasks"
        yield loc, f"this entry has no model run: {reason}"
    grid = entry.grid if isinstance(entry, GeneratingProvider) else {}
    reported: set[tuple[str, str]] = set()
    for run in runs:
        for problem in entry.param_problems(run.params):
            if problem not in reported:
                reported.add(problem)
                yield (*loc, "grid" if problem[0] in grid else "params", problem[0]), problem[1]


def run_label_problems(runs: Sequence[tuple[int, ModelRun]]) -> Problems:
    first: dict[str, int] = {}
    for (index, label), count in Counter((index, run.label) for index, run in runs).items():
        loc = ("models", index)
        if _CONTROL.search(label) or label != label.strip() or not label:
            yield loc, f"the label {label!r} must be one line of text without leading or trailing spaces"
        elif len(label) > _LONGEST_LABEL:
            yield (
                loc,
                f"the label {label[:40]!r}... is over {_LONGEST_LABEL} characters long: shorten the label or the grid",
            )
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
            yield (
                ("cases", index),
                f"no model of this suite supports {case.task_type}: add such a model or remove the case",
            )
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
        at for at, case in enumerate(suite.cases) if case.expect.size == "requested" and _measures_size(suite, case)
    }
    problems: dict[tuple[Loc, str], None] = {}
    for index, run, (_, cases) in zip(entries, context.runs, context.labels, strict=True):
        if cases:
            problems |= dict.fromkeys(_unused_params(suite, index, run, {tasks[at] for at in cases}))
        for at in sorted(videos & cases):
            if message := run.config.inputs_problem(run.params, suite.cases[at]):
                problems[("cases", at, "images"), message] = None
        problems |= dict.fromkeys(_unknown_sizes(run, sorted(sized & cases)))
    yield from problems


def _measures_size(suite: Suite, case: TestCase) -> bool:
    """Whether a grader compares the size of a case's output with the expected one."""
    graders = (grader for grader in suite.graders if grader.is_for(case))
    return any(f"{grader.key}.size" in grader.metrics(case) for grader in graders)


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


def _unused_params(suite: Suite, index: int, run: ModelRun, tasks: set[TaskType]) -> Problems:
    entry = suite.models[index]
    grid = entry.grid if isinstance(entry, GeneratingProvider) else {}
    for name, message in run.config.unused_params(run.params, tasks):
        yield ("models", index, "grid" if name in grid else "params", name), message


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
                message = (
                    f"the grader {grader.key!r} needs images, but this model has none (outputs: none): use only gecko"
                    " or rubric graders with a recorded judge"
                )
                yield ("models", index, "outputs"), message


Call = tuple[str, str | None]
"""The provider and the model of a call."""


def limit_problems(suite: Suite, runs: Sequence[ModelRun]) -> Iterator[tuple[Loc, str] | SuiteWarning]:
    """Limits and prices for a provider or model that the suite never calls, and judges priced by image alone."""
    generations: list[Call] = [(entry.provider_name, None) for entry in suite.models]
    generations += [(run.provider, _text(run.params.get("model"))) for run in runs]
    judges = {key: (judge.provider_name, _text(getattr(judge, "model", None))) for key, judge in suite.judges.items()}
    yield from _unknown_names(suite, [*generations, *judges.values()])
    yield from _image_prices(suite, generations, judges)


def _text(model: Any) -> str | None:
    return str(model) if model else None


def _unknown_names(suite: Suite, calls: Sequence[Call]) -> Iterator[tuple[Loc, str]]:
    """Names that are probably misspelled."""
    providers, models = {provider for provider, _ in calls}, {model for _, model in calls if model}
    both = {f"{provider}:{model}" for provider, model in calls if model}
    for key, entries, allowed in (
        ("limits", suite.limits, providers | both),
        ("prices", suite.prices, providers | both | models),
    ):
        for name in entries:
            if name not in allowed:
                yield (key, name), f"{key}: the suite calls no provider or model {name!r}{did_you_mean(name, allowed)}"


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
