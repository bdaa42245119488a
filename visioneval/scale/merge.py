"""Combines the runs of all shards of a suite into one, which equals an unsharded run except for times and ids.

Shards must have been run with the same files: input images, masks, references, outputs, templates, recorded answers.
The keys of a record have hashes of them. Each record is compared with what the suite would compute now, if its files
are on this machine, and with the records of all shards that used the same files.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from visioneval.analysis.summary.summary import Compared, Summary, summarize
from visioneval.errors import StorageError, SuiteError, UsageError
from visioneval.records.between_cells import (
    append_preferences,
    read_all_answers,
    read_diversity,
    read_preferences,
    update_diversity,
    update_duplicates,
)
from visioneval.records.key_parts import changed_parts, describe_parts, key_parts
from visioneval.records.labels import ANCHORS, DRAWS, LABELS, append_labels, read_labels
from visioneval.records.model import Record, RunInfo, read_info
from visioneval.records.outputs import digest_of, may_be_changed, writing_ended
from visioneval.records.questions import read_questions, write_questions
from visioneval.records.reader import read_records
from visioneval.records.runs import resume_hint, with_current_state
from visioneval.records.stores.writing import has_confirmations
from visioneval.records.untrusted import check_run_folder, file_inside
from visioneval.records.writer import RunWriter, hard_link
from visioneval.running.duplicates import duplicates_in
from visioneval.running.keys import FileHashes, generation_key, grade_key
from visioneval.running.loading import SuiteOptions, load_stored_plan
from visioneval.running.plan import Call, Plan
from visioneval.suite.entries.graders import CASES, PAIR, BaseGrader, of_kind
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

    Pairs were judged in the shards; what the shards leave to the whole are near-duplicates between cases, the summary
    and its gates. Nothing remains
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
    suite = ended.selected_suite
    if graders := of_kind(suite.graders, CASES):
        for grader in graders:
            update_duplicates(folder, asyncio.run(duplicates_in(grader, suite, read_records(folder), folder)))
        summary = summarize(ended, read_records(folder), Compared.read(folder, ended))
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


_GRADER = "grader."
_CASE_FILES = {"images": "input image", "masks": "mask", "reference": "reference"}
"""The parts of keys with the files of a case, and how messages name one."""
_OF_EARLIER_TURNS = frozenset({"earlier-turns", "edited-image"})
"""Their files are compared where they were used first, and their outputs are checked by their hashes."""
_MAX_NAMES = 5
_Files = Mapping[str, tuple[str, ...]]
"""The files of a case by part of its keys: for a grader, its templates."""


class ShardInputs:
    """Compares the records of shards of one suite, and collects the versions of tools that graded them."""

    def __init__(self, runs: Sequence[tuple[Path, RunInfo]]) -> None:
        self._suite = runs[0][1].suite
        self._cases = {case.id: case for case in self._suite.cases}
        self._graders = {grader.key: grader for grader in self._suite.graders}
        self._pair_graders = {
            self._suite.judges[name].title: grader
            for grader in of_kind(self._suite.graders, PAIR)
            for name in grader.judge_names
            if name in self._suite.judges
        }
        """By the title of a judge."""
        self._now, self._why_not_now = _suite_now(runs)
        self._files: dict[str, _Files] = {}
        self._first: dict[tuple[str, tuple[str, ...]], tuple[str, Path, str | None]] = {}
        """By part and files: the hash, the shard that had it first, and the hash of its templates."""
        self._checked: dict[tuple[str, str], tuple[Path, str, str]] = {}
        self._tools: dict[str, dict[str, Path]] = {}

    def check(self, record: Record, shard: Path) -> None:
        """Raises ``UsageError`` for a record of a shard that was generated or graded with another file."""
        for grader in record.graders:
            for tool, version in grader.fingerprint.tool_versions.items():
                self._tools.setdefault(tool, {}).setdefault(version, shard)
        about = record.test_id, record.model_label
        keys = shard, record.generation_key.rpartition(" sample:")[0], record.grade_key
        if self._checked.get(about) == keys:  # of another sample
            return
        if self._now is not None and (changed := self._now.changes(record)):
            subject = self._subject(record, changed, self._now.template_sha256)
            raise _changed(shard, f"{record.test_id!r} on {record.model_label!r}", subject)
        self._compare(record, shard)
        self._checked[about] = keys

    def check_pairs(self, run_id: str, shard: Path) -> None:
        """Raises ``UsageError`` for an answer about a pair of a shard to a question by another template."""
        for answer in read_preferences(shard):
            grader, case = self._pair_graders.get(answer.judge), self._cases.get(answer.test_id)
            if grader is None or case is None or answer.template_sha256 is None or not answer.is_within(run_id):
                continue
            templates = grader.templates(case, self._suite.vars)
            subject = self._grader_subject(grader, templates, None)
            if self._now is not None and self._now.template_sha256(templates) != answer.template_sha256:
                raise _changed(shard, f"a pair of {answer.test_id!r}", subject)
            first_hash, first, _ = self._first.setdefault(
                (f"pairs of {grader.key}", templates), (answer.template_sha256, shard, None)
            )
            if first_hash != answer.template_sha256:
                raise _differs(shard, first, subject)

    def warnings(self) -> Iterator[str]:
        """What could not be compared with the suite, and each tool of which the shards used several versions."""
        if self._why_not_now:
            yield self._why_not_now
        if self._now is not None and (missing := sorted(self._now.missing_outputs)):
            more = f" and {len(missing) - _MAX_NAMES:,} more" if len(missing) > _MAX_NAMES else ""
            yield (
                f"not compared with the suite, whose outputs are not on this machine: {', '.join(missing[:_MAX_NAMES])}"
                f"{more}"
            )
        for tool, versions in sorted(self._tools.items()):
            if len(versions) > 1:
                listed = ", ".join(f"{version} ({shard})" for version, shard in versions.items())
                yield f"the shards were graded with different versions of {tool}: {listed}"

    def _compare(self, record: Record, shard: Path) -> None:
        """Raises ``UsageError`` if the files of a record are not what they were for an earlier one."""
        files, templates = self._files_of(record.test_id), _template_hashes(record)
        for part, file_hash in {**key_parts(record.generation_key), **key_parts(record.grade_key)}.items():
            if part not in files:
                continue
            now = file_hash, shard, templates.get(part)
            first_hash, first, template = self._first.setdefault((part, files[part]), now)
            if file_hash != first_hash:
                raise _differs(shard, first, self._subject(record, {part}, lambda _, known=template: known))  # type: ignore[misc]

    def _files_of(self, case_id: str) -> _Files:
        if case_id not in self._files:
            case = self._cases[case_id]
            inputs = case if case.output_of is None else self._cases[case.output_of]
            masks = inputs.masks.model_dump(exclude_none=True) if inputs.masks else {}
            self._files[case_id] = {
                "images": tuple(image.path for image in inputs.images),
                "masks": tuple(masks.values()),
                "reference": (case.reference,) if case.reference else (),
                **{
                    f"{_GRADER}{grader.key}": grader.templates(case, self._suite.vars)
                    for grader in self._suite.graders
                    if grader.is_for(case)
                },
            }
        return self._files[case_id]

    def _subject(
        self, record: Record, changed: Iterable[str], template_of: Callable[[tuple[str, ...]], str | None]
    ) -> str:
        """The file that differs, or else the parts of the keys."""
        files, recorded = self._files_of(record.test_id), _template_hashes(record)
        for part in sorted(changed, key=lambda name: (name not in _CASE_FILES, name)):
            if part in _CASE_FILES:
                return _named(_CASE_FILES[part], files[part])
            if part == "image":
                return f"the output {record.shown_params.get('path', '')}".rstrip()
            if part in files and (grader := self._graders.get(part.removeprefix(_GRADER))):
                before, after = recorded.get(part), template_of(files[part])
                is_same = None if before is None or after is None else before == after
                return self._grader_subject(grader, files[part], is_same)
        return f"{describe_parts(frozenset(changed))} of its suite"

    def _grader_subject(self, grader: BaseGrader, templates: tuple[str, ...], is_same: bool | None) -> str:
        """The files that the scores of a grader depend on. ``is_same``: whether its templates are, if that is known."""
        judges = [self._suite.judges[name] for name in grader.judge_names if name in self._suite.judges]
        answers = [str(getattr(judge, "path", "")) for judge in judges if judge.is_recorded]
        subjects = []
        if templates and is_same is not True:
            subjects.append(f"{_named('template', templates)} or what it includes")
        if answers and is_same is not False:
            subjects.append(_named("table of recorded answers", answers))
        return f"{' or '.join(subjects) or 'the options or the version'} of the grader {grader.key!r}"


class _SuiteNow:
    """What the suite would compute now."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._hash_of = FileHashes(plan.folder)
        self._calls: dict[tuple[str, str], list[tuple[Call, Call]]] = {}
        """By case and model run: the calls that generate, and those of the cells. Samples of a model share one."""
        self.missing_outputs: set[str] = set()
        """The existing outputs of records that are not on this machine."""
        for call in plan.calls():
            for cell_call in call.with_dependents:
                calls = self._calls.setdefault((cell_call.case.id, call.run.label), [])
                if call.run.config.reads_outputs or not calls:
                    calls.append((call, cell_call))

    def changes(self, record: Record) -> frozenset[str]:
        """The parts of the keys of a record that would be others now; none of an output that is not on this machine."""
        calls = self._calls.get((record.test_id, record.model_label))
        if calls is None:
            return frozenset()
        call, cell_call = calls[min(record.sample_index, len(calls) - 1)]
        changed = changed_parts(record.generation_key, generation_key(call, record.sample_index, self._hash_of))
        if record.grade_key:
            changed |= changed_parts(record.grade_key, grade_key(cell_call, self._hash_of))
        changed -= _OF_EARLIER_TURNS
        if (missing := self._plan.missing_output(call)) is None:
            return changed
        self.missing_outputs.add(missing)
        return changed - {"image"}

    def template_sha256(self, names: tuple[str, ...]) -> str | None:
        """The hash of templates."""
        return self._plan.templates.digest(*names) if names else None


