"""Baselines: the results of runs in small files of a repository, which comparisons test against."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from visioneval.analysis.run_lookup import Warn, open_run, why_partial
from visioneval.analysis.sides import writers_of
from visioneval.errors import UsageError
from visioneval.records.baselines import (
    Baseline,
    baseline_path,
    check_addable,
    check_replaceable,
    make_baseline,
    read_baseline,
    write_baseline,
)


def set_baseline(name: str, run: str, runs: Path, *, partial: bool, warn: Warn) -> tuple[Path, Baseline]:
    """Writes the results of a run, in place of all runs of a baseline. Returns its file.

    Raises ``UsageError``, without ``partial`` also for a run that was narrowed or is incomplete.
    """
    path, baseline = baseline_path(name), _of_run(run, runs, partial=partial, warn=warn)
    check_replaceable(path, baseline.header.suite)
    write_baseline([baseline], path)
    return path, baseline


def add_to_baseline(
    name: str, run: str, keep: int, runs: Path, *, partial: bool, warn: Warn
) -> tuple[Path, Sequence[Baseline]]:
    """Adds the results of a run to a baseline, which keeps its newest ``keep`` runs. Returns its file and these.

    Raises ``UsageError`` as ``set_baseline`` does, and for a run of another suite.
    """
    path, baseline = baseline_path(name), _of_run(run, runs, partial=partial, warn=warn)
    if not path.is_file():
        raise UsageError(f"{path}: no such baseline: create it with 'visioneval baseline set {run} --name {name}'")
    stored = read_baseline(path)
    check_addable(baseline, stored, path)
    kept_runs = (baseline, *stored)[:keep]
    write_baseline(kept_runs, path)
    return path, kept_runs


def _of_run(run: str, runs: Path, *, partial: bool, warn: Warn) -> Baseline:
    folder, info, records = open_run(run, runs, warn)
    problem = why_partial(info, len(records))
    if not records or (problem is not None and not partial):
        raise UsageError(f"{folder}: {problem}: a baseline needs a complete run, or --partial")
    if not info.suite.has_rules:
        raise UsageError(f"{folder}: its suite has no rules, so a baseline has nothing to compare")
    return make_baseline(info, records, writers_of(info), is_partial=problem is not None)
