"""What one start of the label server asks about: runs read, cells chosen, the seed found again or made."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from visioneval.analysis.disputed import Disputes
from visioneval.errors import UsageError
from visioneval.label.asking import questions
from visioneval.label.deck import Subject, Which, choose, pairs
from visioneval.label.progress import Entry, Session, append_entries, read_entries
from visioneval.labels import read_anchors
from visioneval.records import Record, RunInfo, read_info, read_records
from visioneval.suite.labels import LabelPair, LabelQuestion
from visioneval.suite.messages import did_you_mean


@dataclass(frozen=True, slots=True)
class OneRun:
    """A run that was read, narrowed to one model run where a label was named."""

    folder: Path
    info: RunInfo
    records: tuple[Record, ...]

    @classmethod
    def read(cls, folder: Path, label: str | None) -> OneRun:
        """Raises ``UsageError`` for a label that the run does not have, and ``RunFormatError``."""
        info, records = read_info(folder), tuple(read_records(folder))
        if label is not None:
            labels = {record.model_label for record in records}
            if label not in labels:
                raise UsageError(f"no model run {label!r} in {folder.name}{did_you_mean(label, sorted(labels))}")
            records = tuple(record for record in records if record.model_label == label)
        return cls(folder, info, records)

    @property
    def seen(self) -> list[Record]:
        """The cells with a picture that is still there."""
        return [each for each in self.records if each.artifact_path and (self.folder / each.artifact_path).is_file()]


@dataclass(frozen=True, slots=True)
class Work:
    """What raters are asked, ready to be dealt. ``other`` is the folder of the run that is held against this one."""

    folder: Path
    other: Path
    info: RunInfo
    asked: tuple[LabelQuestion, ...] | tuple[LabelPair, ...]
    subjects: tuple[Subject, ...]
    anchors: tuple[Subject, ...]
    session: Session
    notes: tuple[str, ...]


def prepare(
    run: OneRun, other: OneRun | None, *, which: str, repeat: float, seed: int | None, names: Names
) -> Work:
    """Chooses what is asked and records the session. ``names`` are the label of the run, and the other as it was named.

    Without ``seed`` that of the last session that asked for the same is used again. Raises ``UsageError`` where there
    is nothing to ask about, ``StorageError`` where the run's folder cannot be written.
    """
    wanted = Which.parse(which)
    asked = questions(run.info.suite, of_pairs=other is not None)
    everything, notes = _subjects(run, other, names[1])
    if not everything:
        raise UsageError(f"{run.folder}: there is no picture to label here" if other is None else _no_pair(run, other))
    session = Session(which=which, repeat=repeat, cells=names[0], pairs=names[1], seed=_seed(run.folder, seed))
    session = session if seed is not None else _as_before(run.folder, session)
    disputes = Disputes(run.info.suite, run.info.metrics)
    chosen = choose(everything, wanted, session.seed, disputes.weight)
    if not chosen:
        raise UsageError("--which disputed: no cell is disputed here; try random:N or stratified:N")
    anchors, lost = _anchors(run, everything)
    if lost:
        notes.append(f"{lost} anchored {_cells(lost)} not in this run, or without a picture, and left out")
    append_entries(run.folder, [Entry(at=datetime.now(UTC).isoformat(), session=session)])
    return Work(
        folder=run.folder,
        other=other.folder if other else run.folder,
        info=run.info,
        asked=asked,
        subjects=tuple(chosen),
        anchors=tuple(anchors),
        session=session,
        notes=tuple(notes),
    )
