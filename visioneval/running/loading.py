"""The first two steps of a run: load a suite, from its file or from a run, and expand it into a plan."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from visioneval.errors import Problem, SuiteError, UsageError
from visioneval.installation import builtin
from visioneval.media.urls import is_url, public_address
from visioneval.records.model import RunInfo, read_info
from visioneval.records.outputs import existing_outputs
from visioneval.records.stores.lookup import find_run
from visioneval.running.plan import Plan
from visioneval.running.sanitize import sanitizer_for
from visioneval.settings import RUNS
from visioneval.suite.entries.providers import BaseProvider
from visioneval.suite.files import split_run
from visioneval.suite.load import LoadedSuite, load_suite, recheck_suite
from visioneval.suite.messages import WARNING
from visioneval.suite.model import template_folders
from visioneval.suite.runs import Selection, cell_problem, check_selection, model_runs, selected
from visioneval.templates.render import Templates
from visioneval.types import ModelRun

MAX_MISSING = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteOptions:
    """Selection, overrides and trust for a suite, and the folder of runs."""

    selection: Selection = field(default_factory=Selection)
    variables: Mapping[str, str] = field(default_factory=dict)
    """Override the suite's ``vars``."""
    judges: Mapping[str, str] = field(default_factory=dict)
    """Overrides: ``PROVIDER:MODEL`` by the name of a judge of the suite."""
    trust: bool = False
    """Whether the suite may run its own code and read files outside its folder."""
    runs: Path = RUNS
    """The folder of runs."""


def load_plan(path: Path, options: SuiteOptions, *, samples: int | None = None) -> Plan:
    """Loads and expands a suite, with ``samples`` instead of any other number of them.

    Raises ``SuiteError`` and ``UsageError``.
    """
    loaded = load_suite(
        path,
        trust=options.trust,
        variables=options.variables,
        judges=options.judges,
        run_labels=run_labels(options.runs),
    )
    return expand(loaded, options, samples=samples, suite_samples=loaded.suite.samples)


def load_plans(paths: Sequence[Path], options: SuiteOptions) -> list[Plan]:
    """Loads and expands several suites. Raises one ``SuiteError`` with the problems of all."""
    plans: list[Plan] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            plans.append(load_plan(path, options))
        except SuiteError as error:
            problems.extend(error.problems)
    if problems:
        raise SuiteError(problems)
    return plans


@dataclass(frozen=True, slots=True)
class MissingOutputs:
    """A problem for each entry of ``models`` with outputs that do not exist: errors of the suite, or of their cells."""

    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


def missing_outputs(plan: Plan, options: SuiteOptions) -> MissingOutputs:
    """The outputs that do not exist, among those that the plan's model runs read.

    In a dataset and in another run, which may be large and of other people, they are errors of their cells.
    """
    reading = replace(plan, runs=tuple(run for run in plan.runs if run.config.reads_outputs))
    errors: dict[str, list[str]] = {}
    warnings: dict[str, list[str]] = {}
    for call in reading.calls():
        if (name := plan.missing_output(call)) is not None:
            is_of_cell = "row" in call.params or call.run.config.may_lack_outputs
            (warnings if is_of_cell else errors).setdefault(call.run.label, []).append(name)
    if not errors and not warnings:
        return MissingOutputs()
    text = "outputs that do not exist"
    return MissingOutputs(
        tuple(_problems_by_entry(plan, errors, options, text)),
        tuple(_problems_by_entry(plan, warnings, options, f"{WARNING}{text}, whose cells are errors")),
    )


def _problems_by_entry(
    plan: Plan, missing: Mapping[str, Sequence[str]], options: SuiteOptions, text: str
) -> Iterator[Problem]:
    loaded = plan.loaded
    position = loaded.positions()
    for index, entry in enumerate(loaded.suite.models):
        runs = model_runs(entry, loaded.suite, loaded.folder, run_labels(options.runs))
        names = [name for run in runs for name in missing.get(run.label, ())]
        if names:
            more = f" and {len(names) - MAX_MISSING:,} more" if len(names) > MAX_MISSING else ""
            yield Problem(*position(("models", index)), f"{text}: {', '.join(names[:MAX_MISSING])}{more}")


def load_stored_plan(folder: Path, options: SuiteOptions, *, samples: int | None = None) -> Plan:
    """Checks and expands the suite stored in a run, as ``load_plan`` does."""
    info = read_info(folder)
    check_secrets(folder, info.hidden_vars, options)
    loaded = recheck_suite(
        info.suite,
        Path(info.suite_path),
        source_sha256=info.source_sha256,
        trust=options.trust,
        variables=options.variables,
        judges=options.judges,
        hidden=info.hidden_vars,
        run_labels=run_labels(options.runs),
    )
    # the stored suite has the number that was used, so a flag hides the suite's own
    suite_samples = info.suite.samples if info.selection.samples is None else None
    return expand(loaded, options, samples=samples, suite_samples=suite_samples)


