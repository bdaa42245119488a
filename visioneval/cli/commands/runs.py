"""Commands that read runs: runs, show."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from visioneval.cli import completion, options
from visioneval.defaults import RUNS
from visioneval.errors import RunFormatError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from visioneval.records.model import Record, RunInfo
    from visioneval.report.terminal.run.run_list import ListedRun
    from visioneval.suite.cases.case import TestCase


MAX_STOPPED = 5


class VerdictChoice(StrEnum):
    """The values of ``--verdict``."""

    passed = "PASS"
    failed = "FAIL"
    error = "ERROR"
    none = "NONE"


def list_all(
    runs: options.RunsFolder = RUNS,
    experiment: Annotated[str | None, options.value("--experiment", "NAME", "Only runs of this experiment.")] = None,
    failure_tags: Annotated[
        bool, options.flag("--failure-tags", "Also show the failure tags of each run, by experiment.")
    ] = False,
    delete: Annotated[
        bool, options.flag("--delete", "Delete the listed runs that --older-than and --keep select, after a question.")
    ] = False,
    older_than: Annotated[
        float | None,
        options.value("--older-than", "DAYS", "With --delete: only runs older than this.", min=0, max=100_000),
    ] = None,
    keep: Annotated[
        int | None, options.value("--keep", "N", "With --delete: not the newest N of the listed runs.", min=0)
    ] = None,
    yes: Annotated[bool, options.flag("--yes", "With --delete: do not ask.")] = False,
) -> None:
    """List the runs of a folder, by experiment, oldest first, or delete old ones.

    --delete leaves runs that are in progress, that a baseline was set from, and that another run, or a suite below the
    working directory, reads.
    """
    if delete:
        _delete(runs, experiment, older_than, keep, is_confirmed=yes)
        return
    if older_than is not None or keep is not None or yes:
        raise UsageError("--older-than, --keep and --yes need --delete")
    from visioneval.records.resume_command import resume_command
    from visioneval.records.run_state import current_state
    from visioneval.records.stores.lookup import display_name, list_runs, refresh_runs
    from visioneval.report.terminal.run.run_list import print_failure_tags, print_runs

    listed = list_runs(runs)
    for path in sorted({path.parent for path in runs.glob("*/run.json")} - {path for path, _ in listed}):
        options.say(f"{display_name(path)}: skipped: its run.json cannot be read")
    listed = [(path, info) for path, info in listed if experiment in (None, info.get("experiment"))]
    problems = refresh_runs([path for path, _ in listed])
    selected = [(path, {**info, "state": current_state(path, info.get("state"))}) for path, info in listed]
    if not selected:
        print(f"{display_name(runs)}: no runs here" + (f" of the experiment {experiment!r}" if experiment else ""))
        return
    listed_runs = [_listed(path, info, problems.get(path)) for path, info in selected]
    print_runs(listed_runs, options.console())
    if failure_tags:
        print_failure_tags(listed_runs, options.console())
    stopped = [path for path, info in selected if info["state"] == "stopped" and not info.get("graded_from")]
    for path in stopped[-MAX_STOPPED:]:
        options.say(f"{display_name(path)}: the run was killed; to resume: {resume_command(path)}")


def _delete(
    runs: Path, experiment: str | None, older_than: float | None, keep: int | None, *, is_confirmed: bool
) -> None:
    """Deletes runs after a question. Raises ``UsageError``."""
    from datetime import UTC, datetime, timedelta

    from visioneval.counted import count_of
    from visioneval.records.run_deletion import delete_run, needed_runs, runs_to_delete
    from visioneval.records.stores.locations import copies_at
    from visioneval.records.stores.lookup import display_name, list_runs

    if older_than is None and keep is None:
        raise UsageError("--delete: say which runs: --older-than DAYS, --keep N, or both")
    if copies_at(runs) is not None:
        raise UsageError(f"{display_name(runs)}: --delete is for runs in a local folder: delete these in the store")
    listed = list_runs(runs)
    of_experiment = [run for run in listed if experiment in (None, run[1].get("experiment"))]
    before = None if older_than is None else datetime.now(UTC) - timedelta(days=older_than)
    chosen = runs_to_delete(of_experiment, before, keep or 0)
    needed = needed_runs(listed, chosen, Path())
    for folder, reason in needed.items():
        options.say(f"{folder}: not deleted: {reason}")
    folders = [folder for folder, _ in chosen if folder not in needed]
    what = f"{count_of(len(folders), 'run')} of {len(listed):,} in {runs}"
    if (
        folders
        and not is_confirmed
        and not options.is_confirmed(
            f"delete {what}: {', '.join(folder.name for folder in folders[:MAX_STOPPED])}"
            + (", ..." if len(folders) > MAX_STOPPED else ""),
            "They cannot be restored.",
        )
    ):
        print("nothing was deleted")
        return
    for folder in folders:
        delete_run(folder)
    print(f"deleted {what}")


def _listed(folder: Path, info: Mapping[str, Any], problem: str | None) -> ListedRun:
    """A run as it is listed; without counts if its records cannot be read."""
    from visioneval.analysis.summary.accumulators import count
    from visioneval.records.model import read_records
    from visioneval.records.stores.locations import display_name
    from visioneval.report.terminal.run.run_list import ListedRun
    from visioneval.report.text import clean

    tags: Counter[str] = Counter()

    def counted(cells: Iterable[Record]) -> Iterator[Record]:
        for cell in cells:
            tags.update(cell.failure_tags)
            yield cell

    if problem is not None:
        options.say(clean(problem))
        return ListedRun(folder.name, info, None)
    try:
        return ListedRun(folder.name, info, count(counted(read_records(folder))), tags)
    except RunFormatError as error:
        options.say(clean(display_name(str(error))))
        return ListedRun(folder.name, info, None)


def show(
    run: options.RunName,
    case: Annotated[
        str | None, options.argument("CASE", "A case ID: show its cells in full.", autocompletion=completion.case_ids)
    ] = None,
    sample: Annotated[int | None, options.value("--sample", "N", "Only this sample of the case.", min=0)] = None,
    verdict: Annotated[
        VerdictChoice | None,
        options.value("--verdict", "PASS|FAIL|ERROR|NONE", "Only cells with this verdict.", case_sensitive=False),
    ] = None,
    runs: options.RunsFolder = RUNS,
) -> None:
    """Show a run's summary, or all cells of one case in full: prompts, scores and reasons."""
    from visioneval.api.runs import load_run
    from visioneval.cli.result import print_pairs
    from visioneval.records.resume_command import asking_hint
    from visioneval.report.outcome import never_asked_text
    from visioneval.report.terminal.agreement.judge_card import print_judges
    from visioneval.report.terminal.noise import print_noise
    from visioneval.report.terminal.run.summary import print_summary

    if case is not None:
        _show_case(run, runs, case, sample, verdict)
        return
    if sample is not None or verdict is not None:
        raise UsageError("--sample and --verdict need a CASE")
    result = load_run(run, runs=runs, warn=options.say)
    print_summary(result.summary, options.console())
    print_noise(result.summary.noise, options.console())
    print_judges(result.summary, options.console())
    print_pairs(result)
    if result.resume_hint is not None:
        options.say(result.resume_hint)
    elif text := never_asked_text(result.summary.never_asked):
        hint = asking_hint(result.folder, result.info, lacks_outputs=result.summary.lacks_outputs)
        options.say(f"{text}; {hint}")


