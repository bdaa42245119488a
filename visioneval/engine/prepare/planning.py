"""The first two steps of a run: load a suite, from its file or from a run, and expand it into a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from visioneval.defaults import RUNS
from visioneval.engine.cells.context import sanitizer_for
from visioneval.errors import Problem, SuiteError, UsageError
from visioneval.expansion.expand import expand, run_labels
from visioneval.expansion.plan import Plan
from visioneval.records.model import RunInfo, read_info
from visioneval.suite.load import LoadedSuite, load_suite, recheck_suite
from visioneval.suite.loading.messages import WARNING
from visioneval.suite.runs import model_runs
from visioneval.suite.selection.selection import Selection

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


@dataclass(frozen=True, slots=True)
class Planned:
    """A suite and its plan."""

    loaded: LoadedSuite
    plan: Plan


def load_plan(path: Path, options: SuiteOptions, *, samples: int | None = None) -> Planned:
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
    return _expanded(loaded, options, samples=samples, suite_samples=loaded.suite.samples)


def load_plans(paths: Sequence[Path], options: SuiteOptions) -> list[Planned]:
    """Loads and expands several suites. Raises one ``SuiteError`` with the problems of all."""
    plans: list[Planned] = []
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


def missing_outputs(planned: Planned, options: SuiteOptions) -> MissingOutputs:
    """The outputs that do not exist, among those that the plan's model runs read.

    In a dataset and in another run, which may be large and of other people, they are errors of their cells.
    """
    plan = planned.plan
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
        tuple(_problems_by_entry(planned, errors, options, text)),
        tuple(_problems_by_entry(planned, warnings, options, f"{WARNING}{text}, whose cells are errors")),
    )


def _problems_by_entry(
    planned: Planned, missing: Mapping[str, Sequence[str]], options: SuiteOptions, text: str
) -> Iterator[Problem]:
    loaded = planned.loaded
    position = loaded.positions()
    for index, entry in enumerate(loaded.suite.models):
        runs = model_runs(entry, loaded.suite, loaded.folder, run_labels(options.runs))
        names = [name for run in runs for name in missing.get(run.label, ())]
        if names:
            more = f" and {len(names) - MAX_MISSING:,} more" if len(names) > MAX_MISSING else ""
            yield Problem(*position(("models", index)), f"{text}: {', '.join(names[:MAX_MISSING])}{more}")


def load_stored_plan(folder: Path, options: SuiteOptions, *, samples: int | None = None) -> Planned:
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
    return _expanded(loaded, options, samples=samples, suite_samples=suite_samples)


def _expanded(loaded: LoadedSuite, options: SuiteOptions, *, samples: int | None, suite_samples: int | None) -> Planned:
    plan = expand(loaded, options.selection, samples=samples, suite_samples=suite_samples, runs_root=options.runs)
    return Planned(loaded, plan)


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