def secrets_to_give(info: RunInfo, plan: Plan) -> list[str]:
    """The secret variables of a run that the plan's suite also has, but without a secret value."""
    sanitizer, variables = sanitizer_for(plan), plan.suite.vars
    return [name for name in info.hidden_vars if name in variables and not sanitizer.hides(variables[name])]


def check_secrets(folder: Path, names: Iterable[str], options: SuiteOptions) -> None:
    """Raises ``UsageError`` if a secret variable of a run is not given again: no file contains its value."""
    missing = [name for name in names if name not in options.variables]
    if missing:
        flags = " ".join(f"--var {name}=VALUE" for name in missing)
        raise UsageError(f"{folder}: a run does not store the values of secret variables: add {flags}")


def check_same_suite(folder: Path, plan: Plan, options: SuiteOptions) -> None:
    """Raises ``UsageError`` if the run belongs to another suite or lacks its secrets: all its cells would be stale."""
    info = read_info(folder)
    check_secrets(folder, secrets_to_give(info, plan), options)
    if info.suite.name != plan.suite.name:
        raise UsageError(
            f"{folder}: is a run of the suite {info.suite.name!r}, not of {plan.suite.name!r}:"
            " --resume needs the same suite"
        )


MAX_REPORTED = 20


def expand(
    loaded: LoadedSuite, options: SuiteOptions, *, samples: int | None = None, suite_samples: int | None = None
) -> Plan:
    """The plan for a checked suite, restricted by the selection flags.

    ``samples`` overrides the number of the selection. ``suite_samples`` is the suite's own number, if it
    is known: that number in the selection replaces nothing. Raises ``UsageError`` for a flag that matches nothing, and
    if nothing is left.
    """
    selection, runs_root = options.selection, options.runs
    if selection.samples == suite_samples:
        selection = selection.model_copy(update={"samples": None})
    suite, folder = loaded.suite, loaded.folder
    labels_of = run_labels(runs_root)
    entry_runs = [
        (index, _pinned(run, runs_root))
        for index, entry in enumerate(suite.models)
        for run in model_runs(entry, suite, folder, labels_of)
    ]
    runs = [run for _, run in entry_runs]
    samples = samples or selection.samples or suite.samples
    whole = suite.model_copy(update={"models": tuple(run.config for run in runs), "samples": samples})
    check_selection(whole, selection)
    resolved = selected(whole, selection)
    labels = {entry.label for entry in resolved.models}
    runs = [run for run in runs if run.label in labels]
    if problem := cell_problem(resolved, runs):
        raise UsageError(f"--samples {resolved.samples}: {problem}")
    finished = {run.label: existing_outputs(run, suite, folder, runs_root) for run in runs if run.config.reads_outputs}
    templates = Templates(template_folders(suite, folder.absolute(), builtin("prompts")))
    plan = Plan(resolved, loaded, tuple(runs), finished, whole_suite=whole, selection=selection, templates=templates)
    if not loaded.trust.everything:
        _check_output_access(plan, {run.label: index for index, run in entry_runs})
    return plan


def run_labels(root: Path) -> Callable[[str], list[str]]:
    """A function that returns the labels of the model runs of another run in ``root``."""

    def labels(run: str) -> list[str]:
        info = read_info(find_run(run, root))
        return [str(entry.label) for entry in info.selected_suite.models]

    return labels


def _pinned(run: ModelRun, root: Path) -> ModelRun:
    """Replaces ``latest`` or a prefix in a model run's source by the full run name, so that it stays the same run."""
    config: BaseProvider = run.config
    if config.source_run is None:
        return run
    name, label = split_run(config.source_run)
    source = find_run(name, root)
    full = source.name if source.parent == root else str(source)
    return replace(run, config=config.from_run(f"{full}@{label}"))


def _check_output_access(plan: Plan, entries: Mapping[str, int]) -> None:
    """Raises ``SuiteError`` for existing outputs that only a trusted suite may read.

    Patterns and datasets name them, so the check happens after expansion. Each folder is resolved once. ``entries``
    are the indices of the suite's entries of ``models``, by the labels of their model runs.
    """
    refused: dict[str, ModelRun] = {}
    refusal = lru_cache(maxsize=None)(plan.loaded.trust.refusal)
    for run in plan.runs:
        if not run.config.reads_outputs or run.config.source_run is not None:
            continue
        for path in plan.outputs_of(run):
            folder, name = os.path.split(path)
            checks_file = is_url(path) or name in ("", "..") or (plan.folder / path).is_symlink()
            if reason := refusal(path if checks_file else folder or ".", plan.folder, remote=True):
                refused[
                    f"{run.label}: {public_address(path)!r}: {reason}" if not checks_file else f"{run.label}: {reason}"
                ] = run
    if refused:
        position = plan.loaded.positions()
        raise SuiteError(
            Problem(*position(("models", entries[run.label], *run.config.outputs_option)), message)
            for message, run in list(refused.items())[:MAX_REPORTED]
        )
