"""Prepares one start of the label server, and keeps the progress of raters in ``labeling.jsonl``.

``labels.jsonl`` stores answers. ``labeling.jsonl`` stores sessions with their seeds, and the steps of raters, so that a
restarted server resumes where the rater stopped. Only this module reads or writes it.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from visioneval.analysis.agreement.answers import LabeledRun, drop_outdated_labels
from visioneval.analysis.run_lookup import Warn, ignore, labels_of, read_run
from visioneval.analysis.summary.judges import ReviewPriority
from visioneval.errors import UsageError, count_of
from visioneval.installation import install_command
from visioneval.label.items import VIDEO_TYPES, applies, questions_for
from visioneval.label.sampling import (
    RANDOM_KINDS,
    Candidate,
    Item,
    ItemKey,
    Queue,
    SelectionSpec,
    SubjectKey,
    Turn,
    draw_cells,
    pairs,
    select_candidates,
)
from visioneval.media.video import can_read_videos
from visioneval.records.labels import (
    LABELS,
    Digest,
    Images,
    Label,
    Rater,
    RecordedDraw,
    append_draw,
    drop_outdated,
    newest,
    read_anchors,
    read_draws,
    read_labels,
)
from visioneval.records.model import Record, RunInfo
from visioneval.records.outputs import changed_outputs, writing_ended
from visioneval.records.reader import GrowingFile, read_lines
from visioneval.records.stores.lookup import append_shared, display_name, fetch_outputs
from visioneval.records.untrusted import SCHEMA_VERSION, Moment, SampleIndex
from visioneval.suite.files import split_run
from visioneval.suite.labels import LabelQuestion
from visioneval.types import Frozen, Status

_Subjects = dict[SubjectKey, Candidate]
PROGRESS = "labeling.jsonl"
ANCHOR_VALIDITY = timedelta(hours=12)
"""Anchors are asked again after this time."""


@dataclass(frozen=True, slots=True)
class LabelRequest:
    """A request for labeling. ``run`` and ``pairs`` are a RUN or RUN@LABEL; ``repeat`` is a share, 0 to 1."""

    run: str
    out: Path
    which: str = "all"
    pairs: str | None = None
    repeat: float = 0.0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class LabelingTask:
    """A labeling task. ``other`` is the folder of the compared run.

    ``is_draw``: the subjects are a recorded random draw, in its order.
    """

    folder: Path
    other: Path
    info: RunInfo
    questions: tuple[LabelQuestion, ...]
    subjects: Sequence[Candidate]
    anchors: Sequence[Candidate]
    session: LabelSession
    notes: tuple[str, ...]
    is_draw: bool = False

    @property
    def after(self) -> dict[str, str]:
        """What to do with the answers: a sentence, and the command."""
        run = shlex.quote(display_name(self.folder))
        if self.session.pairs is None:
            return {"text": "To compare the graders with these labels:", "command": f"visioneval agreement {run}"}
        return {"text": "To rank the model runs by these answers:", "command": f"visioneval rank {run} --by people"}


@dataclass(frozen=True, slots=True)
class _Run:
    """A run, limited to the model runs of a label if one was given.

    ``with_output`` are the cells whose image file exists.
    """

    folder: Path
    info: RunInfo
    records: list[Record]
    with_output: list[Record]
    label: str | None


def _read(name: str, runs: Path) -> _Run:
    folder, info, records = read_run(name, runs)
    fetch_outputs(folder)
    with_output = [record for record in records if record.artifact_path and (folder / record.artifact_path).is_file()]
    _check_unchanged(with_output, folder, info)
    label = None if (Path(name) / "run.json").is_file() else split_run(name)[1]
    return _Run(folder, info, records, with_output, label)


def _check_unchanged(records: Iterable[Record], folder: Path, info: RunInfo) -> None:
    """Raises ``UsageError`` for an output that was replaced: its labels would be of another one than its scores."""
    for path in changed_outputs(records, folder, writing_ended(info)).values():
        raise UsageError(f"{folder / path}: was changed after it was generated: restore it, or resume the run")


def prepare(request: LabelRequest) -> LabelingTask:
    """Selects the items and records the session, and a random selection of cells as a draw.

    Without a seed, reuses that of the last session with the same settings, or of the last draw of the same kind, which
    a larger number extends. Raises ``UsageError`` if there is nothing to label, and ``StorageError`` if the run folder
    cannot be written.
    """
    selection = SelectionSpec.parse(request.which)
    run = _read(request.run, request.out)
    other = _read(request.pairs, request.out) if request.pairs is not None else None
    questions = questions_for(run.info.selected_suite, of_pairs=other is not None)
    subjects = _subjects(run, other)
    is_draw = other is None and selection.kind in RANDOM_KINDS
    session = _session(request, run, other, selection if is_draw else None)
    if is_draw:
        draw = draw_cells(run.records, selection, session.seed, datetime.now(UTC))
        by_cell = {subject.record.cell: subject for subject in subjects}
        selected = [by_cell[cell.cell] for cell in draw.cells if cell.cell in by_cell]
        if not selected:
            raise UsageError(f"{run.folder}: no drawn cell has an image to label")
        append_draw(run.folder, draw)
    else:
        weight = ReviewPriority(run.info.selected_suite, run.info.metrics).weight
        selected = select_candidates(subjects, selection, session.seed, weight)
    if not selected:
        raise UsageError(f"--which {request.which}: no disputed cells; try random:N or stratified:N")
    by_key = {subject.key: subject for subject in subjects}
    anchors, missing = _find_anchors(run, by_key, of_pairs=other is not None)
    append_entries(run.folder, [SessionEntry(at=datetime.now(UTC).isoformat(), session=session)])
    folder, other_folder, notes = run.folder, (other or run).folder, tuple(_notes(run, by_key, missing))
    return LabelingTask(folder, other_folder, run.info, questions, selected, anchors, session, notes, is_draw)


def record_draw(
    name: str, runs: Path, which: str, seed: int | None, warn: Warn = ignore
) -> tuple[RecordedDraw, list[Record], list[LabelQuestion]]:
    """Draws cells of a run for labeling elsewhere, and records the draw.

    Returns it with its cells, in order, and the suite's questions that apply to any of them.

    Without a seed, reuses that of the last draw of the same kind. Raises ``UsageError``, and ``StorageError`` if the
    run folder cannot be written.
    """
    selection = SelectionSpec.parse(which)
    if selection.kind not in RANDOM_KINDS:
        raise UsageError(f"{which}: is not a random draw: write random:N or stratified:N")
    folder, info, records = read_run(name, runs, warn)
    _check_unchanged(records, folder, info)
    draw = draw_cells(records, selection, _draw_seed(folder, records, selection, seed), datetime.now(UTC))
    append_draw(folder, draw)
    by_cell = {record.cell: record for record in records}
    drawn = [by_cell[cell.cell] for cell in draw.cells]
    questions = info.selected_suite.resolved_labels.questions
    return draw, drawn, [question for question in questions if any(applies(question, record) for record in drawn)]


def labels_to_export(run: str, runs: Path, warn: Warn, *, include_all: bool) -> tuple[Sequence[Label], int]:
    """The labels of a run; without ``include_all``, only the last answer to each question about the present images.

    Also returns how many labels for replaced images were left out. Raises ``UsageError``.
    """
    folder, info, records = read_run(run, runs, warn)
    labels = labels_of(run, records, read_labels(folder / LABELS))
    if include_all:
        return labels, 0
    (current,), outdated = drop_outdated_labels([LabeledRun(info, records, labels)])
    return newest(current.labels), outdated


def _draw_seed(
    folder: Path, records: Iterable[Record], selection: SelectionSpec | None, seed: int | None = None
) -> int:
    """The given seed, else that of the last draw of the same kind from the same model runs, else a new one."""
    if seed is not None:
        return seed
    labels = sorted({record.model_label for record in records if record.status is Status.COMPLETED})
    for draw in reversed(read_draws(folder)) if selection is not None else ():
        is_same_kind = selection and SelectionSpec.parse(draw.about.which).kind == selection.kind
        if is_same_kind and [part.model_label for part in draw.about.frame] == labels:
            return draw.about.seed
    return secrets.randbelow(2**31)


def _subjects(run: _Run, other: _Run | None) -> list[Candidate]:
    if other is None:
        subjects = [Candidate(record) for record in run.with_output]
        problem = f"{run.folder}: no images to label"
    else:
        subjects = pairs(run.with_output, other.with_output, other.info.run_id)
        hint = "to compare two model runs of one run, use RUN@LABEL --pairs RUN@LABEL"
        problem = f"--pairs {other.info.run_id}: no cell has an image in both runs; {hint}"
    if not subjects:
        raise UsageError(problem)
    return subjects


def _session(request: LabelRequest, run: _Run, other: _Run | None, draw: SelectionSpec | None) -> LabelSession:
    pairs_with = None if other is None else f"{other.info.run_id}@{other.label}" if other.label else other.info.run_id
    settings = {"which": request.which, "repeat": request.repeat, "cells": run.label, "pairs": pairs_with}
    if request.seed is not None:
        return LabelSession(**settings, seed=request.seed)
    for entry in reversed(read_entries(run.folder)):
        if entry.session is not None and entry.session.model_dump(exclude={"seed"}) == settings:
            return entry.session
    return LabelSession(**settings, seed=_draw_seed(run.folder, run.records, draw))


def _find_anchors(run: _Run, by_key: _Subjects, *, of_pairs: bool) -> tuple[list[Candidate], int]:
    """Subjects with an agreed answer, and the number of agreed answers that cannot be shown."""
    answers = [label for label in read_anchors(run.folder, run.info) if (label.other is not None) is of_pairs]
    keys = {(*label.cell, label.other) for label in _drop_outdated(answers, by_key)[0]}
    anchors = [by_key[key] for key in sorted(keys & by_key.keys(), key=repr)]
    return anchors, len(keys) - len(anchors)


def _drop_outdated(labels: Sequence[Label], by_key: _Subjects) -> tuple[list[Label], int]:
    def images(label: Label) -> Images:
        subject = by_key.get((*label.cell, label.other))
        return (None, None) if subject is None else subject.outputs

    return drop_outdated(labels, images)


def _notes(run: _Run, by_key: _Subjects, missing_anchors: int) -> Iterable[str]:
    generated = [record for record in run.records if record.artifact_path]
    without_file = len(generated) - len(run.with_output)
    if len(run.records) > len(generated):
        yield f"{count_of(len(run.records) - len(generated), 'cell')} without an image, skipped"
    if without_file:
        yield f"{count_of(without_file, 'cell')} with a missing image file, skipped"
    if any(record.mime in VIDEO_TYPES for record in run.with_output) and not can_read_videos():
        yield f"video metadata may reveal the model; to remove it, {install_command('video')}"
    _, outdated = _drop_outdated(read_labels(run.folder / LABELS), by_key)
    if outdated:
        yield f"labels for replaced images, ignored: {outdated:,}"
    if missing_anchors:
        yield f"{count_of(missing_anchors, 'cell')} with an agreed answer skipped: not in this selection"


class LabelSession(Frozen):
    """The settings of one start of the server. ``seed`` shuffles order and sides."""

    which: str
    """The value of ``--which``."""
    repeat: Annotated[float, Field(ge=0, le=1)]
    """The share of items that are shown again."""
    cells: str | None = None
    """The selected model run, or ``null``."""
    pairs: str | None = None
    """The run to compare with, ``RUN_ID`` or ``RUN_ID@label``, or ``null``."""
    seed: Annotated[int, Field(ge=0)]
    """The seed for selection, order and sides."""


class LabelStep(Frozen):
    """What a rater did with one item. ``reopened``: a skipped item will be shown again."""

    rater: Rater
    """Who."""
    test_id: str
    """The case."""
    model_label: str
    """The model run."""
    sample_index: SampleIndex
    """Starts at 0."""
    other: str | None = None
    """As in a label."""
    turn: Turn
    """``first``, ``repeat``, or ``anchor`` for an item with an agreed answer."""
    did: Literal["answered", "skipped", "undone", "reopened"]
    """``answered``, ``skipped``, ``undone``, or ``reopened``: a skipped item is asked again."""
    artifact_sha256: Digest | None = None
    """As in a label."""
    other_sha256: Digest | None = None
    """As in a label."""

    @property
    def key(self) -> ItemKey:
        """The key of the item."""
        return self.test_id, self.model_label, self.sample_index, self.other, self.turn


class SessionEntry(Frozen):
    """One line of the file: a session or a step."""

    schema_version: int = SCHEMA_VERSION
    at: Moment
    session: LabelSession | None = None
    step: LabelStep | None = None


def append_entries(folder: Path, entries: Iterable[SessionEntry]) -> None:
    """Appends lines atomically and durably. Raises ``StorageError``."""
    append_shared(folder / PROGRESS, [entry.model_dump_json().encode() for entry in entries])


def read_entries(folder: Path) -> list[SessionEntry]:
    """All lines, oldest first; empty if the file is missing. Raises ``RunFormatError`` with file and line."""
    return list(read_lines(folder / PROGRESS, SessionEntry, "labeling"))


def growing_entries(folder: Path) -> GrowingFile[SessionEntry]:
    """The lines of a file that other servers append to."""
    return GrowingFile(folder / PROGRESS, SessionEntry, "labeling")


@dataclass(slots=True)
class RaterProgress:
    """One rater's progress: what was done last with each item, and when, in the order of these steps."""

    last: dict[ItemKey, tuple[str, datetime]] = field(default_factory=dict)

    def apply(self, step: LabelStep, at: str) -> None:
        """Applies one step."""
        self.last.pop(step.key, None)
        self.last[step.key] = step.did, datetime.fromisoformat(at)

    def did(self, item: Item) -> str:
        """What was done last with an item; empty if nothing was."""
        return self.last.get(item.key, ("", None))[0]

    def items(self, queue: Queue, *did: str) -> list[Item]:
        """The items of a queue with which this was done last, in order."""
        return [queue[key] for key, (step, _) in self.last.items() if step in did and key in queue]

    def done(self, queue: Queue, now: datetime) -> list[Item]:
        """The items of a queue that are answered or skipped. Anchors expire after ``ANCHOR_VALIDITY``."""
        return [
            item
            for item in self.items(queue, "answered", "skipped")
            if item.turn != "anchor" or now - self.last[item.key][1] < ANCHOR_VALIDITY
        ]

    def next_items(self, queue: Queue, now: datetime, count: int) -> list[Item]:
        """The next items, at most ``count``: undone items first, the last one first, then the order of the queue."""
        again = self.items(queue, "undone")[::-1]
        left_out = {item.key for item in (*again, *self.done(queue, now))}
        return list(islice(chain(again, (item for key, item in queue.items() if key not in left_out)), count))

    def last_item(self, queue: Queue) -> Item | None:
        """The last answered or skipped item of the queue, which *undo* reverts."""
        return next(iter(self.items(queue, "answered", "skipped")[::-1]), None)