def _suite_now(runs: Sequence[tuple[Path, RunInfo]]) -> tuple[_SuiteNow | None, str]:
    """The suite of the shards if it is on this machine, or a message if it needs secrets or trust.

    Raises ``UsageError`` if it cannot be loaded otherwise: a file that is gone must not hide one that was replaced.
    """
    for folder, info in runs:
        path, is_here = Path(info.suite_path), False
        with suppress(OSError):  # the path of a stranger's run may be too long
            is_here = path.is_file() and digest_of(path) == info.source_sha256
        if not is_here:
            continue
        skipped = "the shards are compared with each other, but not with the suite on this machine, which needs"
        if info.hidden_vars:
            return None, f"{skipped} its secret variables"
        selection = info.selection.model_copy(update={"shard": None})
        try:
            plan = load_stored_plan(folder, SuiteOptions(selection=selection, runs=folder.parent))
        except SuiteError as error:
            faults = [problem.message for problem in error.problems if "--trust-suite" not in problem.message]
            if not faults:
                return None, f"{skipped} --trust-suite"
            raise UsageError(
                f"{folder}: cannot be compared with its suite on this machine: {faults[0]}: restore what it needs"
            ) from None
        return _SuiteNow(plan), ""
    return None, ""


def _changed(shard: Path, cell: str, subject: str) -> UsageError:
    return UsageError(
        f"{shard}: {cell} used {subject}, which changed since then: restore what changed, or resume this shard"
    )


def _differs(shard: Path, first: Path, subject: str) -> UsageError:
    other = f"{shard}: differs from {first}" if first != shard else f"{shard}: its cells differ"
    return UsageError(f"{other} in {subject}: resume a shard that has the earlier one")


def _template_hashes(record: Record) -> dict[str, str | None]:
    """By part of the grading key: the hash of the templates of a grader."""
    return {f"{_GRADER}{grader.key}": grader.fingerprint.template_sha256 for grader in record.graders}


def _named(noun: str, files: Sequence[str]) -> str:
    return f"the {noun}{'s' * (len(files) > 1)} {', '.join(files)}"
