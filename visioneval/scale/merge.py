"""Combines the runs of all shards of a suite into one, which equals an unsharded run except for times and ids."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from visioneval.analysis.summary.summary import Compared, Summary, summarize
from visioneval.errors import StorageError, UsageError
from visioneval.records.between_cells import append_preferences, read_all_answers, read_diversity, update_diversity
from visioneval.records.labels import ANCHORS, DRAWS, LABELS, append_labels, read_labels
from visioneval.records.model import Record, RunInfo, read_info
from visioneval.records.outputs import digest_of, may_be_changed, writing_ended
from visioneval.records.questions import read_questions, write_questions
from visioneval.records.reader import read_records
from visioneval.records.runs import resume_hint, with_current_state
from visioneval.records.stores.writing import has_confirmations
from visioneval.records.untrusted import check_run_folder, file_inside
from visioneval.records.writer import RunWriter, hard_link
from visioneval.scale.shard_inputs import ShardInputs
from visioneval.suite.files import split_run
from visioneval.suite.metrics import SuiteMetrics
from visioneval.suite.runs import Shard

_SAME = {
    "suite": "the suite",
    "source_sha256": "the suite file",
    "hidden_vars": "the secret variables",
    "visioneval_version": "the version of visioneval",
}
"""What must be equal in the ``run.json`` of all shards, and how messages name it."""


@dataclass(frozen=True, slots=True)
class ShardRun:
    """A run of one shard."""

    folder: Path
    info: RunInfo
    shard: Shard


def merge_shards(
    folders: Sequence[Path], root: Path, run_id: str, note: str | None, warn: Callable[[str], None]
) -> tuple[Path, RunInfo, Summary]:
    """Writes the run ``run_id`` below ``root`` from the runs of all shards, reading each record once.

    Pairs were judged in the shards; what the shards leave to the whole is the summary and its gates. Nothing remains
    of a merge that fails. Returns the folder, the run and its summary.

    Raises ``UsageError``, ``RunFormatError`` and ``StorageError``.
    """
    shards = _checked_shards(folders)
    _warn(shards, warn)
    target = root / run_id
    if target.exists():
        raise UsageError(f"{target}: already exists: use another --run-id")
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".merging-", dir=root, ignore_cleanup_errors=True) as temporary:
            inputs = ShardInputs([(shard.folder, shard.info) for shard in shards])
            ended = _merged_info(shards, run_id, note)
            running = ended.model_copy(update={"state": "running", "ended_at": None, "stopped_by": None})
            with closing(RunWriter.create(Path(temporary), running)) as writer:
                summary = _fill(shards, inputs, writer, ended)
            writer.folder.rename(target)
    except OSError as error:
        raise StorageError(f"{target}: cannot write the run here: {error.strerror or error}") from error
    for message in inputs.warnings():
        warn(message)
    return target, ended, summary


def _checked_shards(folders: Sequence[Path]) -> list[ShardRun]:
    """The shards in order. Raises ``UsageError`` if any is foreign, repeated or missing."""
    runs: list[ShardRun] = []
    by_number: dict[int, ShardRun] = {}
    for folder in folders:
        info = with_current_state(folder, read_info(check_run_folder(folder)))
        if info.selection.shard is None:
            raise UsageError(f"{folder}: is not a shard: run the suite with --shard I/N")
        if info.graded_from is not None:
            raise UsageError(f"{folder}: is a regrade of a shard: merge the shards, then grade the merged run")
        if info.state == "running":
            raise UsageError(f"{folder}: is still running")
        runs.append(ShardRun(folder, info, info.selection.shard))
        _check_same(runs[0], runs[-1])
    for run in runs:
        other = by_number.setdefault(run.shard.number, run)
        if other is not run:
            raise UsageError(f"{run.folder}: is shard {run.shard}, the same as {other.folder}")
    count = runs[0].shard.count
    if missing := [number for number in range(1, count + 1) if number not in by_number]:
        named = ", ".join(f"{number}/{count}" for number in missing[:10]) + (", ..." if len(missing) > 10 else "")
        raise UsageError(f"missing shards: {named}: run the suite with --shard, and name all {count} runs")
    return [by_number[number] for number in sorted(by_number)]


def _check_same(first: ShardRun, run: ShardRun) -> None:
    if run.shard.count != first.shard.count:
        raise UsageError(
            f"{run.folder}: is shard {run.shard}, but {first.folder} is shard {first.shard}: run all shards with the"
            " same N"
        )
    for name, subject in _SAME.items():
        if getattr(run.info, name) != getattr(first.info, name):
            raise UsageError(f"{run.folder}: differs from {first.folder} in {subject}")
    flags = [shard.info.selection.model_copy(update={"shard": None}) for shard in (first, run)]
    if flags[0] != flags[1]:
        raise UsageError(f"{run.folder}: was run with different selection flags than {first.folder}")


def _warn(shards: Sequence[ShardRun], warn: Callable[[str], None]) -> None:
    for shard in shards:
        if hint := resume_hint(shard.folder, shard.info):
            warn(f"{hint}; or resume the merged run")
        if (shard.folder / DRAWS).exists():
            warn(f"{shard.folder}: its draws of cells to label are left out: draw from the merged run")
        if has_confirmations(shard.folder):
            warn(f"{shard.folder}: its confirmations are left out: compare the merged run with --confirm")
    if len({shard.info.git_commit for shard in shards}) > 1:
        warn("the shards were run at different Git commits")


def _merged_info(shards: Sequence[ShardRun], run_id: str, note: str | None) -> RunInfo:
    """The merged run with the end state of its shards."""
    infos = [shard.info for shard in shards]
    first, stopped = infos[0], [info for info in infos if info.state != "complete"]
    order = SuiteMetrics(first.suite).all
    metrics = {name: metric for info in infos for name, metric in info.metrics.items()}
    return first.model_copy(
        update={
            "run_id": run_id,
            "state": "interrupted" if stopped else "complete",
            "note": first.note if note is None else note,
            "started_at": min(info.started_at for info in infos),
            "ended_at": max(info.ended_at or info.started_at for info in infos),
            "stopped_by": next((info.stopped_by for info in stopped if info.stopped_by), None),
            "reused_since": min(filter(None, (info.reused_since for info in infos)), default=None),
            "resumed_at": tuple(sorted(time for info in infos for time in info.resumed_at)),
            "planned_cells": sum(info.planned_cells for info in infos),
            "selection": first.selection.model_copy(update={"shard": None}),
            "metrics": {name: metrics[name] for name in (*order, *metrics) if name in metrics},
            "merged_from": tuple(info.run_id for info in infos),
        }
    )


def _fill(shards: Sequence[ShardRun], inputs: ShardInputs, writer: RunWriter, ended: RunInfo) -> Summary:
    folder = writer.folder
    update_diversity(folder, (line for shard in shards for line in read_diversity(shard.folder)))
    for shard in shards:
        inputs.check_pairs(shard.info.run_id, shard.folder)
        _copy_answers(shard, folder, ended.run_id)
    write_questions(folder, (entry for shard in shards for entry in read_questions(shard.folder)))
    summary = summarize(ended, _copied_records(shards, inputs, writer), Compared.read(folder, ended))
    for shard in shards:  # after the records: a link changes the times of a file, by which those are checked
        _copy_artifacts(shard.folder, folder)
    assert ended.ended_at is not None
    writer.finish(ended.state, ended.ended_at, stopped_by=ended.stopped_by)
    writer.write_summary(summary)
    return summary


def _copied_records(shards: Sequence[ShardRun], inputs: ShardInputs, writer: RunWriter) -> Iterator[Record]:
    """Appends all records under the new id, and yields each.

    Raises ``UsageError`` for a case that two shards have, or that is no shard's, for a missing or damaged output, and
    for shards that used different files.
    """
    owners: dict[str, Path] = {}
    for shard in shards:
        ended = writing_ended(shard.info)
        cases = {case.id for case in shard.info.selected_suite.cases}
        for record in read_records(shard.folder):
            if record.test_id not in cases:
                raise UsageError(f"{shard.folder}: case {record.test_id!r} does not belong to its shard")
            owner = owners.setdefault(record.test_id, shard.folder)
            if owner != shard.folder:
                raise UsageError(f"{shard.folder}: case {record.test_id!r} is also in {owner}")
            if not _has_output(record, shard.folder, ended):
                raise UsageError(
                    f"{shard.folder / str(record.artifact_path)}: is missing or damaged: copy the whole folder of this"
                    " shard again, or resume the shard"
                )
            inputs.check(record, shard.folder)
            writer.append(record.model_copy(update={"run_id": writer.info.run_id}))
            yield record


def _has_output(record: Record, folder: Path, ended: float) -> bool:
    """Whether a shard has the output that a record names. Reads only what was changed since the shard ``ended``."""
    if record.artifact_path is None:
        return True
    path = file_inside(folder, record.artifact_path)
    if path is None or path.is_symlink():  # links are not copied
        return False
    return not may_be_changed(path, ended) or digest_of(path) == record.artifact_sha256


def _copy_artifacts(source: Path, target: Path) -> None:
    """Hard-links the files of a shard where that works, else copies them. Leaves out links."""
    for parent, _, names in os.walk(source / "artifacts"):
        relative = Path(parent).relative_to(source)
        (target / relative).mkdir(parents=True, exist_ok=True)
        for name in names:
            path = file_inside(source, f"{relative.as_posix()}/{name}")
            if path is None or path.is_symlink():
                continue
            copy = target / relative / name
            if not hard_link(path, copy):
                shutil.copyfile(path, copy)


def _copy_answers(shard: ShardRun, target: Path, run_id: str) -> None:
    """Copies preferences of judges and labels of people, with the new run id where they name the shard's."""

    def renamed(name: str) -> str:
        run, label = split_run(name)
        return f"{run_id}@{label}" if run == shard.info.run_id else name

    append_preferences(
        target,
        [
            answer.model_copy(update={"a": renamed(answer.a), "b": renamed(answer.b)})
            for answer in read_all_answers(shard.folder)
        ],
    )
    for name in (LABELS, ANCHORS):
        labels = read_labels(shard.folder / name)
        append_labels(
            target / name,
            [label.model_copy(update={"other": renamed(label.other)}) if label.other else label for label in labels],
        )
