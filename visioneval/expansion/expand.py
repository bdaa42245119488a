"""Expands a checked suite and a selection into a plan."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from visioneval.errors import Problem, SuiteError, UsageError
from visioneval.expansion.plan import Plan
from visioneval.media.urls import is_url, public_address
from visioneval.records.cells.existing_outputs import existing_outputs
from visioneval.records.model import read_info
from visioneval.records.stores.lookup import find_run
from visioneval.resources import builtin
from visioneval.suite.cases.outputs import split_run
from visioneval.suite.entries.providers import BaseProvider
from visioneval.suite.load import LoadedSuite
from visioneval.suite.model import template_folders
from visioneval.suite.runs import model_runs
from visioneval.suite.selection.selection import Selection, check_selection, selected
from visioneval.suite.size import cell_problem
from visioneval.templates.render import Templates
from visioneval.types import ModelRun

MAX_REPORTED = 20


def expand(
    loaded: LoadedSuite,
    selection: Selection,
    *,
    samples: int | None = None,
    suite_samples: int | None = None,
    runs_root: Path,
) -> Plan:
    """The plan for a checked suite, restricted by the selection flags.

    ``samples`` overrides the number of the selection. ``suite_samples`` is the suite's own number, if it is known: that
    number in the selection replaces nothing. Raises ``UsageError`` for a flag that matches nothing, and if nothing is
    left.
    """
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
    whole = suite.model_copy(
        update={"models": tuple(run.config for run in runs), "samples": samples or selection.samples or suite.samples}
    )
    check_selection(whole, selection)
    resolved = selected(whole, selection)
    labels = {entry.label for entry in resolved.models}
    runs = [run for run in runs if run.label in labels]
    if problem := cell_problem(resolved, runs):
        raise UsageError(f"--samples {resolved.samples}: {problem}")
    finished = {run.label: existing_outputs(run, suite, folder, runs_root) for run in runs if run.config.reads_outputs}
    plan = Plan(
        resolved,
        folder,
        tuple(runs),
        finished,
        whole_suite=whole,
        selection=selection,
        templates=Templates(template_folders(suite, folder.absolute(), builtin("prompts"))),
        trusted=loaded.trust.everything,
        secrets=loaded.secrets,
    )
    if not loaded.trust.everything:
        _check_output_access(plan, loaded, {run.label: index for index, run in entry_runs})
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


def _check_output_access(plan: Plan, loaded: LoadedSuite, entries: Mapping[str, int]) -> None:
    """Raises ``SuiteError`` for existing outputs that only a trusted suite may read.

    Patterns and datasets name them, so the check happens after expansion. Each folder is resolved once. ``entries``
    are the indices of the suite's entries of ``models``, by the labels of their model runs.
    """
    refused: dict[str, ModelRun] = {}
    refusal = lru_cache(maxsize=None)(loaded.trust.refusal)
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
        position = loaded.positions()
        raise SuiteError(
            Problem(*position(("models", entries[run.label], *run.config.outputs_option)), message)
            for message, run in list(refused.items())[:MAX_REPORTED]
        )
