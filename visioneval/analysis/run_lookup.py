"""Finds runs by name (a path, an id, a unique prefix, ``latest``, a file or a baseline) and reads them, also as the
sides of a comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from visioneval.analysis.redaction import NOTHING, Redaction, redacted_sides
from visioneval.analysis.sides import (
    Cell,
    Series,
    SeriesRun,
    Side,
    newest_run,
    side_of_baseline,
    side_of_records,
    side_of_run,
    with_built_in,
)
from visioneval.errors import RunFormatError, SeriesError, UsageError, count_of, did_you_mean
from visioneval.records.baselines import DEFAULT, baseline_path, is_baseline, read_baseline
from visioneval.records.labels import Label
from visioneval.records.model import Record, RunInfo, read_info
from visioneval.records.reader import RESULTS, Records, open_records, records_of
from visioneval.records.runs import missing_cells_hint, with_current_state
from visioneval.records.stores.lookup import display_name, find_named_run, list_runs, refresh_runs
from visioneval.records.untrusted import one_line
from visioneval.suite.files import split_run
from visioneval.suite.filters import Scope, any_glob, chain_of, check_matches

BASELINE = "baseline"
Warn = Callable[[str], None]


def ignore(_: str) -> None:
    """A ``Warn`` for callers that print nothing."""


def named_run(name: str, runs: Path) -> tuple[Path, RunInfo, str | None]:
    """Returns a run's folder, its ``run.json``, and the label or glob if ``name`` ends in ``@LABEL``.

    Raises ``UsageError``.
    """
    run, label = _split(name)
    folder = find_named_run(run, runs)
    info = with_current_state(folder, read_info(folder))
    if label is not None:
        check_label(label, [str(entry.label) for entry in info.selected_suite.models], folder.name)
    return folder, info, label


def read_run(name: str, runs: Path, warn: Warn = ignore) -> tuple[Path, RunInfo, list[Record]]:
    """Reads a run as ``open_run`` does, with all records in memory."""
    folder, info, records = open_run(name, runs, warn)
    return folder, info, list(records)


def open_run(name: str, runs: Path, warn: Warn = ignore) -> tuple[Path, RunInfo, Records[Record]]:
    """Opens a run, or the model runs whose label matches if ``name`` ends in ``@LABEL``. Warns if cells are missing.

    Raises ``UsageError``, and ``RunFormatError`` if ``results.jsonl`` cannot be read.
    """
    folder, info, label = named_run(name, runs)
    records = records_of(folder)
    warn_missing(folder, info, len(records), warn)
    if label is None:
        return folder, info, records
    return folder, *_part(info, records, Scope(models=(label,)))


def open_part(name: str, scope: Scope, runs: Path, warn: Warn = ignore) -> tuple[Path, RunInfo, Records[Record]]:
    """Opens those cells of a run, or of its model runs, that a scope covers.

    Raises ``UsageError``, also for a case, tag or label of the scope that the run does not have.
    """
    folder, info, records = open_run(name, runs, warn)
    if scope == Scope():
        return folder, info, records
    suite = info.selected_suite
    check_matches(
        folder.name,
        ("--case", scope.cases, {id_ for case in suite.cases for id_ in (case.id, chain_of(case.id))}),
        ("--tag", scope.tags, {tag for case in suite.cases for tag in case.tags}),
        ("--model", scope.models, {str(entry.label) for entry in suite.models}),
    )
    info, records = _part(info, records, scope)
    if not info.selected_suite.cases:
        raise UsageError(f"--case, --tag: no case of {folder.name} is of both")
    return folder, info, records


def _part(info: RunInfo, records: Records[Record], scope: Scope) -> tuple[RunInfo, Records[Record]]:
    records = records.within(scope)
    return info.within(scope, len(records)), records


def warn_missing(folder: Path, info: RunInfo, cells: int, warn: Warn) -> None:
    """Warns of results with more cells than planned, and of a complete run that lacks cells."""
    if cells > info.planned_cells:
        warn(
            f"{display_name(folder)}: results.jsonl has {cells:,} cells, more than the {info.planned_cells:,} that were"
            " planned: some are from another run"
        )
    if info.state == "complete" and cells < info.planned_cells:
        warn(
            f"{display_name(folder)}: marked complete, but results.jsonl has {cells:,} of"
            f" {count_of(info.planned_cells, 'cell')}; {missing_cells_hint(folder, info)}"
        )


def why_partial(info: RunInfo, cells: int) -> str | None:
    """Why a run, or a part of it, lacks cells of its suite; ``None`` if it has them all."""
    if info.state != "complete":
        return f"the run is {info.state}"
    if cells < info.planned_cells:
        return f"the run has {cells:,} of {count_of(info.planned_cells, 'cell')}"
    if info.selection.samples is not None:
        return "--samples replaced the suite's number"
    whole, selected = info.suite, info.selected_suite
    is_whole = all(len(getattr(whole, part)) == len(getattr(selected, part)) for part in ("cases", "models", "graders"))
    return None if is_whole else "flags or RUN@LABEL left out cells of the suite"


def labels_of(name: str, records: Sequence[Record], labels: Sequence[Label]) -> list[Label]:
    """The labels of a run, or of one model run if ``name`` ends in ``@LABEL``."""
    if _split(name)[1] is None:
        return list(labels)
    model_labels = {record.model_label for record in records}
    return [label for label in labels if label.model_label in model_labels]


def read_side(name: str, runs: Path, warn: Warn = ignore) -> Side:
    """Reads one side of a comparison: a run as for ``read_run``, a file of records or ``baseline:NAME``.

    Cells stay on disk, and are read when they are needed.
    """
    run, label = _split(name)
    side = _whole_side(name, run, runs, warn)
    if label is None:
        return side
    check_label(label, side.labels, run)
    selected = {known for known in side.labels if any_glob((label,), known)}
    cells, others = (
        side.cells.where(lambda cell, is_in=is_in: (cell[1] in selected) is is_in)  # type: ignore[misc]
        for is_in in (True, False)
    )
    return replace(side, cells=cells, others=others, planned_cells=None, is_narrowed=True)


def read_sides(
    names: tuple[str, str],
    runs: Path,
    *,
    metrics: Sequence[str] = (),
    redact: Redaction = NOTHING,
    is_confirmed: bool = False,
    warn: Warn = ignore,
) -> tuple[Side, Side]:
    """Reads both sides of a comparison, named as for ``read_side``; the built-in ones of ``metrics`` are among theirs.

    Of a baseline of several runs as B, the newest run counts. ``is_confirmed``: B's samples of an earlier confirmation
    are used. Raises ``UsageError`` and ``RunFormatError``.
    """
    a, b = (with_built_in(read_side(name, runs, warn), metrics) for name in names)
    a, b = redacted_sides(a, newest_run(b), redact)
    return a, replace(b, unused_confirmations=False) if is_confirmed else b


def _whole_side(name: str, run: str, runs: Path, warn: Warn) -> Side:
    kind, _, baseline_name = run.partition(":")
    if kind == BASELINE and not Path(run).exists():
        path = baseline_path(baseline_name or DEFAULT)
        if not path.is_file():
            raise UsageError(f"{path}: no such baseline: create one with 'visioneval baseline set RUN'")
        return replace(side_of_baseline(name, read_baseline(path)), file=path)
    if Path(run).is_file() and not (Path(run).parent / "run.json").is_file():
        path = Path(run)
        if is_baseline(path):
            return replace(side_of_baseline(name, read_baseline(path)), file=path)
        return replace(side_of_records(name, open_records(path, Cell)), file=path)
    folder = find_named_run(str(Path(run).parent) if Path(run).is_file() else run, runs)
    info = with_current_state(folder, read_info(folder))
    cells = open_records(folder / RESULTS, Cell)
    warn_missing(folder, info, len(cells), warn)
    if info.state == "complete" and len(cells) < info.planned_cells:
        # A gate over the remaining cells would also pass for the missing ones.
        info = info.model_copy(update={"state": "interrupted"})
    return side_of_run(name, info, cells, folder)


def read_series(
    experiment: str, suite: str | None, last: int | None, runs: Path, warn: Warn = ignore, shown: int = 0
) -> Series:
    """Reads the last runs of a suite of an experiment, without shards.

    Without ``suite``, it is that of the newest run, and without ``last``, the number is that of the suite. ``shown`` is
    the number of runs of the table, if it is more. Raises ``UsageError``, ``SeriesError`` if no run is of the suite,
    and ``RunFormatError`` if the newest cannot be read.
    """
    listed = list_runs(runs)
    members = [
        (folder, _suite_of(info), info)
        for folder, info in listed
        if info.get("experiment") == experiment and not _is_shard(info)  # the run that merges it is a member
    ]
    if not members:
        names = {str(info["experiment"]) for _, info in listed if info.get("experiment")}
        hint = did_you_mean(experiment, names)
        raise UsageError(f"--experiment {experiment!r}: no run in {display_name(runs)} is of it{hint}")
    suite = members[-1][1] if suite is None else suite
    own = [at for at, (_, name, _) in enumerate(members) if name == suite]
    others = Counter(name for _, name, _ in members if name != suite)
    of_others = ", ".join(f"{number:,} of {one_line(name)}" for name, number in others.most_common())
    if not own:
        raise SeriesError(f"--experiment {experiment!r}: has no run of the suite {suite}: its runs are {of_others}")
    newest = members[own[-1]][0]
    if last is None and (last := read_info(newest).suite.compare.drift) is None:
        raise UsageError(
            f"--experiment: the suite {suite} does not say how many runs are tested together: add --last N, or"
            " 'compare: {drift: N}' to the suite"
        )
    since = Counter(name for _, name, _ in members[own[-1] + 1 :])
    again = next((name for name, number in since.items() if number > 1), None)  # one of each may be of the same night
    shown = max(last, shown)
    chosen = [members[at] for at in own[-(shown + last - 1) :]]
    problems = refresh_runs([folder for folder, _, _ in chosen])
    return Series(
        experiment,
        last,
        tuple(_series_run(folder, info, problems.get(folder), runs, warn) for folder, _, info in chosen),
        shown,
        of_others,
        f"since {newest.name}, only another suite has run again: {one_line(again)}" if again else "",
    )


def _suite_of(info: Mapping[str, Any]) -> str:
    """The name of a run's suite, given the raw contents of its ``run.json``."""
    suite = info.get("suite")
    return str(suite.get("name")) if isinstance(suite, dict) else ""


def _is_shard(info: Mapping[str, Any]) -> bool:
    """Whether a run is a shard, given the raw contents of its ``run.json``."""
    selection = info.get("selection")
    return isinstance(selection, dict) and selection.get("shard") is not None


def _series_run(folder: Path, info: Mapping[str, Any], problem: str | None, runs: Path, warn: Warn) -> SeriesRun:
    run_id, started_at = folder.name, one_line(str(info.get("started_at")))
    if problem is None:
        try:
            return SeriesRun(run_id, started_at, replace(read_side(str(folder), runs, warn), name=run_id))
        except (RunFormatError, UsageError) as error:
            problem = str(error)
    return SeriesRun(run_id, started_at, None, f"cannot be read: {one_line(display_name(problem), 200)}")


def check_label(label: str, labels: Sequence[str], where: str) -> None:
    """Raises ``UsageError`` for a label or glob that matches no model run."""
    if not any(any_glob((label,), known) for known in labels):
        raise UsageError(f"no model run {label!r} in {where}{did_you_mean(label, labels)}")


def _split(name: str) -> tuple[str, str | None]:
    path = Path(name)
    return (name, None) if path.is_file() or (path / "run.json").is_file() else split_run(name)