def _show_case(run: str, runs: Path, case: str, sample: int | None, verdict: VerdictChoice | None) -> None:
    from visioneval.analysis.run_lookup import open_run
    from visioneval.analysis.summary.summary import in_order
    from visioneval.report.terminal.run.cell import print_cells
    from visioneval.suite.turns import chain_of

    folder, info, records = open_run(run, runs, options.say)
    of_case = [record for record in records if case in (record.test_id, chain_of(record.test_id))]
    cells = [
        record
        for record in in_order(info, of_case)
        if sample in (None, record.sample_index) and (verdict is None or record.verdict.value == verdict.value)
    ]
    if not cells:
        raise UsageError(_no_cell(case, records, is_known=bool(of_case)))
    for turn, turn_cells in groupby(cells, lambda cell: cell.test_id):
        print_cells(list(turn_cells), _rendered_case(info, turn), folder, options.console())


def _rendered_case(info: RunInfo, case_id: str) -> TestCase | None:
    """The case, with its criteria as judges saw them."""
    from visioneval.errors import TemplateError
    from visioneval.suite.cases.prompts import rendered

    case = next((case for case in info.suite.cases if case.id == case_id), None)
    if case is None or not case.criteria:
        return case
    with suppress(TemplateError):
        return case.model_copy(update={"criteria": rendered(case, info.suite.vars)[1]})
    return case


def _no_cell(case: str, records: Iterable[Record], *, is_known: bool) -> str:
    from visioneval.suite.loading.messages import did_you_mean
    from visioneval.suite.turns import chain_of

    if is_known:
        return f"{case!r}: no matching cells in this run"
    ids = {name for record in records for name in (record.test_id, chain_of(record.test_id))}
    return f"no case {case!r} in this run{did_you_mean(case, ids)}"
